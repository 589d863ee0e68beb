/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/run.cuh - how a launch of any shape walks over an array.
 *
 *     elements:  0 .. head        head .. tail, in units      tail .. elems
 *                one a thread     UNIT of them a thread       one a thread
 *
 * A unit is what one access moves, 16 bytes where the element allows. Arrays
 * whose addresses differ modulo 16 have no units; those that are not aligned
 * to the element are read and written byte by byte.
 */
#ifndef KERNELS_WIRE_RUN_CUH
#define KERNELS_WIRE_RUN_CUH

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* 16 bytes, but no more than 8 elements, which must fit into registers. */
template <class Memory> struct alignas(sizeof(Memory) == 1 ? 8 : 16) unit {
    static const unsigned ELEMS = sizeof(Memory) == 1 ? 8 : 16 / sizeof(Memory);
    Memory at[ELEMS];
};

/* What the addresses of a kernel's arrays have in common. */
struct alignment {
    uintptr_t first; /* address of one of them */
    uintptr_t apart; /* bits in which others differ from it */
};

static __device__ inline void align_with(alignment *all, const void *address)
{
    all->apart |= all->first ^ (uintptr_t)address;
}

/* Elements before the first unit; all of them where there can be none. */
template <class Memory>
static __device__ inline size_t head_elems(const alignment *all, size_t elems)
{
    const uintptr_t unit_bytes = sizeof(unit<Memory>);
    if (all->apart % unit_bytes != 0 || all->first % sizeof(Memory) != 0) {
        return elems;
    }
    size_t head = (0 - all->first) % unit_bytes / sizeof(Memory);
    return head < elems ? head : elems;
}

template <class Memory>
static __device__ inline bool is_aligned(const alignment *all)
{
    return (all->first | all->apart) % sizeof(Memory) == 0;
}

/* Element i of an array of any alignment, and the other way. */
template <class Memory>
static __device__ inline Memory load_elem(const void *array, size_t i,
                                          bool aligned)
{
    if (aligned) {
        return static_cast<const Memory *>(array)[i];
    }
    const unsigned char *at =
        static_cast<const unsigned char *>(array) + i * sizeof(Memory);
    uint64_t code = 0;
    for (unsigned byte = 0; byte < sizeof(Memory); byte++) {
        code |= (uint64_t)at[byte] << 8 * byte;
    }
    return (Memory)code;
}

template <class Memory>
static __device__ inline void store_elem(void *array, size_t i, Memory value,
                                         bool aligned)
{
    if (aligned) {
        static_cast<Memory *>(array)[i] = value;
        return;
    }
    unsigned char *at =
        static_cast<unsigned char *>(array) + i * sizeof(Memory);
    for (unsigned byte = 0; byte < sizeof(Memory); byte++) {
        at[byte] = (unsigned char)((uint64_t)value >> 8 * byte);
    }
}

template <class Memory>
static __device__ inline unit<Memory> load_unit(const void *array, size_t i)
{
    return *reinterpret_cast<const unit<Memory> *>(
        static_cast<const Memory *>(array) + i);
}

template <class Memory>
static __device__ inline void store_unit(void *array, size_t i,
                                         const unit<Memory> &value)
{
    *reinterpret_cast<unit<Memory> *>(static_cast<Memory *>(array) + i) = value;
}

/* This thread among those of the launch, and how many these are. */
static __device__ inline size_t thread_first()
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ inline size_t thread_count()
{
    return (size_t)gridDim.x * blockDim.x;
}

/*
 * Calls work.one(i, aligned) for single elements and work.many(i) for units
 * that begin at element i, each once over all threads of the launch.
 */
template <class Memory, class Work>
static __device__ inline void run_over(const Work &work, const alignment *all,
                                       size_t elems)
{
    const size_t unit_elems = unit<Memory>::ELEMS;
    size_t head = head_elems<Memory>(all, elems);
    size_t units = (elems - head) / unit_elems;
    size_t tail = head + units * unit_elems;
    size_t singles = head + (elems - tail);
    bool aligned = is_aligned<Memory>(all);
    for (size_t i = thread_first(); i < units; i += thread_count()) {
        work.many(head + i * unit_elems);
    }
    for (size_t i = thread_first(); i < singles; i += thread_count()) {
        work.one(i < head ? i : i - head + tail, aligned);
    }
}

#endif
