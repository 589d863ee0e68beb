/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rotary embedding: the table in double, the turn in place, a pack of pairs a
 * thread at a time.
 */
#include "kernels/math/math_pack.cuh"

template <class Real>
static __device__ inline void rope_table(const wefti_math_rope_table &args)
{
    size_t half = args.head_size / 2;
    row_pieces pieces(args.tokens, half);
    pieces.run([&](size_t t, size_t i) {
        double position = args.positions ? (double)args.positions[t]
                                         : (double)(args.first + (int64_t)t);
        double angle = position * pow(args.theta, -2.0 * (double)i /
                                                      (double)args.head_size);
        size_t at = t * args.head_size + i;
        store<Real>(args.table, at, (typename Real::wide)cos(angle));
        store<Real>(args.table, at + half, (typename Real::wide)sin(angle));
    });
}

/* Pairs i to i + ELEMS - 1 of the head that begins at element head. */
template <class Real, unsigned ELEMS>
static __device__ inline void rope_pairs(const wefti_math_rope_turn &args,
                                         size_t token, size_t head, size_t i)
{
    typedef typename Real::wide wide;
    size_t half = args.head_size / 2, row = token * args.head_size + i;
    real_pack<typename real_of<wide>::type, ELEMS> cosines, sines;
    real_pack<Real, ELEMS> first, second;
    cosines.template load<true>(args.table, row, ELEMS);
    sines.template load<true>(args.table, row + half, ELEMS);
    first.template load<true>(args.x, head + i, ELEMS);
    second.template load<true>(args.x, head + half + i, ELEMS);
#pragma unroll
    for (unsigned k = 0; k < ELEMS; k++) {
        wide c = cosines.get(k), s = sines.get(k);
        wide a = first.get(k), b = second.get(k);
        s = args.backward ? -s : s;
        first.set(k, a * c - b * s);
        second.set(k, b * c + a * s);
    }
    first.template store<true>(args.x, head + i, ELEMS);
    second.template store<true>(args.x, head + half + i, ELEMS);
}

template <class Real, unsigned ELEMS>
static __device__ inline void rope_turn_by(const wefti_math_rope_turn &args)
{
    unsigned a_head = (unsigned)(args.head_size / 2 / ELEMS);
    unsigned a_row = a_head * (unsigned)args.heads;
    row_pieces pieces(args.tokens, a_row, WARP);
    pieces.run([&](size_t t, size_t n) {
        unsigned h = (unsigned)n / a_head, i = (unsigned)n % a_head * ELEMS;
        rope_pairs<Real, ELEMS>(args, t, t * args.x_stride + h * args.head_size,
                                i);
    });
}

template <class Real>
static __device__ inline void rope_turn(const wefti_math_rope_turn &args)
{
    if (row_pack<Real>::fits(args.head_size / 2, args.x_stride) &&
        is_packed(args.x) && is_packed(args.table)) {
        rope_turn_by<Real, row_pack<Real>::ELEMS>(args);
    } else {
        rope_turn_by<Real, 1>(args);
    }
}

#define ROPE_TABLE_KERNEL(type) MATH_KERNEL(rope_table, type)
#define ROPE_TURN_KERNEL(type)  MATH_KERNEL(rope_turn, type)
REAL_WIDE_LIST(ROPE_TABLE_KERNEL)
REAL_LIST(ROPE_TURN_KERNEL)
