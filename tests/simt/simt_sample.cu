/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/simt/simt_sample.cu - kernels that test the emulation itself: right
 * ones, and the same with one mistake (named wrong_...), which must be found.
 * A long test compiles them by nvcc too: this is CUDA C, and no other.
 */
#include "kernels/wire/dynamic_shared.cuh"

enum { BLOCK = 128 };

/* out[i] = in[BLOCK - 1 - i] of each block, through static shared memory. */
extern "C" __global__ void sample_turn(const unsigned *in, unsigned *out)
{
    __shared__ unsigned tile[BLOCK];
    unsigned at = blockIdx.x * BLOCK;
    tile[threadIdx.x] = in[at + threadIdx.x];
    __syncthreads();
    out[at + threadIdx.x] = tile[BLOCK - 1 - threadIdx.x];
}

extern "C" __global__ void wrong_turn_without_barrier(const unsigned *in,
                                                      unsigned *out)
{
    __shared__ unsigned tile[BLOCK];
    unsigned at = blockIdx.x * BLOCK;
    tile[threadIdx.x] = in[at + threadIdx.x];
    out[at + threadIdx.x] = tile[BLOCK - 1 - threadIdx.x];
}

/* Sums in dynamic shared memory, two barriers a step; out[block] = sum. */
extern "C" __global__ void sample_sum(const unsigned *in, unsigned *out)
{
    WEFTI_DYNAMIC_SHARED(unsigned, part);
    unsigned i = threadIdx.x;
    part[i] = in[blockIdx.x * blockDim.x + i];
    __syncthreads();
    for (unsigned step = blockDim.x / 2; step != 0; step /= 2) {
        unsigned other = i < step ? part[i + step] : 0;
        __syncthreads();
        part[i] += other;
        __syncthreads();
    }
    if (i == 0) {
        out[blockIdx.x] = part[0];
    }
}

/* One past the end: static shared, dynamic shared, global, as `where` says. */
extern "C" __global__ void wrong_bounds(unsigned *out, int where)
{
    __shared__ unsigned fixed[BLOCK];
    WEFTI_DYNAMIC_SHARED(unsigned, part);
    unsigned i = threadIdx.x, *first = fixed;
    first[i + (where == 1)] = i;
    part[i + (where == 2)] = i;
    out[i + (where == 3)] = fixed[i] + part[i];
}

/* Shuffles, votes and an atomic: each warp's sum of in, added to out[0]. */
extern "C" __global__ void sample_warp(const unsigned *in, unsigned *out)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned lane = threadIdx.x % warpSize;
    unsigned sum = in[i];
    for (unsigned step = 16; step != 0; step /= 2) {
        sum += __shfl_down_sync(0xffffffffU, sum, step);
    }
    sum = __shfl_sync(0xffffffffU, sum, 0);
    unsigned odd = __ballot_sync(0xffffffffU, lane % 2);
    if (lane == 0) {
        atomicAdd(&out[0], sum);
        atomicMax(&out[1], sum);
        atomicAdd(&out[2], odd == 0xaaaaaaaaU ? 1U : 0U);
    }
    unsigned up = __shfl_up_sync(0xffffffffU, lane, 3, 8);
    unsigned pair = __shfl_xor_sync(0xffffffffU, lane, 1);
    bool right = up == (lane % 8 < 3 ? lane : lane - 3) && pair == (lane ^ 1);
    if (__all_sync(0xffffffffU, right) && !__any_sync(0xffffffffU, !right)) {
        atomicAdd(&out[3], 1U);
    }
    int count = __syncthreads_count(threadIdx.x < 5);
    if (count == 5 && __syncthreads_or(threadIdx.x == 7) &&
        !__syncthreads_and(threadIdx.x == 7)) {
        atomicAdd(&out[4], 1U);
    }
    __syncwarp();
}

/* Lane 31 has ended when the others name it. */
extern "C" __global__ void wrong_ended_lane(unsigned *out)
{
    if (threadIdx.x % warpSize == 31) {
        return;
    }
    out[threadIdx.x] = __shfl_sync(0xffffffffU, threadIdx.x, 0);
}

/* Half of the warp names all of it, the other half waits elsewhere. */
extern "C" __global__ void wrong_absent_lanes(unsigned *out)
{
    if (threadIdx.x % warpSize < 16) {
        out[threadIdx.x] = __ballot_sync(0xffffffffU, 1);
    }
    __syncthreads();
}

extern "C" __global__ void wrong_mask(unsigned *out)
{
    unsigned mask = threadIdx.x % warpSize < 16 ? 0xffffffffU : 0xffff0000U;
    out[threadIdx.x] = __shfl_sync(mask, threadIdx.x, 0);
}

/* Both halves name lane 0, of masks that differ. */
extern "C" __global__ void wrong_masks(unsigned *out)
{
    unsigned mask = threadIdx.x % warpSize < 16 ? 0xffffffffU : 0xffff0001U;
    out[threadIdx.x] = __shfl_sync(mask, threadIdx.x, 0);
}

/* Both halves of the warp name all of it, in a vote and in a shuffle. */
extern "C" __global__ void wrong_meeting(unsigned *out)
{
    if (threadIdx.x % warpSize < 16) {
        out[threadIdx.x] = __ballot_sync(0xffffffffU, 1);
    } else {
        out[threadIdx.x] = __shfl_sync(0xffffffffU, threadIdx.x, 0);
    }
}

extern "C" __global__ void wrong_own_lane(unsigned *out)
{
    out[threadIdx.x] = __shfl_sync(0x1U, threadIdx.x, 0);
}

/* Two halves of a block, at two barriers. */
extern "C" __global__ void wrong_two_barriers(unsigned *out)
{
    if (threadIdx.x < BLOCK / 2) {
        out[threadIdx.x] = 1;
        __syncthreads();
    } else {
        __syncthreads();
    }
}

/* Reads shared memory that nothing has written. */
extern "C" __global__ void wrong_unwritten(unsigned *out)
{
    __shared__ unsigned fixed[BLOCK];
    WEFTI_DYNAMIC_SHARED(unsigned, part);
    out[threadIdx.x] = fixed[threadIdx.x] & part[threadIdx.x];
    fixed[threadIdx.x] = 0;
    part[threadIdx.x] = 0;
}

/* Adds without an atomic, which loses all but the last where all have read. */
extern "C" __global__ void wrong_plain_add(unsigned *out)
{
    unsigned seen = out[0];
    __syncwarp();
    out[0] = seen + 1;
}

/* Where each thread is, in three dimensions. */
extern "C" __global__ void sample_where(unsigned *out)
{
    unsigned block =
        blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned thread =
        threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    atomicAdd(&out[block * threads + thread], 1 + block);
}
