/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SwiGLU's gate. The sigmoid uses exp of minus the magnitude, which cannot
 * overflow.
 */
#include "kernels/math/math_pack.cuh"

template <class Wide> static __device__ inline Wide sigmoid(Wide x)
{
    Wide e = real_exp(x < 0 ? x : -x);
    return (x < 0 ? e : 1) / (1 + e);
}

/* By columns that lie side by side: packs, or one. */
template <class Real, unsigned ELEMS>
static __device__ inline void
swiglu_forward_by(const wefti_math_swiglu_forward &args)
{
    row_pieces pieces(args.rows, args.width);
    pieces.run_by<ELEMS>([&](size_t t, size_t i) {
        real_pack<Real, ELEMS> gate, up;
        gate.template load<true>(args.gate, t * args.stride + i, ELEMS);
        up.template load<true>(args.up, t * args.stride + i, ELEMS);
#pragma unroll
        for (unsigned k = 0; k < ELEMS; k++) {
            typename Real::wide x = gate.get(k);
            gate.set(k, x * sigmoid(x) * up.get(k));
        }
        gate.template store<true>(args.out, t * args.width + i, ELEMS);
    });
}

template <class Real>
static __device__ inline void
swiglu_forward(const wefti_math_swiglu_forward &args)
{
    if (row_pack<Real>::fits(args.width, args.stride) && is_packed(args.out) &&
        is_packed(args.gate) && is_packed(args.up)) {
        swiglu_forward_by<Real, row_pack<Real>::ELEMS>(args);
    } else {
        swiglu_forward_by<Real, 1>(args);
    }
}

template <class Real, unsigned ELEMS>
static __device__ inline void
swiglu_backward_by(const wefti_math_swiglu_backward &args)
{
    typedef typename Real::wide wide;
    row_pieces pieces(args.rows, args.width);
    pieces.run_by<ELEMS>([&](size_t t, size_t i) {
        real_pack<Real, ELEMS> gates, ups, slopes;
        gates.template load<true>(args.gate, t * args.stride + i, ELEMS);
        ups.template load<true>(args.up, t * args.stride + i, ELEMS);
        slopes.template load<true>(args.dout, t * args.width + i, ELEMS);
#pragma unroll
        for (unsigned k = 0; k < ELEMS; k++) {
            wide gate = gates.get(k), y = sigmoid(gate);
            wide dy = slopes.get(k) * y;
            gates.set(k, dy * ups.get(k) * (gate - gate * y + 1));
            ups.set(k, dy * gate);
        }
        ups.template store<true>(args.dup, t * args.stride + i, ELEMS);
        gates.template store<true>(args.dgate, t * args.stride + i, ELEMS);
    });
}

template <class Real>
static __device__ inline void
swiglu_backward(const wefti_math_swiglu_backward &args)
{
    if (row_pack<Real>::fits(args.width, args.stride) &&
        is_packed(args.dgate) && is_packed(args.dup) && is_packed(args.dout) &&
        is_packed(args.gate) && is_packed(args.up)) {
        swiglu_backward_by<Real, row_pack<Real>::ELEMS>(args);
    } else {
        swiglu_backward_by<Real, 1>(args);
    }
}

#define SWIGLU_KERNELS(type)                                                   \
    MATH_KERNEL(swiglu_forward, type) MATH_KERNEL(swiglu_backward, type)
REAL_LIST(SWIGLU_KERNELS)
