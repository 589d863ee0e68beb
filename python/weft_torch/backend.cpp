/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * python/weft_torch/backend.cpp - torch.distributed's backend "weft": a call of
 * c10d becomes operations of weft's public API. No algorithm is here.
 *
 *   dist.all_reduce(t)                                  work.wait()
 *     Backend::allreduce --> weft_op_begin --> requests --> weft_request_wait
 *
 * It derives from c10d::Backend as PyTorch's guide for backends of others says;
 * that interface is of one release of PyTorch, so this is built against the one
 * that is installed.
 */
#include "poster.hpp"

#include <pybind11/chrono.h>

using namespace weft_torch;

namespace
{

/* ---- the backend ----------------------------------------------------------
 */

/* Releases before 2.9 split groups of NCCL alone. */
template <typename backend>
constexpr bool kHasSplit =
    requires(backend &of, const store_ptr &store, const std::vector<int> &ranks,
             const intrusive_ptr<typename backend::Options> &options)
{
    of.split(store, ranks, options);
};

/* Several at once: by a name of their own, where torch has it. */
template <typename type> constexpr type gathers_of()
{
    if constexpr (requires { type::ALLGATHER_INTO_TENSOR_COALESCED; }) {
        return type::ALLGATHER_INTO_TENSOR_COALESCED;
    } else {
        return type::COALESCED;
    }
}
template <typename type> constexpr type scatters_of()
{
    if constexpr (requires { type::REDUCE_SCATTER_TENSOR_COALESCED; }) {
        return type::REDUCE_SCATTER_TENSOR_COALESCED;
    } else {
        return type::COALESCED;
    }
}

class weft_backend : public poster
{
  public:
    using poster::poster;

    /* ---- collectives ------------------------------------------------------
     */

    intrusive_ptr<Work> allreduce(tensors &list,
                                  const c10d::AllreduceOptions &opts) override
    {
        const batch_call whole(*this);
        return end(OpType::ALLREDUCE, "weft:all_reduce",
                   begin(prepare_sum(only(list), opts.reduceOp, opts.timeout)));
    }

    intrusive_ptr<Work>
    allreduce_coalesced(tensors &list,
                        const c10d::AllreduceCoalescedOptions &opts) override
    {
        const batch_call whole(*this);
        std::vector<prepared> all;
        std::set<void *> taken; /* a list may have a tensor twice */
        for (at::Tensor &tensor : list) {
            check_tensor(tensor);
            const bool again = tensor.device().is_cpu() &&
                               !taken.insert(tensor.data_ptr()).second;
            all.push_back(
                prepare_sum(tensor, opts.reduceOp, opts.timeout, again));
        }
        return end(OpType::ALLREDUCE_COALESCED, "weft:all_reduce_coalesced",
                   begin_all(std::move(all)));
    }

    intrusive_ptr<Work> broadcast(tensors &list,
                                  const c10d::BroadcastOptions &opts) override
    {
        const batch_call whole(*this);
        weft_op op =
            make_op(WEFT_COLLECTIVE_BROADCAST, "broadcast", opts.timeout);
        begun made;
        op.root = (int)opts.rootRank;
        const at::Tensor dense = take_both(made, only(list));
        set_moved(op, dense, dense, dense.numel());
        return end(OpType::BROADCAST, "weft:broadcast", begin(op, made));
    }

    intrusive_ptr<Work> reduce(tensors &list,
                               const c10d::ReduceOptions &opts) override
    {
        const batch_call whole(*this);
        weft_op op = make_op(WEFT_COLLECTIVE_REDUCE, "reduce", opts.timeout);
        begun made;
        op.root = (int)opts.rootRank;
        const at::Tensor dense = getRank() == op.root
                                     ? take_both(made, only(list))
                                     : take_in(made, only(list));
        made.results = list;
        set_reduced(op, made, dense, dense, dense.numel(), opts.reduceOp);
        return end(OpType::REDUCE, "weft:reduce", begin(op, made));
    }

    intrusive_ptr<Work> allgather(std::vector<tensors> &outputs,
                                  tensors &inputs,
                                  const c10d::AllgatherOptions &opts) override
    {
        const batch_call whole(*this);
        return end(OpType::ALLGATHER, "weft:all_gather",
                   gather_lists(outputs, inputs, opts.timeout));
    }

