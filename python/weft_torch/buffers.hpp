/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * python/weft_torch/buffers.hpp - tensors as the buffers of weft's operations:
 * their types, and what is copied before and after.
 */
#ifndef WEFT_TORCH_BUFFERS_HPP
#define WEFT_TORCH_BUFFERS_HPP

#include "work.hpp"

#include <c10/core/InferenceMode.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace weft_torch
{

/* ---- types ----------------------------------------------------------------
 */

/* As what weft sees tensors of a type: so many elements for each of theirs. */
struct element {
    weft_dtype dtype;
    size_t count;
};

inline element find_element(at::ScalarType type)
{
    switch (type) {
    case at::kChar:
        return {WEFT_DTYPE_I8, 1};
    case at::kByte:
        return {WEFT_DTYPE_U8, 1};
    case at::kBool:
        return {WEFT_DTYPE_U8, 1};
    case at::kInt:
        return {WEFT_DTYPE_I32, 1};
    case at::kLong:
        return {WEFT_DTYPE_I64, 1};
    case at::kHalf:
        return {WEFT_DTYPE_F16, 1};
    case at::kBFloat16:
        return {WEFT_DTYPE_BF16, 1};
    case at::kFloat:
        return {WEFT_DTYPE_F32, 1};
    case at::kDouble:
        return {WEFT_DTYPE_F64, 1};
    case at::kComplexFloat:
        return {WEFT_DTYPE_F32, 2};
    case at::kComplexDouble:
        return {WEFT_DTYPE_F64, 2};
    case at::ScalarType::Float8_e4m3fn:
        return {WEFT_DTYPE_F8E4M3, 1};
    case at::ScalarType::Float8_e5m2:
        return {WEFT_DTYPE_F8E5M2, 1};
    default:
        return {WEFT_DTYPE_COUNT, 1};
    }
}

/* To move, which is possible for all: by byte where weft has no such type. */
inline element find_moved(const at::Tensor &tensor)
{
    const element found = find_element(tensor.scalar_type());
    return found.dtype < WEFT_DTYPE_COUNT
               ? found
               : element{WEFT_DTYPE_U8, (size_t)tensor.element_size()};
}

/* Truth values are bytes 0 and 1: a sum is "any of them", as in NCCL's. */
inline weft_redop find_bool_redop(c10d::ReduceOp::RedOpType op)
{
    switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR:
        return WEFT_REDOP_MAX;
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND:
        return WEFT_REDOP_MIN;
    case c10d::ReduceOp::BXOR:
        return WEFT_REDOP_BXOR;
    default:
        fail(WEFT_ERR_INVALID, "weft: a mean of truth values");
    }
}

inline weft_redop find_redop(c10d::ReduceOp::RedOpType op,
                             const at::Tensor &tensor)
{
    if (tensor.scalar_type() == at::kBool) {
        return find_bool_redop(op);
    }
    switch (op) {
    case c10d::ReduceOp::SUM:
        return WEFT_REDOP_SUM;
    case c10d::ReduceOp::AVG:
        return WEFT_REDOP_AVG;
    case c10d::ReduceOp::PRODUCT:
        return WEFT_REDOP_PROD;
    case c10d::ReduceOp::MIN:
        return WEFT_REDOP_MIN;
    case c10d::ReduceOp::MAX:
        return WEFT_REDOP_MAX;
    case c10d::ReduceOp::BAND:
        return WEFT_REDOP_BAND;
    case c10d::ReduceOp::BOR:
        return WEFT_REDOP_BOR;
    case c10d::ReduceOp::BXOR:
        return WEFT_REDOP_BXOR;
    case c10d::ReduceOp::PREMUL_SUM:
        return WEFT_REDOP_PREMULSUM;
    default:
        fail(WEFT_ERR_INVALID, "weft: an unknown reduction");
    }
}

inline void check_tensor(const at::Tensor &tensor)
{
    require(tensor.device().is_cpu() || tensor.device().is_cuda(),
            WEFT_ERR_UNSUPPORTED,
            "a tensor on " + tensor.device().str() +
                ": this backend is for tensors in host memory and on GPUs by "
                "CUDA");
    require(tensor.layout() == at::kStrided, WEFT_ERR_UNSUPPORTED,
            "a sparse tensor: allowed are dense ones");
}

