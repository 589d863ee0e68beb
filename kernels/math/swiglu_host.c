/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SwiGLU's gate. The sigmoid is 1 / (1 + 2^y), of y that is 128 at most: there
 * it is below float's least normal number, and 0 as the power is an infinity.
 */
#include "kernels/math/swiglu.h"

#include "kernels/math/level.h"
#include "kernels/math/vec_exp.h"

static inline vec sigmoid(vec x)
{
    vec kept = vec_max(vec_splat(-128), x * LOG2_E), one = vec_splat(1);

    return one / (vec_exp2(-kept) + one);
}

void WEFTI_LEVEL(swiglu_forward)(real *out, const real *gate, const real *up,
                                 size_t rows, size_t width, size_t stride)
{
    for (size_t t = 0; t < rows; t++) {
        const real *g = gate + t * stride, *u = up + t * stride;
        real *o = out + t * width;
        size_t i = 0;

        for (; i + LANES <= width; i += LANES) {
            vec x = vec_load(g + i);

            vec_store(o + i, x * sigmoid(x) * vec_load(u + i));
        }
        if (i < width) {
            vec x = vec_load_part(g + i, width - i);
            vec y = x * sigmoid(x) * vec_load_part(u + i, width - i);

            vec_store_part(o + i, y, width - i);
        }
    }
}

static inline void slope_lanes(vec *dgate, vec *dup, vec dout, vec gate, vec up)
{
    vec y = sigmoid(gate);
    vec dy = dout * y;

    *dup = dy * gate;
    *dgate = dy * up * (gate - gate * y + vec_splat(1));
}

void WEFTI_LEVEL(swiglu_backward)(real *dgate, real *dup, const real *dout,
                                  const real *gate, const real *up, size_t rows,
                                  size_t width, size_t stride)
{
    for (size_t t = 0; t < rows; t++) {
        const real *g = gate + t * stride, *u = up + t * stride;
        const real *d = dout + t * width;
        real *dg = dgate + t * stride, *du = dup + t * stride;
        size_t i = 0;
        vec a, b;

        for (; i + LANES <= width; i += LANES) {
            slope_lanes(&a, &b, vec_load(d + i), vec_load(g + i),
                        vec_load(u + i));
            vec_store(dg + i, a);
            vec_store(du + i, b);
        }
        if (i < width) {
            size_t rest = width - i;

            slope_lanes(&a, &b, vec_load_part(d + i, rest),
                        vec_load_part(g + i, rest), vec_load_part(u + i, rest));
            vec_store_part(dg + i, a, rest);
            vec_store_part(du + i, b, rest);
        }
    }
}