    intrusive_ptr<Work>
    allgather_coalesced(std::vector<tensors> &outputs, tensors &inputs,
                        const c10d::AllgatherOptions &opts) override
    {
        const batch_call whole(*this);
        /* outputs[rank][i], where allgather has outputs[i][rank]. */
        std::vector<tensors> turned(inputs.size());
        for (tensors &of_rank : outputs) {
            require(of_rank.size() == inputs.size(), WEFT_ERR_INVALID,
                    "all_gather_coalesced: each list needs one output for "
                    "each input");
            for (size_t i = 0; i < inputs.size(); i++) {
                turned[i].push_back(of_rank[i]);
            }
        }
        return end(OpType::ALLGATHER_COALESCED, "weft:all_gather_coalesced",
                   gather_lists(turned, inputs, opts.timeout));
    }

    intrusive_ptr<Work>
    _allgather_base(at::Tensor &output, at::Tensor &input,
                    const c10d::AllgatherOptions &opts) override
    {
        const batch_call whole(*this);
        return end(OpType::_ALLGATHER_BASE, "weft:all_gather_into_tensor",
                   begin(prepare_gather(output, input, opts.timeout)));
    }

    intrusive_ptr<Work>
    allgather_into_tensor_coalesced(tensors &outputs, tensors &inputs,
                                    const c10d::AllgatherOptions &opts) override
    {
        const batch_call whole(*this);
        std::vector<prepared> all;
        check_pairs(outputs.size(), inputs.size());
        for (size_t i = 0; i < inputs.size(); i++) {
            all.push_back(prepare_gather(outputs[i], inputs[i], opts.timeout));
        }
        return end(gathers_of<OpType>(), "weft:all_gather_into_tensor",
                   begin_all(std::move(all)));
    }

    intrusive_ptr<Work>
    reduce_scatter(tensors &outputs, std::vector<tensors> &inputs,
                   const c10d::ReduceScatterOptions &opts) override
    {
        const batch_call whole(*this);
        std::vector<prepared> all;
        check_pairs(outputs.size(), inputs.size());
        for (size_t i = 0; i < outputs.size(); i++) {
            check_parts(inputs[i], getSize());
            all.push_back(prepare_parts(outputs[i], join(inputs[i]), opts));
        }
        return end(OpType::REDUCE_SCATTER, "weft:reduce_scatter",
                   begin_all(std::move(all)));
    }

    intrusive_ptr<Work>
    _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                         const c10d::ReduceScatterOptions &opts) override
    {
        const batch_call whole(*this);
        return end(OpType::_REDUCE_SCATTER_BASE, "weft:reduce_scatter_tensor",
                   begin(prepare_parts(output, input, opts)));
    }

    intrusive_ptr<Work> reduce_scatter_tensor_coalesced(
        tensors &outputs, tensors &inputs,
        const c10d::ReduceScatterOptions &opts) override
    {
        const batch_call whole(*this);
        std::vector<prepared> all;
        check_pairs(outputs.size(), inputs.size());
        for (size_t i = 0; i < outputs.size(); i++) {
            all.push_back(prepare_parts(outputs[i], inputs[i], opts));
        }
        return end(scatters_of<OpType>(), "weft:reduce_scatter_tensor",
                   begin_all(std::move(all)));
    }

    intrusive_ptr<Work> gather(std::vector<tensors> &outputs, tensors &inputs,
                               const c10d::GatherOptions &opts) override
    {
        const batch_call whole(*this);
        weft_op op = make_op(WEFT_COLLECTIVE_GATHER, "gather", opts.timeout);
        begun made;
        op.root = (int)opts.rootRank;
        const at::Tensor in = take_in(made, only(inputs));
        at::Tensor out;
        if (getRank() == op.root) {
            require(outputs.size() == 1, WEFT_ERR_INVALID,
                    "gather: the root needs one list of outputs");
            check_same(outputs[0], in, "gather", getSize());
            out = at::empty({getSize(), in.numel()}, in.options());
            split_later(made, outputs[0], out);
        }
        set_moved(op, in, out, in.numel());
        return end(OpType::GATHER, "weft:gather", begin(op, made));
    }

    /* Only the root's output counts. */
    intrusive_ptr<Work> gather_single(at::Tensor &output, at::Tensor &input,
                                      const c10d::GatherOptions &opts)
    {
        const batch_call whole(*this);
        weft_op op = make_op(WEFT_COLLECTIVE_GATHER, "gather", opts.timeout);
        begun made;
        op.root = (int)opts.rootRank;
        check_tensor(input);
        const at::Tensor in = take_in(made, input);
        at::Tensor out;
        if (getRank() == op.root) {
            check_tensor(output);
            require(output.numel() == getSize() * input.numel() &&
                        output.scalar_type() == input.scalar_type(),
                    WEFT_ERR_INVALID,
                    "gather: the output must have the inputs of all ranks, and "
                    "their type");
            out = take_out(made, output);
        }
        set_moved(op, in, out, in.numel());
        return end(OpType::GATHER, "weft:gather", begin(op, made));
    }

