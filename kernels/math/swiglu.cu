/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SwiGLU's gate. The sigmoid uses exp of minus the magnitude, which cannot
 * overflow.
 */
#include "kernels/math/math_real.cuh"

template <class Wide> static __device__ inline Wide sigmoid(Wide x)
{
    Wide e = real_exp(x < 0 ? x : -x);
    return (x < 0 ? e : 1) / (1 + e);
}

template <class Real>
static __device__ inline void
swiglu_forward(const wefti_math_swiglu_forward &args)
{
    row_pieces pieces(args.rows, args.width);
    pieces.run([&](size_t t, size_t i) {
        size_t at = t * args.stride + i;
        typename Real::wide gate = load<Real>(args.gate, at);
        store<Real>(args.out, t * args.width + i,
                    gate * sigmoid(gate) * load<Real>(args.up, at));
    });
}

template <class Real>
static __device__ inline void
swiglu_backward(const wefti_math_swiglu_backward &args)
{
    typedef typename Real::wide wide;
    row_pieces pieces(args.rows, args.width);
    pieces.run([&](size_t t, size_t i) {
        size_t at = t * args.stride + i;
        wide gate = load<Real>(args.gate, at), up = load<Real>(args.up, at);
        wide y = sigmoid(gate);
        wide dy = load<Real>(args.dout, t * args.width + i) * y;
        store<Real>(args.dup, at, dy * gate);
        store<Real>(args.dgate, at, dy * up * (gate - gate * y + 1));
    });
}

#define SWIGLU_KERNELS(type)                                                   \
    MATH_KERNEL(swiglu_forward, type) MATH_KERNEL(swiglu_backward, type)
REAL_LIST(SWIGLU_KERNELS)