inline const at::Tensor &only(const tensors &list)
{
    require(list.size() == 1, WEFT_ERR_INVALID,
            std::to_string(list.size()) + " tensors: allowed is one");
    check_tensor(list[0]);
    return list[0];
}

/* ---- tensors as buffers -----------------------------------------------
 */

/* Read where it lies, or from a dense copy. */
inline at::Tensor take_in(begun &made, const at::Tensor &tensor)
{
    made.shown.push_back(tensor);
    made.kept.push_back(tensor.contiguous());
    return made.kept.back();
}

/* Whoever finds the work done, in whatever mode its thread is. */
inline void put_back(const at::Tensor &to, const at::Tensor &from)
{
    const c10::InferenceMode as_made(to.is_inference());
    to.copy_(from);
}

/* Written where it lies, or copied there at the end. */
inline at::Tensor take_out(begun &made, const at::Tensor &tensor)
{
    made.results.push_back(tensor);
    if (tensor.is_contiguous()) {
        made.kept.push_back(tensor);
        return tensor;
    }
    const at::Tensor dense =
        at::empty_like(tensor, at::MemoryFormat::Contiguous);
    made.kept.push_back(dense);
    made.after.push_back([tensor, dense] { put_back(tensor, dense); });
    return dense;
}

inline at::Tensor take_both(begun &made, const at::Tensor &tensor)
{
    const at::Tensor dense = take_out(made, tensor);
    made.shown.push_back(tensor);
    if (!dense.is_same(tensor)) {
        dense.copy_(tensor);
    }
    return dense;
}

/* Through a copy though it is dense: another operation has its memory. */
inline at::Tensor take_copy(begun &made, const at::Tensor &tensor)
{
    const at::Tensor copy = tensor.detach().clone(at::MemoryFormat::Contiguous);
    made.shown.push_back(tensor);
    made.results.push_back(tensor);
    made.kept.push_back(copy);
    made.after.push_back([tensor, copy] { put_back(tensor, copy); });
    return copy;
}

inline int64_t count_all(const tensors &list)
{
    int64_t all = 0;
    for (const at::Tensor &tensor : list) {
        all += tensor.numel();
    }
    return all;
}

/* Tensors one after another, in one; by copies, which on a GPU need no kernel.
 */
inline at::Tensor join(const tensors &list)
{
    at::NoGradGuard guard;
    const at::Tensor flat = at::empty({count_all(list)}, list[0].options());
    int64_t first = 0;
    for (const at::Tensor &tensor : list) {
        flat.narrow(0, first, tensor.numel()).copy_(tensor.reshape({-1}));
        first += tensor.numel();
    }
    return flat;
}

inline void split_later(begun &made, const tensors &outputs,
                        const at::Tensor &joined)
{
    made.kept.push_back(joined);
    made.results.insert(made.results.end(), outputs.begin(), outputs.end());
    made.after.push_back([outputs, joined] {
        const at::Tensor flat = joined.reshape({-1});
        int64_t first = 0;
        for (const at::Tensor &output : outputs) {
            put_back(output,
                     flat.narrow(0, first, output.numel()).view_as(output));
            first += output.numel();
        }
    });
}

inline std::vector<int64_t> count_each(const tensors &list)
{
    std::vector<int64_t> counts;
    for (const at::Tensor &tensor : list) {
        counts.push_back(tensor.numel());
    }
    return counts;
}

/* Elements of the rows that go to each rank; no list: as many to each. */
inline std::vector<int64_t>
count_rows(const at::Tensor &tensor, const std::vector<int64_t> &rows, int size)
{
    const int64_t first = tensor.dim() ? tensor.size(0) : 0;
    std::vector<int64_t> counts(size, 0);
    int64_t sum = 0;
    require(rows.empty() ? first % size == 0 : rows.size() == (size_t)size,
            WEFT_ERR_INVALID,
            "all_to_all_single: " + std::to_string(first) +
                " rows do not go to " + std::to_string(size) + " ranks");
    for (int rank = 0; rank < size; rank++) {
        const int64_t own = rows.empty() ? first / size : rows[rank];
        counts[rank] = first ? own * (tensor.numel() / first) : 0;
        sum += own;
    }
    require(sum == first, WEFT_ERR_INVALID,
            "all_to_all_single: split sizes sum up to " + std::to_string(sum) +
                " of " + std::to_string(first) + " rows");
    return counts;
}