    intrusive_ptr<Work> scatter(tensors &outputs, std::vector<tensors> &inputs,
                                const c10d::ScatterOptions &opts) override
    {
        const batch_call whole(*this);
        weft_op op = make_op(WEFT_COLLECTIVE_SCATTER, "scatter", opts.timeout);
        begun made;
        op.root = (int)opts.rootRank;
        const at::Tensor out = take_out(made, only(outputs));
        at::Tensor in;
        if (getRank() == op.root) {
            require(inputs.size() == 1, WEFT_ERR_INVALID,
                    "scatter: the root needs one list of inputs");
            check_same(inputs[0], out, "scatter", getSize());
            in = take_in(made, join(inputs[0]));
        }
        set_moved(op, in, out, out.numel());
        return end(OpType::SCATTER, "weft:scatter", begin(op, made));
    }

    intrusive_ptr<Work>
    alltoall_base(at::Tensor &output, at::Tensor &input,
                  std::vector<int64_t> &output_rows,
                  std::vector<int64_t> &input_rows,
                  const c10d::AllToAllOptions &opts) override
    {
        const batch_call whole(*this);
        check_tensor(output);
        check_tensor(input);
        begun made;
        const at::Tensor in = take_in(made, input);
        const at::Tensor out = take_out(made, output);
        return end(
            OpType::ALLTOALL_BASE, "weft:all_to_all_single",
            exchange(made, out, in, count_rows(out, output_rows, getSize()),
                     count_rows(in, input_rows, getSize()), opts.timeout));
    }

    intrusive_ptr<Work> alltoall(tensors &outputs, tensors &inputs,
                                 const c10d::AllToAllOptions &opts) override
    {
        const batch_call whole(*this);
        check_parts(outputs, getSize());
        check_parts(inputs, getSize());
        begun made;
        const at::Tensor in = take_in(made, join(inputs));
        const at::Tensor out =
            at::empty({count_all(outputs)}, outputs[0].options());
        split_later(made, outputs, out);
        return end(OpType::ALLTOALL, "weft:all_to_all",
                   exchange(made, out, in, count_each(outputs),
                            count_each(inputs), opts.timeout));
    }

    /* ---- groups from this one ---------------------------------------------
     */

    bool supportsSplitting() const
    {
        return kHasSplit<c10d::Backend>;
    }

    /* All ranks call it, with the ranks of their own new group, or with those
     * of another: nothing comes of that. The new ones meet through the store,
     * so that this group may be in use, or have failed. */
    intrusive_ptr<c10d::Backend> split(const store_ptr &store,
                                       const std::vector<int> &ranks,
                                       const intrusive_ptr<Options> &options)
    {
        const store_ptr meeting = next_store(store, "weft_split");
        const auto own = std::find(ranks.begin(), ranks.end(), getRank());
        for (const int rank : ranks) {
            require(rank >= 0 && rank < getSize(), WEFT_ERR_INVALID,
                    "split: rank " + std::to_string(rank) + " of " +
                        std::to_string(getSize()));
        }
        if (own == ranks.end()) {
            return nullptr;
        }
        return c10::make_intrusive<weft_backend>(
            meeting, (int)(own - ranks.begin()), (int)ranks.size(),
            limit_of(options), name_of(options, own_name() + ":split"));
    }

    bool supportsShrinking() const
    {
        return true;
    }

