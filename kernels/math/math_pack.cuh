/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_pack.cuh - some neighbouring elements of an array at once:
 * 16 bytes by one instruction where they lie aligned, else one after the other.
 * Who has which elements is the same for both, and so are the bits of sums.
 */
#ifndef KERNELS_MATH_MATH_PACK_CUH
#define KERNELS_MATH_MATH_PACK_CUH

#include "kernels/math/math_real.cuh"

static const unsigned PACK_BYTES = 16;

static __device__ inline bool is_packed(const void *at)
{
    return reinterpret_cast<uintptr_t>(at) % PACK_BYTES == 0;
}

/* Of one element, of 8 bytes, or of a multiple of 16: aligned to as much. */
template <class Real, unsigned ELEMS>
struct alignas(ELEMS == 1 ? alignof(typename Real::memory)
               : ELEMS * sizeof(typename Real::memory) % PACK_BYTES == 0
                   ? PACK_BYTES
                   : PACK_BYTES / 2) real_pack {
    typedef typename Real::memory memory;
    typedef typename Real::wide wide;
    memory at[ELEMS];

    __device__ inline wide get(unsigned k) const
    {
        return Real::widen(at[k]);
    }

    __device__ inline void set(unsigned k, wide value)
    {
        at[k] = Real::narrow(value);
    }

    /* Elements i and so on of an array; WHOLE: they are aligned and all there,
     * else there are left of them, and zeros. */
    template <bool WHOLE>
    __device__ inline void load(const void *array, size_t i, size_t left)
    {
        const memory *from = static_cast<const memory *>(array) + i;
        if constexpr (WHOLE) {
            *this = *reinterpret_cast<const real_pack *>(from);
        } else {
#pragma unroll
            for (unsigned k = 0; k < ELEMS; k++) {
                at[k] = k < left ? from[k] : memory(0);
            }
        }
    }

    template <bool WHOLE>
    __device__ inline void store(void *array, size_t i, size_t left) const
    {
        memory *to = static_cast<memory *>(array) + i;
        if constexpr (WHOLE) {
            *reinterpret_cast<real_pack *>(to) = *this;
        } else {
#pragma unroll
            for (unsigned k = 0; k < ELEMS; k++) {
                if (k < left) {
                    to[k] = at[k];
                }
            }
        }
    }
};

/* The packs of rows: as many elements as 16 bytes hold. */
template <class Real> struct row_pack {
    static const unsigned ELEMS = PACK_BYTES / sizeof(typename Real::memory);
    typedef real_pack<Real, ELEMS> type;

    /* Whether all packs of rows so far apart are whole. */
    static __device__ inline bool fits(size_t width, size_t stride)
    {
        return width % ELEMS == 0 && stride % ELEMS == 0;
    }
};

/* A row a warp: lane l has packs l, l + 32 and so on. */
template <class Real, bool WHOLE> struct row_packs {
    static const unsigned ELEMS = row_pack<Real>::ELEMS, STEP = WARP * ELEMS;
    typedef typename row_pack<Real>::type pack;

    /* The column of a lane's first pack. */
    static __device__ inline size_t first()
    {
        return warp_lane() * ELEMS;
    }

    /* The pack at column i of the row that begins at element row. */
    static __device__ inline pack load(const void *array, size_t row, size_t i,
                                       size_t width)
    {
        pack loaded;
        loaded.template load<WHOLE>(array, row + i, width - i);
        return loaded;
    }

    /* Those at i, i + STEP and so on at once, as memory is slow but takes many;
     * in place of those behind the row's end the one at i. */
    template <unsigned AHEAD>
    static __device__ inline void load_ahead(pack (&loaded)[AHEAD],
                                             const void *array, size_t row,
                                             size_t i, size_t width)
    {
#pragma unroll
        for (unsigned a = 0; a < AHEAD; a++) {
            size_t at = i + a * STEP;
            loaded[a] = load(array, row, at < width ? at : i, width);
        }
    }

    static __device__ inline void store(const pack &stored, void *array,
                                        size_t row, size_t i, size_t width)
    {
        stored.template store<WHOLE>(array, row + i, width - i);
    }
};

/* whole(i) for each ELEMS elements from i on, single(i) for what is left over;
 * for all where packed is false. */
template <unsigned ELEMS, class Whole, class Single>
static __device__ inline void
each_pack(size_t elems, bool packed, const Whole &whole, const Single &single)
{
    size_t packs = packed ? elems / ELEMS : 0;
    each_elem(packs, [&](size_t n) { whole(n * ELEMS); });
    each_elem(elems - packs * ELEMS,
              [&](size_t n) { single(packs * ELEMS + n); });
}

#endif