inline void check_pairs(size_t outputs, size_t inputs)
{
    require(outputs == inputs, WEFT_ERR_INVALID,
            std::to_string(outputs) + " outputs for " + std::to_string(inputs) +
                " inputs");
}

/* One for each rank, of one type. */
inline void check_parts(const tensors &list, int size)
{
    require(list.size() == (size_t)size, WEFT_ERR_INVALID,
            std::to_string(list.size()) + " tensors for " +
                std::to_string(size) + " ranks");
    for (const at::Tensor &tensor : list) {
        check_tensor(tensor);
        require(tensor.scalar_type() == list[0].scalar_type(), WEFT_ERR_INVALID,
                "tensors of different types in a list");
    }
}

inline void check_same(const tensors &list, const at::Tensor &like,
                       const char *call, int size)
{
    check_parts(list, size);
    for (const at::Tensor &tensor : list) {
        require(tensor.numel() == like.numel() &&
                    tensor.scalar_type() == like.scalar_type(),
                WEFT_ERR_INVALID,
                std::string(call) + ": tensors of different sizes or types");
    }
}

inline void *at_of(const at::Tensor &tensor)
{
    return tensor.defined() ? tensor.data_ptr() : nullptr;
}

inline void set_moved(weft_op &op, const at::Tensor &in, const at::Tensor &out,
                      int64_t count)
{
    const element moved = find_moved(in.defined() ? in : out);
    op.send = at_of(in);
    op.recv = at_of(out);
    op.dtype = moved.dtype;
    op.count = (size_t)count * moved.count;
}

/* weft reads it in host memory. */
inline at::Tensor find_factor(const c10d::ReduceOp &reduce,
                              const at::Tensor &like)
{
    const auto *given = static_cast<const c10d::NCCLPreMulSumSupplement *>(
        reduce.supplement_.get());
    const at::TensorOptions here = like.options().device(at::kCPU);
    return given->tensor_factor.defined()
               ? given->tensor_factor.to(here).contiguous()
               : at::full({1}, given->double_factor, here);
}

inline void set_reduced(weft_op &op, begun &made, const at::Tensor &in,
                        const at::Tensor &out, int64_t count,
                        const c10d::ReduceOp &reduce)
{
    const element found = find_element(in.scalar_type());
    op.redop = find_redop(reduce, in);
    require(found.dtype < WEFT_DTYPE_COUNT, WEFT_ERR_UNSUPPORTED,
            std::string("a reduction of ") + c10::toString(in.scalar_type()));
    require(found.count == 1 || op.redop == WEFT_REDOP_SUM ||
                op.redop == WEFT_REDOP_AVG,
            WEFT_ERR_UNSUPPORTED,
            "complex numbers can be summed up and averaged");
    set_moved(op, in, out, count);
    if (op.redop == WEFT_REDOP_PREMULSUM) {
        made.kept.push_back(find_factor(reduce, in));
        op.scale = made.kept.back().data_ptr();
    }
}

/* ---- operations and messages ----------------------------------------------
 */

/* An operation with what it is of; op's buffers are those of kept tensors. */
inline weft_op make_op(weft_collective collective, const char *label,
                       milliseconds timeout)
{
    weft_op op = {};
    op.size_bytes = sizeof(op);
    op.collective = collective;
    op.label = label;
    op.timeout_ms = timeout > kNoTimeout ? (uint64_t)timeout.count() : 0;
    return op;
}

inline weft_p2p message(weft_p2p_kind kind, const at::Tensor &dense, int peer,
                        const char *label)
{
    const element moved = find_moved(dense);
    weft_p2p part = {};
    part.size_bytes = sizeof(part);
    part.kind = kind;
    part.buffer = dense.data_ptr();
    part.count = (size_t)dense.numel() * moved.count;
    part.dtype = moved.dtype;
    part.peer = peer;
    part.class_id = WEFT_CLASS_PP;
    part.queue = kMailQueue;
    part.label = label;
    return part;
}

inline std::vector<size_t> scaled(const std::vector<int64_t> &counts,
                                  size_t each)
{
    std::vector<size_t> all;
    for (const int64_t count : counts) {
        all.push_back((size_t)count * each);
    }
    return all;
}

} // namespace weft_torch

#endif