    /* Those that stay call it. With flags of 1 what is under way ends before,
     * on all ranks. */
    intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t> &ranks,
                                        int flags,
                                        const intrusive_ptr<Options> &options)
    {
        require(flags == 0 || flags == 1, WEFT_ERR_INVALID,
                "shrink: flags of " + std::to_string(flags) +
                    ": allowed are 0 and 1, which aborts what is under way");
        const milliseconds limit = limit_of(options);
        const remains left = leave_out(ranks, flags == 1, limit);
        return c10::make_intrusive<weft_backend>(
            next_store(store(), "weft_shrunk"), left.comm, left.device,
            left.place, limit, name_of(options, own_name() + ":shrunk"));
    }

  private:
    begun begin(prepared &&one)
    {
        return poster::begin(one.op, one.made);
    }
    using poster::begin;

    /* What is wrong with an operation is found before any is begun. */
    prepared prepare_sum(const at::Tensor &tensor, const c10d::ReduceOp &reduce,
                         milliseconds timeout, bool again = false)
    {
        weft_op op = make_op(WEFT_COLLECTIVE_ALLREDUCE, "all_reduce", timeout);
        begun made;
        const at::Tensor dense =
            again ? take_copy(made, tensor) : take_both(made, tensor);
        set_reduced(op, made, dense, dense, dense.numel(), reduce);
        return {op, std::move(made), {}};
    }

    prepared prepare_gather(const at::Tensor &output, const at::Tensor &input,
                            milliseconds timeout)
    {
        weft_op op = make_op(WEFT_COLLECTIVE_ALLGATHER, "all_gather", timeout);
        begun made;
        check_tensor(output);
        check_tensor(input);
        require(output.numel() == getSize() * input.numel() &&
                    output.scalar_type() == input.scalar_type(),
                WEFT_ERR_INVALID,
                "all_gather: the output must have the inputs of all ranks, and "
                "their type");
        const at::Tensor in = take_in(made, input);
        set_moved(op, in, take_out(made, output), in.numel());
        return {op, std::move(made), {}};
    }

    /* outputs[i] has a tensor for each rank; they may be of different sizes. */
    begun gather_lists(const std::vector<tensors> &outputs,
                       const tensors &inputs, milliseconds timeout)
    {
        std::vector<prepared> all;
        check_pairs(outputs.size(), inputs.size());
        for (size_t i = 0; i < inputs.size(); i++) {
            weft_op op =
                make_op(WEFT_COLLECTIVE_ALLGATHERV, "all_gather", timeout);
            begun made;
            check_tensor(inputs[i]);
            check_parts(outputs[i], getSize());
            require(outputs[i][getRank()].numel() == inputs[i].numel(),
                    WEFT_ERR_INVALID,
                    "all_gather: this rank's output has " +
                        std::to_string(outputs[i][getRank()].numel()) +
                        " elements, its input " +
                        std::to_string(inputs[i].numel()));
            const at::Tensor in = take_in(made, inputs[i]);
            const at::Tensor out =
                at::empty({count_all(outputs[i])}, in.options());
            split_later(made, outputs[i], out);
            std::vector<size_t> counts =
                scaled(count_each(outputs[i]), find_moved(in).count);
            set_moved(op, in, out, in.numel());
            op.recv_counts = counts.data();
            all.push_back({op, std::move(made), std::move(counts)});
        }
        return begin_all(std::move(all));
    }

    prepared prepare_parts(const at::Tensor &output, const at::Tensor &input,
                           const c10d::ReduceScatterOptions &opts)
    {
        weft_op op = make_op(WEFT_COLLECTIVE_REDUCESCATTER, "reduce_scatter",
                             opts.timeout);
        begun made;
        check_tensor(output);
        check_tensor(input);
        require(input.numel() == getSize() * output.numel() &&
                    output.scalar_type() == input.scalar_type(),
                WEFT_ERR_INVALID,
                "reduce_scatter: the input must have the outputs of all ranks, "
                "and their type");
        const at::Tensor in = take_in(made, input);
        const at::Tensor out = take_out(made, output);
        set_reduced(op, made, in, out, out.numel(), opts.reduceOp);
        return {op, std::move(made), {}};
    }

    begun exchange(begun &made, const at::Tensor &out, const at::Tensor &in,
                   const std::vector<int64_t> &comes,
                   const std::vector<int64_t> &goes, milliseconds timeout)
    {
        weft_op op = make_op(WEFT_COLLECTIVE_ALLTOALLV, "all_to_all", timeout);
        require(out.scalar_type() == in.scalar_type(), WEFT_ERR_INVALID,
                "all_to_all: input and output are of different types");
        const size_t each = find_moved(in).count;
        const std::vector<size_t> sent = scaled(goes, each);
        const std::vector<size_t> received = scaled(comes, each);
        set_moved(op, in, out, 0);
        op.send_counts = sent.data();
        op.recv_counts = received.data();
        return begin(op, made);
    }
};

intrusive_ptr<c10d::Backend> create(const store_ptr &store, int rank, int size,
                                    milliseconds timeout,
                                    const std::string &name)
{
    return c10::make_intrusive<weft_backend>(store, rank, size, timeout, name);
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module)
{
    module.def("create", &create,
               pybind11::call_guard<pybind11::gil_scoped_release>());
    module.def("version", &weft_version_text);
}
