/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/wire_rows.cuh - rows of tokens on their way to experts over one
 * hop, and back (launch.h: wefti_rows_args): where each lies. A row's place
 * follows from counts alone, so that nobody waits for anybody.
 *
 *   wire_rows.cu   route, pack | arrive, unpack, order, expand     dispatch
 *                  pack | part                    its gradient's way there
 *   wire_sums.cu   reduce | finish                            the way back
 */
#ifndef KERNELS_WIRE_WIRE_ROWS_CUH
#define KERNELS_WIRE_WIRE_ROWS_CUH

#include "kernels/wire/element.cuh"
#include "kernels/wire/launch.h"
#include "kernels/wire/run.cuh"

enum { LANES = 32 };

#define ALL_LANES 0xffffffffU

/* More than there is room for: the operation fails. */
#define GONE_WRONG (SIZE_MAX - 1)

static __device__ inline unsigned lane()
{
    return threadIdx.x % LANES;
}

static __device__ inline size_t warp_first()
{
    return thread_first() / LANES;
}

static __device__ inline size_t warp_count()
{
    return thread_count() / LANES;
}

/* The rank of an expert; -1: there is none of that number. */
static __device__ inline int owner_of(const wefti_rows_args &args,
                                      int32_t expert)
{
    return expert < 0 || (size_t)expert >= args.experts
               ? -1
               : (int)((size_t)expert / args.experts_here);
}

/* The row of slot i among those for its rank. */
static __device__ inline unsigned char *row_out(const wefti_rows_args &args,
                                                size_t i)
{
    int owner = owner_of(args, args.kept_experts[i]);
    return static_cast<unsigned char *>(args.out) + args.out_begins[owner] +
           (size_t)args.sent[i] * args.row_bytes;
}

/* Whether slot i is the token's first for its rank. */
static __device__ inline bool leads(const wefti_rows_args &args, size_t i)
{
    int owner = owner_of(args, args.kept_experts[i]);
    bool first = owner >= 0;
    for (size_t slot = i / args.slots * args.slots; slot < i; slot++) {
        first = first && owner_of(args, args.kept_experts[slot]) != owner;
    }
    return first;
}

/* Row number n among all that have come. */
static __device__ inline unsigned char *row_in(const wefti_rows_args &args,
                                               size_t n)
{
    size_t rank = 0;
    while (args.firsts[rank + 1] <= n) {
        rank++;
    }
    return static_cast<unsigned char *>(args.in) + args.in_begins[rank] +
           (n - args.firsts[rank]) * args.row_bytes;
}

static __device__ inline size_t count_in(const wefti_rows_args &args)
{
    return args.firsts[args.nranks];
}

#define ROWS_KERNEL(verb, type)                                                \
    extern "C" __global__ void __launch_bounds__(WEFTI_LAUNCH_THREADS, 1)      \
        wefti_rows_##verb##_##type(                                            \
            const __grid_constant__ wefti_rows_args args)                      \
    {                                                                          \
        rows_##verb<element_##type>(args);                                     \
    }

/* X(verb, type) for each type of rows. */
#define ROWS_TYPES(X, verb) X(verb, f32) X(verb, bf16) X(verb, f16)

#endif
