/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cross-entropy and its gradient, one token a warp, in two passes over the
 * logits: the greatest and the sum of exponentials below it, kept up while the
 * greatest grows; then the gradient, which may take the logits' place.
 */
#include "kernels/math/math_real.cuh"

/* The sum of exp(x - top) over what has been seen. */
template <class Wide> struct softmax_sum {
    Wide top, sum;

    /* A NaN does not become the greatest; the sum is NaN then. */
    __device__ inline void see(Wide x)
    {
        if (x > top) {
            sum = sum * real_exp(top - x) + 1;
            top = x;
        } else if (x != -(Wide)INFINITY) {
            sum += real_exp(x - top);
        }
    }

    __device__ inline void join(Wide other_top, Wide other_sum)
    {
        Wide above = top > other_top ? top : other_top;
        if (above != -(Wide)INFINITY) {
            sum = sum * real_exp(top - above) +
                  other_sum * real_exp(other_top - above);
            top = above;
        } else {
            sum += other_sum; /* zeros, and NaNs */
        }
    }
};

/* Of a row, over all lanes. */
template <class Real>
static __device__ inline softmax_sum<typename Real::wide>
row_softmax(const void *logits, size_t row, size_t vocab)
{
    typedef typename Real::wide wide;
    softmax_sum<wide> seen = {-(wide)INFINITY, 0};
    for (size_t j = warp_lane(); j < vocab; j += WARP) {
        seen.see(load<Real>(logits, row + j));
    }
#pragma unroll
    for (unsigned step = WARP / 2; step != 0; step /= 2) {
        wide top = __shfl_xor_sync(WARP_WHOLE, seen.top, step);
        wide sum = __shfl_xor_sync(WARP_WHOLE, seen.sum, step);
        seen.join(top, sum);
    }
    return seen;
}

template <class Real>
static __device__ inline void
cross_entropy(const wefti_math_cross_entropy &args)
{
    typedef typename Real::wide wide;
    for (size_t t = warp_first(); t < args.tokens; t += warp_count()) {
        size_t row = t * args.vocab;
        bool counts = args.targets[t] >= 0;
        size_t target = counts ? (size_t)args.targets[t] : 0;
        wide loss = 0, top = 0, factor = 0;
        if (counts) {
            softmax_sum<wide> seen =
                row_softmax<Real>(args.logits, row, args.vocab);
            top = seen.top;
            factor = (wide)args.scale / seen.sum;
            loss = top - load<Real>(args.logits, row + target) +
                   real_log(seen.sum);
        }
        if (warp_lane() == 0) {
            static_cast<wide *>(args.loss)[t] = loss;
        }
        if (!args.dlogits) {
            continue;
        }
        __syncwarp(); /* all have read the target's logit */
        for (size_t j = warp_lane(); j < args.vocab; j += WARP) {
            wide slope = 0;
            if (counts) {
                slope =
                    real_exp(load<Real>(args.logits, row + j) - top) * factor;
                slope -= j == target ? (wide)args.scale : 0;
            }
            store<Real>(args.dlogits, row + j, slope);
        }
    }
}

/* ---- a part of the vocabulary ---------------------------------------------
 */

enum { SUMMARY = 3 }; /* top, sum, logit of the target */

template <class Real>
static __device__ inline void softmax_part(const wefti_math_softmax_part &args)
{
    typedef typename Real::wide wide;
    for (size_t t = warp_first(); t < args.tokens; t += warp_count()) {
        size_t row = t * args.vocab;
        softmax_sum<wide> seen =
            row_softmax<Real>(args.logits, row, args.vocab);
        if (warp_lane() == 0) {
            wide *own = static_cast<wide *>(args.summary) + t * SUMMARY;
            bool here = args.targets[t] >= 0;
            own[0] = seen.top;
            own[1] = seen.sum;
            own[2] =
                here ? load<Real>(args.logits, row + (size_t)args.targets[t])
                     : 0;
        }
    }
}

/* A token's summary over all columns; every lane finds it. */
template <class Wide>
static __device__ inline softmax_sum<Wide>
join_parts(const wefti_math_cross_entropy_part &args, size_t token, Wide *logit)
{
    const Wide *first = static_cast<const Wide *>(args.parts) + token * SUMMARY;
    softmax_sum<Wide> all = {-(Wide)INFINITY, 0};
    *logit = 0;
    for (size_t p = 0; p < args.part_count; p++) {
        Wide top = first[p * args.part_elems];
        all.top = top > all.top ? top : all.top;
    }
    for (size_t p = 0; p < args.part_count; p++) {
        const Wide *part = first + p * args.part_elems;
        Wide weight =
            part[0] > -(Wide)INFINITY ? real_exp(part[0] - all.top) : (Wide)1;
        all.sum += part[1] * weight;
        *logit += part[2];
    }
    return all;
}

template <class Real>
static __device__ inline void
cross_entropy_part(const wefti_math_cross_entropy_part &args)
{
    typedef typename Real::wide wide;
    for (size_t t = warp_first(); t < args.tokens; t += warp_count()) {
        size_t row = t * args.vocab;
        int32_t target = args.targets[t];
        bool counts = target >= -1;
        wide logit = 0, loss = 0, factor = 0;
        softmax_sum<wide> all = {0, 0};
        if (counts) {
            all = join_parts<wide>(args, t, &logit);
            factor = (wide)args.scale / all.sum;
            loss = all.top - logit + real_log(all.sum);
        }
        if (warp_lane() == 0) {
            static_cast<wide *>(args.loss)[t] = loss;
        }
        for (size_t j = warp_lane(); args.dlogits && j < args.vocab;
             j += WARP) {
            wide slope = 0;
            if (counts) {
                slope = real_exp(load<Real>(args.logits, row + j) - all.top) *
                        factor;
                slope -=
                    target >= 0 && j == (size_t)target ? (wide)args.scale : 0;
            }
            store<Real>(args.dlogits, row + j, slope);
        }
    }
}

#define CROSS_ENTROPY_KERNELS(type)                                            \
    MATH_KERNEL(cross_entropy, type)                                           \
    MATH_KERNEL(softmax_part, type)                                            \
    MATH_KERNEL(cross_entropy_part, type)
REAL_LIST(CROSS_ENTROPY_KERNELS)
