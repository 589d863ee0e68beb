/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plain loops over flat ranges, and over rows.
 */
#include "kernels/math/math_pack.cuh"

/* Packs that a thread has under way, as memory is slow but takes many. */
static const unsigned AHEAD = 2;

/* dst[i] = map(from[0][i], from[1][i]), which may be the same arrays. */
template <class Real, unsigned INPUTS, class Map>
static __device__ inline void map_packs(void *dst,
                                        const void *const (&from)[INPUTS],
                                        size_t packs, const Map &map)
{
    typedef typename row_pack<Real>::type pack;
    const unsigned elems = row_pack<Real>::ELEMS;
    size_t threads = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < packs; i += threads * AHEAD) {
        pack in[AHEAD][INPUTS], out;
#pragma unroll
        for (unsigned n = 0; n < AHEAD * INPUTS; n++) {
            size_t at = i + n / INPUTS * threads;
            in[n / INPUTS][n % INPUTS].template load<true>(
                from[n % INPUTS], (at < packs ? at : i) * elems, elems);
        }
#pragma unroll
        for (unsigned a = 0; a < AHEAD; a++) {
            size_t at = i + a * threads;
#pragma unroll
            for (unsigned k = 0; k < elems; k++) {
                out.set(k, map(in[a][0].get(k), in[a][INPUTS - 1].get(k)));
            }
            if (at < packs) {
                out.template store<true>(dst, at * elems, elems);
            }
        }
    }
}

template <class Real, unsigned INPUTS, class Map>
static __device__ inline void map_flat(void *dst,
                                       const void *const (&from)[INPUTS],
                                       size_t elems, const Map &map)
{
    bool packed =
        is_packed(dst) && is_packed(from[0]) && is_packed(from[INPUTS - 1]);
    size_t packs = packed ? elems / row_pack<Real>::ELEMS : 0;
    size_t done = packs * row_pack<Real>::ELEMS;
    map_packs<Real>(dst, from, packs, map);
    each_elem(elems - done, [&](size_t i) {
        store<Real>(dst, done + i,
                    map(load<Real>(from[0], done + i),
                        load<Real>(from[INPUTS - 1], done + i)));
    });
}

template <class Real>
static __device__ inline void fill(const wefti_math_fill &args)
{
    each_elem(args.elems, [&](size_t i) {
        store<Real>(args.dst, i, (typename Real::wide)args.value);
    });
}

template <class Real>
static __device__ inline void scale(const wefti_math_scale &args)
{
    typedef typename Real::wide wide;
    const void *const from[] = {args.src};
    const wide factor = (wide)args.factor;
    map_flat<Real>(args.dst, from, args.elems,
                   [&](wide x, wide) { return factor * x; });
}

template <class Real>
static __device__ inline void add(const wefti_math_add &args)
{
    typedef typename Real::wide wide;
    const void *const from[] = {args.a, args.b};
    map_flat<Real>(args.dst, from, args.elems,
                   [](wide a, wide b) { return a + b; });
}

template <class Real, class From>
static __device__ inline void copy_rows(const wefti_math_copy_rows &args)
{
    row_pieces pieces(args.rows, args.width);
    pieces.run([&](size_t row, size_t i) {
        typename Real::wide value =
            load<From>(args.src, row * args.src_stride + i);
        size_t at = row * args.dst_stride + i;
        store<Real>(args.dst, at,
                    args.add ? load<Real>(args.dst, at) + value : value);
    });
}

#define ELEMENTWISE_KERNELS(type)                                              \
    MATH_KERNEL(fill, type)                                                    \
    MATH_KERNEL(scale, type)                                                   \
    MATH_KERNEL(add, type)
REAL_LIST(ELEMENTWISE_KERNELS)

#define COPY_ROWS_KERNEL(name, type, from)                                     \
    extern "C" __global__ void __launch_bounds__(WEFTI_MATH_THREADS, 1)        \
        wefti_math_copy_rows_##name(                                           \
            const __grid_constant__ wefti_math_copy_rows args)                 \
    {                                                                          \
        copy_rows<real_##type, real_##from>(args);                             \
    }
COPY_ROWS_KERNEL(f32, f32, f32)
COPY_ROWS_KERNEL(f64, f64, f64)
COPY_ROWS_KERNEL(bf16, bf16, bf16)
COPY_ROWS_KERNEL(bf16_f32, bf16, f32)
