/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plain loops over flat ranges, and over rows.
 */
#include "kernels/math/math_real.cuh"

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
    each_elem(args.elems, [&](size_t i) {
        store<Real>(args.dst, i,
                    (typename Real::wide)args.factor * load<Real>(args.src, i));
    });
}

template <class Real>
static __device__ inline void add(const wefti_math_add &args)
{
    each_elem(args.elems, [&](size_t i) {
        store<Real>(args.dst, i, load<Real>(args.a, i) + load<Real>(args.b, i));
    });
}

template <class Real>
static __device__ inline void copy_rows(const wefti_math_copy_rows &args)
{
    row_pieces pieces(args.rows, args.width);
    pieces.run([&](size_t row, size_t i) {
        typename Real::wide value =
            load<Real>(args.src, row * args.src_stride + i);
        size_t at = row * args.dst_stride + i;
        store<Real>(args.dst, at,
                    args.add ? load<Real>(args.dst, at) + value : value);
    });
}

#define ELEMENTWISE_KERNELS(type)                                              \
    MATH_KERNEL(fill, type)                                                    \
    MATH_KERNEL(scale, type)                                                   \
    MATH_KERNEL(add, type)                                                     \
    MATH_KERNEL(copy_rows, type)
REAL_LIST(ELEMENTWISE_KERNELS)
