/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/wire_rows.cu - to experts (wire_rows.cuh).
 */
#include "kernels/wire/wire_rows.cuh"

enum { QUANTUM = 128 /* elements of a scale */ };

#define CODE_MOST 448.0f

/* ---- where tokens are -----------------------------------------------------
 */

/* Keeps what the program says of its tokens. */
static __device__ inline void keep_tokens(const wefti_rows_args &args)
{
    size_t count = args.tokens * args.slots;
    for (size_t i = thread_first(); i < count; i += thread_count()) {
        int32_t expert = args.expert[i];
        bool known =
            expert >= -1 && (expert < 0 || owner_of(args, expert) >= 0);
        args.kept_experts[i] = known ? expert : -1;
        args.kept_weights[i] = args.weight ? args.weight[i] : 1;
        if (!known) {
            atomicOr(args.trouble, 1);
        }
        if (owner_of(args, expert) < 0) {
            args.sent[i] = -1;
        }
    }
}

/* A warp has a rank at a time, and looks at all tokens, 32 at a time. */
extern "C" __global__ void __launch_bounds__(WEFTI_LAUNCH_THREADS, 1)
    wefti_rows_route(const __grid_constant__ wefti_rows_args args)
{
    keep_tokens(args);
    for (size_t rank = warp_first(); rank < args.nranks; rank += warp_count()) {
        unsigned next = 0;
        for (size_t first = 0; first < args.tokens; first += LANES) {
            size_t token = first + lane();
            bool goes = false;
            for (size_t slot = 0; token < args.tokens && slot < args.slots;
                 slot++) {
                goes |=
                    owner_of(args, args.expert[token * args.slots + slot]) ==
                    (int)rank;
            }
            unsigned all = __ballot_sync(ALL_LANES, goes);
            unsigned own = next + (unsigned)__popc(all & ((1U << lane()) - 1));
            for (size_t slot = 0; goes && slot < args.slots; slot++) {
                size_t at = token * args.slots + slot;
                if (owner_of(args, args.expert[at]) == (int)rank) {
                    args.sent[at] = (int32_t)own;
                }
            }
            next += (unsigned)__popc(all);
        }
        if (lane() == 0) {
            args.out_rows[rank] = next;
        }
    }
}

static __device__ inline void pack_header(const wefti_rows_args &args,
                                          size_t token, uint32_t *header)
{
    for (size_t k = lane(); k < args.slots; k += LANES) {
        size_t at = token * args.slots + k;
        header[2 + k] = (uint32_t)args.kept_experts[at];
        header[2 + args.slots + k] = bits_as<uint32_t>(args.kept_weights[at]);
    }
    if (lane() == 0) {
        header[0] = (uint32_t)args.rank;
        header[1] = (uint32_t)token;
    }
}

static __device__ inline bool is_finite(float value)
{
    return value - value == 0;
}

/* Of a block's elements; those that are no numbers do not count. */
template <class Element>
static __device__ inline float scale_of(const void *elements, size_t first,
                                        size_t end)
{
    typedef typename Element::memory memory;
    float most = 0;
    for (size_t i = first + lane(); i < end; i += LANES) {
        float value = Element::widen(static_cast<const memory *>(elements)[i]);
        float magnitude = value < 0 ? -value : value;
        most = magnitude > most ? magnitude : most;
    }
    for (unsigned step = LANES / 2; step != 0; step /= 2) {
        float other = __shfl_xor_sync(ALL_LANES, most, step);
        most = other > most ? other : most;
    }
    float scale = most / CODE_MOST;
    return scale > 0 && is_finite(scale) ? scale : 1;
}

