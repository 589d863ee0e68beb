/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Block attention with online softmax.
 */
#include "kernels/math/attention.h"

#include "base/check.h"
#include "kernels/math/level.h"

#include <math.h>

/* How many keys query i sees. */
static size_t visible(const wefti_attention *shape, size_t i)
{
    if (!shape->causal)
        return shape->kv_tokens;

    ptrdiff_t last = (ptrdiff_t)i + shape->causal_offset;

    if (last < 0)
        return 0;
    return (size_t)last < shape->kv_tokens ? (size_t)last + 1
                                           : shape->kv_tokens;
}

static real dot(const real *a, const real *b, size_t elems)
{
    real sum = 0;

    for (size_t d = 0; d < elems; d++)
        sum += a[d] * b[d];
    return sum;
}

/* One query of one head over the keys it sees. */
static void forward_row(real *o, real *lse, const real *q, const real *k,
                        const real *v, const wefti_attention *shape,
                        size_t keys, bool merge)
{
    real top = merge ? *lse : -(real)INFINITY;
    real sum = merge && *lse > -(real)INFINITY ? 1 : 0;

    for (size_t d = 0; !merge && d < shape->head_size; d++)
        o[d] = 0;
    for (size_t j = 0; j < keys; j++) {
        const real *vj = v + j * shape->kv_stride;
        real s =
            shape->scale * dot(q, k + j * shape->kv_stride, shape->head_size);
        real new_top = s > top ? s : top;
        real keep = sum > 0 ? (real)exp((double)(top - new_top)) : 0;
        real p = (real)exp((double)(s - new_top));

        sum = sum * keep + p;
        for (size_t d = 0; d < shape->head_size; d++)
            o[d] = o[d] * keep + p * vj[d];
        top = new_top;
    }
    for (size_t d = 0; sum > 0 && d < shape->head_size; d++)
        o[d] /= sum;
    *lse = sum > 0 ? top + (real)log((double)sum) : -(real)INFINITY;
}

void WEFTI_LEVEL(attention_forward)(real *o, real *lse, const real *q,
                                    const real *k, const real *v,
                                    const wefti_attention *shape, bool merge,
                                    real *scratch)
{
    WEFTI_ASSERT(shape->heads % shape->kv_heads == 0);
    (void)scratch;
    for (size_t i = 0; i < shape->q_tokens; i++)
        for (size_t h = 0; h < shape->heads; h++) {
            size_t g = h / (shape->heads / shape->kv_heads);

            forward_row(o + i * shape->o_stride + h * shape->head_size,
                        lse + i * shape->heads + h,
                        q + i * shape->q_stride + h * shape->head_size,
                        k + g * shape->head_size, v + g * shape->head_size,
                        shape, visible(shape, i), merge);
        }
}

void WEFTI_LEVEL(attention_delta)(real *delta, const real *o, const real *dout,
                                  const wefti_attention *shape)
{
    for (size_t i = 0; i < shape->q_tokens; i++)
        for (size_t h = 0; h < shape->heads; h++) {
            size_t at = i * shape->o_stride + h * shape->head_size;

            delta[i * shape->heads + h] =
                dot(o + at, dout + at, shape->head_size);
        }
}

void WEFTI_LEVEL(attention_backward)(real *dq, real *dk, real *dv,
                                     const real *dout, const real *q,
                                     const real *k, const real *v,
                                     const real *lse, const real *delta,
                                     const wefti_attention *shape,
                                     real *scratch)
{
    size_t size = shape->head_size, group = shape->heads / shape->kv_heads;

    (void)scratch;
    for (size_t i = 0; i < shape->q_tokens; i++)
        for (size_t h = 0; h < shape->heads; h++) {
            size_t qi = i * shape->q_stride + h * size;
            size_t oi = i * shape->o_stride + h * size;
            real l = lse[i * shape->heads + h];
            size_t keys = l > -(real)INFINITY ? visible(shape, i) : 0;

            for (size_t j = 0; j < keys; j++) {
                size_t kj = j * shape->kv_stride + h / group * size;
                real s = shape->scale * dot(q + qi, k + kj, size);
                real p = (real)exp((double)(s - l));
                real dp = dot(dout + oi, v + kj, size);
                real ds = p * (dp - delta[i * shape->heads + h]) * shape->scale;

                for (size_t d = 0; d < size; d++) {
                    dv[kj + d] += p * dout[oi + d];
                    dq[qi + d] += ds * k[kj + d];
                    dk[kj + d] += ds * q[qi + d];
                }
            }
        }
}
