/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cross-entropy and its gradient, one token a warp, in two passes over the
 * logits: the greatest and the sum of exponentials below it, kept up while the
 * greatest grows; then the gradient, which may take the logits' place.
 */
#include "kernels/math/math_pack.cuh"

/* Packs of a row that a lane has under way. */
static const unsigned LOGITS_AHEAD = 8;

/* The sum of exp(x - top) over what has been seen. */
template <class Wide> struct softmax_sum {
    Wide top, sum;

    /* Some at once. A NaN does not become the greatest; the sum is NaN then. */
    template <class Pack>
    __device__ inline void see(const Pack &x, unsigned count)
    {
        const unsigned elems = sizeof(x.at) / sizeof(x.at[0]);
        Wide above = top;
#pragma unroll
        for (unsigned k = 0; k < elems; k++) {
            above = k < count && x.get(k) > above ? x.get(k) : above;
        }
        if (above > top) {
            sum *= real_exp(top - above);
            top = above;
        }
        /* Nothing seen yet: zeros, and NaNs. */
        Wide from = above > -(Wide)INFINITY ? above : 0;
#pragma unroll
        for (unsigned k = 0; k < elems; k++) {
            sum += k < count ? real_exp(x.get(k) - from) : 0;
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

/* Of those from column i on, how many are the row's. */
template <class Packs>
static __device__ inline unsigned pack_count(size_t i, size_t width)
{
    return i + Packs::ELEMS <= width ? Packs::ELEMS
           : i < width               ? (unsigned)(width - i)
                                     : 0;
}

/* Of a row, over all lanes. */
template <class Real, bool WHOLE>
static __device__ inline softmax_sum<typename Real::wide>
row_softmax(const void *logits, size_t row, size_t vocab)
{
    typedef row_packs<Real, WHOLE> packs;
    typedef typename Real::wide wide;
    softmax_sum<wide> seen = {-(wide)INFINITY, 0};
    for (size_t i = packs::first(); i < vocab;
         i += LOGITS_AHEAD * packs::STEP) {
        typename packs::pack x[LOGITS_AHEAD];
        packs::load_ahead(x, logits, row, i, vocab);
#pragma unroll
        for (unsigned a = 0; a < LOGITS_AHEAD; a++) {
            size_t at = i + a * packs::STEP;
            if (at < vocab) {
                seen.see(x[a], pack_count<packs>(at, vocab));
            }
        }
    }
#pragma unroll
    for (unsigned step = WARP / 2; step != 0; step /= 2) {
        wide top = __shfl_xor_sync(WARP_WHOLE, seen.top, step);
        wide sum = __shfl_xor_sync(WARP_WHOLE, seen.sum, step);
        seen.join(top, sum);
    }
    return seen;
}

/* What a token's gradient follows from: exp(x - top) factor, less scale at its
 * target. */
template <class Wide> struct token_slope {
    bool counts; /* else zeros */
    Wide top, factor, scale;
    size_t target; /* of these columns; SIZE_MAX: none of them */
};

template <class Real, bool WHOLE>
static __device__ inline void
put_slopes(void *dlogits, const void *logits, size_t row, size_t vocab,
           const token_slope<typename Real::wide> &of)
{
    typedef row_packs<Real, WHOLE> packs;
    for (size_t i = packs::first(); i < vocab;
         i += LOGITS_AHEAD * packs::STEP) {
        typename packs::pack x[LOGITS_AHEAD];
        packs::load_ahead(x, logits, row, i, vocab);
#pragma unroll
        for (unsigned a = 0; a < LOGITS_AHEAD; a++) {
            size_t at = i + a * packs::STEP;
#pragma unroll
            for (unsigned k = 0; k < packs::ELEMS; k++) {
                typename Real::wide slope =
                    real_exp(x[a].get(k) - of.top) * of.factor;
                slope -= at + k == of.target ? of.scale : 0;
                x[a].set(k, of.counts ? slope : 0);
            }
            if (at < vocab) {
                packs::store(x[a], dlogits, row, at, vocab);
            }
        }
    }
}

template <class Real, bool WHOLE>
static __device__ inline void
cross_entropy_token(const wefti_math_cross_entropy &args, size_t t)
{
    typedef typename Real::wide wide;
    size_t row = t * args.vocab;
    token_slope<wide> slope = {args.targets[t] >= 0, 0, 0, (wide)args.scale,
                               (size_t)args.targets[t]};
    wide loss = 0;
    if (slope.counts) {
        softmax_sum<wide> seen =
            row_softmax<Real, WHOLE>(args.logits, row, args.vocab);
        slope.top = seen.top;
        slope.factor = slope.scale / seen.sum;
        loss = seen.top - load<Real>(args.logits, row + slope.target) +
               real_log(seen.sum);
    }
    if (warp_lane() == 0) {
        static_cast<wide *>(args.loss)[t] = loss;
    }
    __syncwarp(); /* all have read the target's logit */
    if (args.dlogits) {
        put_slopes<Real, WHOLE>(args.dlogits, args.logits, row, args.vocab,
                                slope);
    }
}

template <class Real>
static __device__ inline void
cross_entropy(const wefti_math_cross_entropy &args)
{
    bool whole = row_pack<Real>::fits(args.vocab, args.vocab) &&
                 is_packed(args.logits) && is_packed(args.dlogits);
    for (size_t t = warp_first(); t < args.tokens; t += warp_count()) {
        if (whole) {
            cross_entropy_token<Real, true>(args, t);
        } else {
            cross_entropy_token<Real, false>(args, t);
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
    bool whole =
        row_pack<Real>::fits(args.vocab, args.vocab) && is_packed(args.logits);
    for (size_t t = warp_first(); t < args.tokens; t += warp_count()) {
        size_t row = t * args.vocab;
        softmax_sum<wide> seen =
            whole ? row_softmax<Real, true>(args.logits, row, args.vocab)
                  : row_softmax<Real, false>(args.logits, row, args.vocab);
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
    bool whole = row_pack<Real>::fits(args.vocab, args.vocab) &&
                 is_packed(args.logits) && is_packed(args.dlogits);
    for (size_t t = warp_first(); t < args.tokens; t += warp_count()) {
        size_t row = t * args.vocab;
        int32_t target = args.targets[t];
        token_slope<wide> slope = {target >= -1, 0, 0, (wide)args.scale,
                                   target >= 0 ? (size_t)target : SIZE_MAX};
        wide logit = 0, loss = 0;
        if (slope.counts) {
            softmax_sum<wide> all = join_parts<wide>(args, t, &logit);
            slope.top = all.top;
            slope.factor = slope.scale / all.sum;
            loss = all.top - logit + real_log(all.sum);
        }
        if (warp_lane() == 0) {
            static_cast<wide *>(args.loss)[t] = loss;
        }
        if (args.dlogits && whole) {
            put_slopes<Real, true>(args.dlogits, args.logits, row, args.vocab,
                                   slope);
        } else if (args.dlogits) {
            put_slopes<Real, false>(args.dlogits, args.logits, row, args.vocab,
                                    slope);
        }
    }
}

#define CROSS_ENTROPY_KERNELS(type)                                            \
    MATH_KERNEL(cross_entropy, type)                                           \
    MATH_KERNEL(softmax_part, type)                                            \
    MATH_KERNEL(cross_entropy_part, type)
REAL_LIST(CROSS_ENTROPY_KERNELS)