template <class Element>
static __device__ inline void quantise(const wefti_rows_args &args,
                                       const void *elements, void *payload)
{
    typedef typename Element::memory memory;
    size_t blocks = (args.hidden + QUANTUM - 1) / QUANTUM;
    float *scales = static_cast<float *>(payload);
    uint8_t *codes = reinterpret_cast<uint8_t *>(scales + blocks);
    for (size_t block = 0; block < blocks; block++) {
        size_t first = block * QUANTUM;
        size_t end =
            first + QUANTUM < args.hidden ? first + QUANTUM : args.hidden;
        float scale = scale_of<Element>(elements, first, end);
        if (lane() == 0) {
            scales[block] = scale;
        }
        for (size_t i = first + lane(); i < end; i += LANES) {
            float code =
                Element::widen(static_cast<const memory *>(elements)[i]) /
                scale;
            /* The largest may come out a hair above it: it stays there. */
            float most = code < 0 ? -CODE_MOST : CODE_MOST;
            bool beyond =
                is_finite(code) && (code > CODE_MOST || code < -CODE_MOST);
            codes[i] = element_f8e4m3::narrow(beyond ? most : code);
        }
    }
}

/* A warp has a slot at a time. */
template <class Element>
static __device__ inline void rows_pack(const wefti_rows_args &args)
{
    typedef typename Element::memory memory;
    for (size_t rank = thread_first(); rank < args.nranks;
         rank += thread_count()) {
        args.gone[rank] =
            *args.trouble ? GONE_WRONG : args.out_rows[rank] * args.row_bytes;
    }
    for (size_t i = warp_first(); i < args.tokens * args.slots;
         i += warp_count()) {
        if (!leads(args, i)) {
            continue;
        }
        unsigned char *row = row_out(args, i);
        const memory *elements = static_cast<const memory *>(args.from) +
                                 i / args.slots * args.hidden;
        if (args.header_bytes) {
            pack_header(args, i / args.slots,
                        reinterpret_cast<uint32_t *>(row));
            row += args.header_bytes;
        }
        if (args.quantised) {
            quantise<Element>(args, elements, row);
            continue;
        }
        for (size_t k = lane(); k < args.hidden; k += LANES) {
            reinterpret_cast<memory *>(row)[k] = elements[k];
        }
    }
}

/* ---- at the experts' rank -------------------------------------------------
 */

/* How many rows of a rank have come; behind an operation that has failed that
 * may be anything, and is no more than there is room for. */
static __device__ inline size_t rows_of(const wefti_rows_args &args,
                                        size_t rank)
{
    if (args.rows_most == 0) {
        return 0;
    }
    size_t rows = args.come[rank] / args.row_bytes;
    size_t end =
        rank + 1 < args.nranks ? args.in_begins[rank + 1] : args.in_bytes;
    size_t room =
        (end - args.in_begins[rank]) / (args.in_bytes / args.rows_most);
    return rows < room ? rows : room;
}

/* One warp: the first row of each rank among all that have come. */
extern "C" __global__ void __launch_bounds__(WEFTI_LAUNCH_THREADS, 1)
    wefti_rows_arrive(const __grid_constant__ wefti_rows_args args)
{
    size_t before = 0;
    for (size_t first = 0; warp_first() == 0 && first < args.nranks;
         first += LANES) {
        size_t rank = first + lane();
        size_t rows = rank < args.nranks ? rows_of(args, rank) : 0;
        size_t end = rows;
        for (unsigned step = 1; step < LANES; step *= 2) {
            size_t other = __shfl_up_sync(ALL_LANES, end, step);
            end += lane() >= step ? other : 0;
        }
        if (rank < args.nranks) {
            args.firsts[rank + 1] = before + end;
        }
        before += __shfl_sync(ALL_LANES, end, LANES - 1);
    }
    if (thread_first() == 0) {
        args.firsts[0] = 0;
    }
}

static __device__ inline const uint32_t *words(const void *row)
{
    return static_cast<const uint32_t *>(row);
}

static __device__ inline unsigned warp_sum(unsigned value)
{
    for (unsigned step = LANES / 2; step != 0; step /= 2) {
        value += __shfl_xor_sync(ALL_LANES, value, step);
    }
    return value;
}

extern "C" __global__ void __launch_bounds__(WEFTI_LAUNCH_THREADS, 1)
    wefti_rows_unpack(const __grid_constant__ wefti_rows_args args)
{
    size_t count = count_in(args) * args.slots;
    for (size_t i = thread_first(); i < count; i += thread_count()) {
        const uint32_t *header = words(row_in(args, i / args.slots));
        int32_t expert = (int32_t)header[2 + i % args.slots];
        args.here[i] = owner_of(args, expert) == args.rank
                           ? expert - args.rank * (int32_t)args.experts_here
                           : -1;
        args.row_weights[i] =
            bits_as<float>(header[2 + args.slots + i % args.slots]);
    }
}

