/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rotary embedding: the table in double, the turn in place; a warp turns the
 * pairs of one head of one token at a time.
 */
#include "kernels/math/math_real.cuh"

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

template <class Real>
static __device__ inline void rope_turn(const wefti_math_rope_turn &args)
{
    typedef typename Real::wide wide;
    const wide *table = static_cast<const wide *>(args.table);
    size_t half = args.head_size / 2, count = args.tokens * args.heads;
    for (size_t n = warp_first(); n < count; n += warp_count()) {
        size_t t = n / args.heads, h = n % args.heads;
        size_t head = t * args.x_stride + h * args.head_size;
        for (size_t i = warp_lane(); i < half; i += WARP) {
            wide c = table[t * args.head_size + i];
            wide s = table[t * args.head_size + half + i];
            wide a = load<Real>(args.x, head + i);
            wide b = load<Real>(args.x, head + half + i);
            s = args.backward ? -s : s;
            store<Real>(args.x, head + i, a * c - b * s);
            store<Real>(args.x, head + half + i, b * c + a * s);
        }
    }
}

#define ROPE_TABLE_KERNEL(type) MATH_KERNEL(rope_table, type)
#define ROPE_TURN_KERNEL(type)  MATH_KERNEL(rope_turn, type)
REAL_WIDE_LIST(ROPE_TABLE_KERNEL)
REAL_LIST(ROPE_TURN_KERNEL)
