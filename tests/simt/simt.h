/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/simt/simt.h - CUDA's names for the emulated machine. The build includes
 * it before each .cu file that it compiles as C++ (-include), so that nothing
 * in the file itself knows.
 *
 * What is not here does not compile: inline PTX, tensor cores, clusters,
 * thread fences and whatever no kernel has needed so far.
 *
 * Vector types and small floats are CUDA's own where its headers are installed.
 */
#ifndef TESTS_SIMT_SIMT_H
#define TESTS_SIMT_SIMT_H

#include "tests/simt/simt_block.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __has_include(<cuda_fp8.h>) && !defined(WEFTI_WITHOUT_CUDA_HEADERS)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __grid_constant__
#undef __launch_bounds__
#undef __forceinline__
#else
struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
#endif

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline

/* One copy, since blocks run one after another; filled anew for each. */
#define __shared__ static __attribute__((section("simt_shared")))
#define WEFTI_DYNAMIC_SHARED(type, name)                                       \
    type *name = static_cast<type *>(simt_dynamic_shared())

static inline uint3 simt_index(const unsigned *from)
{
    uint3 index;
    index.x = from[0];
    index.y = from[1];
    index.z = from[2];
    return index;
}

#define threadIdx (simt_index(simt_here()->thread))
#define blockIdx  (simt_index(simt_here()->block))
#define blockDim  (simt_index(simt_here()->block_size))
#define gridDim   (simt_index(simt_here()->grid_size))

enum { warpSize = 32 };

/* Barriers. */
#define SIMT_PLACE(call)                                                       \
    simt_place                                                                 \
    {                                                                          \
        __FILE__, __LINE__, call                                               \
    }
#define __syncthreads()                                                        \
    static_cast<void>(simt_barrier(SIMT_PLACE("__syncthreads"), false))
#define __syncthreads_count(p)                                                 \
    static_cast<int>(simt_barrier(SIMT_PLACE("__syncthreads_count"), p))
#define __syncthreads_or(p)                                                    \
    (simt_barrier(SIMT_PLACE("__syncthreads_or"), p) != 0)
#define __syncthreads_and(p)                                                   \
    (simt_barrier(SIMT_PLACE("__syncthreads_and"), !(p)) == 0)

/* Votes. */
#define SIMT_VOTE(call, mask, p)                                               \
    (simt_exchange(SIMT_PLACE(call), mask, 0, 0, p).ballots)
#define __syncwarp                                                             \
    simt_warp_barrier                                                          \
    {                                                                          \
        SIMT_PLACE("__syncwarp")                                               \
    }
#define __ballot_sync(mask, p) SIMT_VOTE("__ballot_sync", mask, (p) != 0)
#define __any_sync(mask, p)    (SIMT_VOTE("__any_sync", mask, (p) != 0) != 0)
#define __all_sync(mask, p)    (SIMT_VOTE("__all_sync", mask, (p) == 0) == 0)

struct simt_warp_barrier {
    simt_place place;
    void operator()(unsigned mask = 0xffffffffU) const
    {
        simt_exchange(place, mask, 0, 0, false);
    }
};

/* Shuffles: within sections of `width` lanes; a lane that is asked for one
 * outside its section gets its own value. */
enum simt_shuffle_kind { SIMT_INDEX, SIMT_UP, SIMT_DOWN, SIMT_XOR };

static inline unsigned simt_source(simt_shuffle_kind kind, unsigned by,
                                   unsigned width)
{
    unsigned lane = simt_lane();
    unsigned begin = lane & ~(width - 1), within = lane & (width - 1);
    unsigned target = kind == SIMT_INDEX  ? begin + (by & (width - 1))
                      : kind == SIMT_UP   ? (within < by ? lane : lane - by)
                      : kind == SIMT_DOWN ? lane + by
                                          : lane ^ by;
    return target >= begin + width ? lane : target;
}

template <class Value>
Value simt_shuffle(simt_place place, simt_shuffle_kind kind, unsigned mask,
                   Value value, unsigned by, unsigned width = 32)
{
    static_assert(sizeof(Value) == 4 || sizeof(Value) == 8, "32 or 64 bits");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(value));
    bits = simt_exchange(place, mask, bits, simt_source(kind, by, width), false)
               .value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

#define __shfl_sync(...)                                                       \
    simt_shuffle(SIMT_PLACE("__shfl_sync"), SIMT_INDEX, __VA_ARGS__)
#define __shfl_up_sync(...)                                                    \
    simt_shuffle(SIMT_PLACE("__shfl_up_sync"), SIMT_UP, __VA_ARGS__)
#define __shfl_down_sync(...)                                                  \
    simt_shuffle(SIMT_PLACE("__shfl_down_sync"), SIMT_DOWN, __VA_ARGS__)
#define __shfl_xor_sync(...)                                                   \
    simt_shuffle(SIMT_PLACE("__shfl_xor_sync"), SIMT_XOR, __VA_ARGS__)

/* The place of the lowest bit that is set, counted from 1; 0: none is. */
static inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}
static inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}

/* Atomics: relaxed, as CUDA's; each returns what was there. */
template <class Value, class Change> Value simt_atomic(Value *at, Change change)
{
    simt_maybe_yield();
    Value old, next;
    __atomic_load(at, &old, __ATOMIC_RELAXED);
    do {
        next = change(old);
    } while (!__atomic_compare_exchange(at, &old, &next, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}

#define SIMT_ATOMIC(name, expression)                                          \
    template <class Value> Value name(Value *at, Value value)                  \
    {                                                                          \
        return simt_atomic(at,                                                 \
                           [&](Value old) -> Value { return expression; });    \
    }
SIMT_ATOMIC(atomicAdd, old + value)
SIMT_ATOMIC(atomicSub, old - value)
SIMT_ATOMIC(atomicMax, old > value ? old : value)
SIMT_ATOMIC(atomicMin, old < value ? old : value)
SIMT_ATOMIC(atomicAnd, old &value)
SIMT_ATOMIC(atomicOr, old | value)
SIMT_ATOMIC(atomicXor, old ^ value)
SIMT_ATOMIC(atomicExch, value)

template <class Value> Value atomicCAS(Value *at, Value expected, Value value)
{
    return simt_atomic(
        at, [&](Value old) -> Value { return old == expected ? value : old; });
}

#endif