/* A warp has an expert at a time, and looks at all slots, 32 at a time. */
extern "C" __global__ void __launch_bounds__(WEFTI_LAUNCH_THREADS, 1)
    wefti_rows_order(const __grid_constant__ wefti_rows_args args)
{
    size_t slots = count_in(args) * args.slots;
    for (size_t e = warp_first(); e < args.experts_here; e += warp_count()) {
        unsigned before = 0, own = 0, all = 0;
        for (size_t i = lane(); i < slots; i += LANES) {
            before += args.here[i] >= 0 && args.here[i] < (int32_t)e;
            own += args.here[i] == (int32_t)e;
            all += args.here[i] >= 0;
        }
        unsigned next = warp_sum(before);
        bool fits = warp_sum(all) <= args.capacity;
        own = warp_sum(own);
        for (size_t i = 0; i < slots; i += LANES) {
            size_t at = i + lane();
            int32_t one = at < slots ? args.here[at] : -1;
            unsigned mine = __ballot_sync(ALL_LANES, one == (int32_t)e);
            if (one == (int32_t)e) {
                unsigned below = mine & ((1U << lane()) - 1);
                args.places[at] =
                    fits ? (int32_t)(next + (unsigned)__popc(below)) : -1;
            } else if (e == 0 && at < slots && one < 0) {
                args.places[at] = -1;
            }
            next += (unsigned)__popc(mine);
        }
        if (lane() == 0) {
            args.expert_rows[e] = fits ? (int32_t)own : 0;
            if (!fits) {
                atomicOr(args.trouble, 1);
            }
        }
    }
}

template <class Element>
static __device__ inline void rows_expand(const wefti_rows_args &args)
{
    typedef typename Element::memory memory;
    size_t blocks = (args.hidden + QUANTUM - 1) / QUANTUM;
    for (size_t i = warp_first(); i < count_in(args) * args.slots;
         i += warp_count()) {
        if (args.places[i] < 0) {
            continue;
        }
        const unsigned char *row =
            row_in(args, i / args.slots) + args.header_bytes;
        const float *scales = reinterpret_cast<const float *>(row);
        memory *to = static_cast<memory *>(args.to) +
                     (size_t)args.places[i] * args.hidden;
        for (size_t k = lane(); k < args.hidden; k += LANES) {
            to[k] = args.quantised
                        ? Element::narrow(element_f8e4m3::widen(
                                              row[blocks * sizeof(float) + k]) *
                                          scales[k / QUANTUM])
                        : reinterpret_cast<const memory *>(row)[k];
        }
    }
}

/* A token's dout for its rows here; what y was there gives products first: dy
 * may be y. */
template <class Element>
static __device__ inline void rows_part(const wefti_rows_args &args)
{
    typedef typename Element::memory memory;
    for (size_t i = warp_first(); i < count_in(args) * args.slots;
         i += warp_count()) {
        const memory *dout =
            reinterpret_cast<const memory *>(row_in(args, i / args.slots));
        size_t place = (size_t)args.places[i] * args.hidden;
        bool here = args.places[i] >= 0;
        const memory *y = static_cast<const memory *>(args.other) + place;
        memory *dy = static_cast<memory *>(args.to) + place;
        float sum = 0;
        for (size_t k = lane(); here && args.other && k < args.hidden;
             k += LANES) {
            sum += Element::widen(y[k]) * Element::widen(dout[k]);
        }
        for (unsigned step = LANES / 2; step != 0; step /= 2) {
            sum += __shfl_xor_sync(ALL_LANES, sum, step);
        }
        if (lane() == 0) {
            args.products[i] = sum;
        }
        for (size_t k = lane(); here && k < args.hidden; k += LANES) {
            dy[k] =
                Element::narrow(Element::widen(dout[k]) * args.row_weights[i]);
        }
    }
}

ROWS_TYPES(ROWS_KERNEL, pack)
ROWS_TYPES(ROWS_KERNEL, expand)
ROWS_TYPES(ROWS_KERNEL, part)
