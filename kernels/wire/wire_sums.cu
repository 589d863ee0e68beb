/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/wire_sums.cu - back from experts (wire_rows.cuh). Every sum is
 * taken in the order that weft/moe.h says, so its bits are the host's.
 */
#include "kernels/wire/wire_rows.cuh"

/* An element of a sum on its way, and the other way. */
template <class Element>
static __device__ inline float load_sum(const wefti_rows_args &args,
                                        const unsigned char *row, size_t k)
{
    typedef typename Element::memory memory;
    return args.rounded
               ? Element::widen(reinterpret_cast<const memory *>(row)[k])
               : reinterpret_cast<const float *>(row)[k];
}

template <class Element>
static __device__ inline void reduce_row(const wefti_rows_args &args, size_t n,
                                         size_t k)
{
    typedef typename Element::memory memory;
    unsigned char *row = row_in(args, n);
    float sum = 0;
    bool first = true;
    for (size_t i = n * args.slots; i < (n + 1) * args.slots; i++) {
        if (args.places[i] < 0) {
            continue;
        }
        float term = Element::widen(static_cast<const memory *>(
            args.from)[(size_t)args.places[i] * args.hidden + k]);
        term = args.weighted ? term * args.row_weights[i] : term;
        sum = first ? term : sum + term;
        first = false;
    }
    if (args.rounded) {
        reinterpret_cast<memory *>(row)[k] = Element::narrow(sum);
    } else {
        reinterpret_cast<uint32_t *>(row)[k] = element_f32::narrow(sum);
    }
}

/* The sum of each row's slots; without rows of experts, their products. */
template <class Element>
static __device__ inline void rows_reduce(const wefti_rows_args &args)
{
    size_t count = count_in(args);
    for (size_t rank = thread_first(); rank < args.nranks;
         rank += thread_count()) {
        size_t rows = args.firsts[rank + 1] - args.firsts[rank];
        args.gone[rank] = *args.trouble ? GONE_WRONG : rows * args.row_bytes;
    }
    size_t width = args.from ? args.hidden : args.slots;
    for (size_t i = thread_first(); i < count * width; i += thread_count()) {
        size_t n = i / width;
        if (args.from) {
            reduce_row<Element>(args, n, i % width);
        } else {
            reinterpret_cast<float *>(row_in(args, n))[i % width] =
                args.products[i];
        }
    }
}

/* Where a warp's token has answers: in the order of nodes, and of ranks in
 * each, a lane each. */
struct answers {
    unsigned count;
    size_t at; /* in out */
    int32_t node;
};

static __device__ inline answers find_answers(const wefti_rows_args &args,
                                              size_t token)
{
    size_t i = token * args.slots + lane();
    bool has = lane() < args.slots && leads(args, i);
    int owner = has ? owner_of(args, args.kept_experts[i]) : 0;
    int32_t turn = has ? args.turns[owner] : INT32_MAX;
    size_t at =
        has ? args.out_begins[owner] + (size_t)args.sent[i] * args.row_bytes
            : 0;
    int32_t node = has ? args.nodes[owner] : -1;
    answers found = {0, 0, -1};
    for (int32_t last = -1;; found.count++) {
        int32_t next = turn > last ? turn : INT32_MAX;
        for (unsigned step = LANES / 2; step != 0; step /= 2) {
            int32_t other = __shfl_xor_sync(ALL_LANES, next, step);
            next = other < next ? other : next;
        }
        if (next == INT32_MAX) {
            return found;
        }
        int from = __ffs((int)__ballot_sync(ALL_LANES, turn == next)) - 1;
        size_t its_at = __shfl_sync(ALL_LANES, at, from);
        int32_t its_node = __shfl_sync(ALL_LANES, node, from);
        if (lane() == found.count) {
            found.at = its_at;
            found.node = its_node;
        }
        last = next;
    }
}

/* All lanes come here; those behind the row's end take part alone. */
template <class Element>
static __device__ inline float sum_answers(const wefti_rows_args &args,
                                           const answers &of, size_t k)
{
    const unsigned char *out = static_cast<const unsigned char *>(args.out);
    float sum = 0;
    for (unsigned begin = 0, end; begin < of.count; begin = end) {
        int32_t node = __shfl_sync(ALL_LANES, of.node, (int)begin);
        float of_node = 0;
        for (end = begin; end < of.count &&
                          __shfl_sync(ALL_LANES, of.node, (int)end) == node;
             end++) {
            size_t at = __shfl_sync(ALL_LANES, of.at, (int)end);
            float term =
                k < args.hidden ? load_sum<Element>(args, out + at, k) : 0;
            of_node = end == begin ? term : of_node + term;
        }
        if (args.rounded) {
            of_node = Element::widen(Element::narrow(of_node));
        }
        sum = begin == 0 ? of_node : sum + of_node;
    }
    return sum;
}

template <class Element>
static __device__ inline void finish_sums(const wefti_rows_args &args)
{
    typedef typename Element::memory memory;
    for (size_t token = warp_first(); token < args.tokens;
         token += warp_count()) {
        answers of = find_answers(args, token);
        for (size_t first = 0; first < args.hidden; first += LANES) {
            size_t k = first + lane();
            float sum = sum_answers<Element>(args, of, k);
            if (k < args.hidden) {
                static_cast<memory *>(args.to)[token * args.hidden + k] =
                    Element::narrow(sum);
            }
        }
    }
}

template <class Element>
static __device__ inline void rows_finish(const wefti_rows_args &args)
{
    if (!args.of_slots) {
        finish_sums<Element>(args);
        return;
    }
    for (size_t i = thread_first(); i < args.tokens * args.slots;
         i += thread_count()) {
        bool goes = owner_of(args, args.kept_experts[i]) >= 0;
        static_cast<float *>(args.to)[i] =
            goes ? reinterpret_cast<const float *>(
                       row_out(args, i))[i % args.slots]
                 : 0;
    }
}

ROWS_TYPES(ROWS_KERNEL, reduce)
ROWS_TYPES(ROWS_KERNEL, finish)
