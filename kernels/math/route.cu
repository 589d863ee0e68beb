/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Choice of experts: a warp has a token at a time. The next best is found among
 * those behind the last one, so that no list of the chosen is kept.
 */
#include "kernels/math/math_real.cuh"

/* A score, and whose it is; none: a number that there is not. */
template <class Wide> struct route_place {
    Wide score;
    unsigned number;
};

/* Whether a comes before b; those of one score by number. */
template <class Wide>
static __device__ inline bool is_better(route_place<Wide> a,
                                        route_place<Wide> b)
{
    return a.score > b.score || (a.score == b.score && a.number < b.number);
}

/* The best of all lanes, for all of them. */
template <class Wide>
static __device__ inline route_place<Wide> warp_best(route_place<Wide> own)
{
    for (unsigned step = WARP / 2; step != 0; step /= 2) {
        route_place<Wide> other = {
            __shfl_xor_sync(WARP_WHOLE, own.score, step),
            __shfl_xor_sync(WARP_WHOLE, own.number, step)};
        own = is_better(other, own) ? other : own;
    }
    return own;
}

/* A token's scores, by group. */
template <class Real> struct route_scores {
    typedef typename Real::wide wide;
    typedef typename real_of<wide>::type Wide;
    typedef route_place<wide> place;
    const wefti_math_route_forward &args;
    size_t token, a_group;

    __device__ inline route_scores(const wefti_math_route_forward &of, size_t t)
        : args(of), token(t), a_group(of.experts / of.groups)
    {
    }

    __device__ inline wide affinity(size_t expert) const
    {
        return load<Wide>(args.affinity, token * args.experts + expert);
    }

    /* The best of a group behind last. */
    __device__ inline place next_of_group(size_t group, place last,
                                          bool first) const
    {
        size_t end = (group + 1) * a_group;
        place best = {-(wide)INFINITY, (unsigned)end};
        for (size_t e = group * a_group + warp_lane(); e < end; e += WARP) {
            wide bias = args.bias ? load<Real>(args.bias, e) : 0;
            place one = {affinity(e) + bias, (unsigned)e};
            if ((first || is_better(last, one)) && is_better(one, best)) {
                best = one;
            }
        }
        return warp_best(best);
    }

    __device__ inline place score_group(size_t group) const
    {
        size_t count = (args.slots + args.group_limit - 1) / args.group_limit;
        place sum = {0, (unsigned)group}, last = {0, 0};
        for (size_t i = 0; i < count; i++) {
            last = next_of_group(group, last, i == 0);
            sum.score += last.score;
        }
        return sum;
    }

    /* The worst of the groups that are chosen. */
    __device__ inline place choose_groups() const
    {
        place worst = {0, 0};
        for (size_t i = 0; i < args.group_limit; i++) {
            place best = {-(wide)INFINITY, (unsigned)args.groups};
            for (size_t g = 0; g < args.groups; g++) {
                place one = score_group(g);
                if ((i == 0 || is_better(worst, one)) && is_better(one, best)) {
                    best = one;
                }
            }
            worst = best;
        }
        return worst;
    }
};

template <class Real>
static __device__ inline void route_token(const wefti_math_route_forward &args,
                                          size_t t)
{
    typedef typename Real::wide wide;
    typedef route_place<wide> place;
    route_scores<Real> of(args, t);
    bool limited = args.group_limit < args.groups;
    place worst = {0, 0}, last = {0, 0};
    wide sum = 0;
    if (limited) {
        worst = of.choose_groups();
    }
    for (size_t s = 0; s < args.slots; s++) {
        place best = {-(wide)INFINITY, (unsigned)args.experts};
        for (size_t g = 0; g < args.groups; g++) {
            if (limited && is_better(worst, of.score_group(g))) {
                continue;
            }
            place one = of.next_of_group(g, last, s == 0);
            best = is_better(one, best) ? one : best;
        }
        /* Scores that are no numbers are behind none: any expert is as good. */
        best.number = best.number < args.experts ? best.number : 0;
        last = best;
        sum += of.affinity(best.number);
        if (warp_lane() == 0) {
            args.expert[t * args.slots + s] = (int32_t)best.number;
        }
    }
    __syncwarp();
    for (size_t s = warp_lane(); s < args.slots; s += WARP) {
        size_t at = t * args.slots + s;
        wide own = of.affinity((size_t)args.expert[at]);
        store<typename real_of<wide>::type>(args.weight, at,
                                            sum > 0 ? own / sum : 0);
    }
}

template <class Real>
static __device__ inline void
route_forward(const wefti_math_route_forward &args)
{
    typedef typename Real::wide wide;
    typedef typename real_of<wide>::type Wide;
    for (size_t t = warp_first(); t < args.tokens; t += warp_count()) {
        for (size_t e = warp_lane(); e < args.experts; e += WARP) {
            wide logit = load<Wide>(args.logits, t * args.experts + e);
            wide power = real_exp(logit < 0 ? logit : -logit);
            wide affinity = (logit < 0 ? power : 1) / (1 + power);
            store<Wide>(args.affinity, t * args.experts + e,
                        affinity == affinity ? affinity : 0);
        }
        __syncwarp();
        route_token<Real>(args, t);
        __syncwarp();
    }
}

/* The gradient of the affinity of the expert in slot s, or 0. */
template <class Real>
static __device__ inline void
route_backward(const wefti_math_route_backward &args)
{
    typedef typename Real::wide wide;
    for (size_t t = warp_first(); t < args.tokens; t += warp_count()) {
        const int32_t *expert = args.expert + t * args.slots;
        wide sum = 0, mean = 0;
        for (size_t s = 0; s < args.slots; s++) {
            wide own =
                load<Real>(args.affinity, t * args.experts + (size_t)expert[s]);
            sum += own;
            mean += own * load<Real>(args.dweight, t * args.slots + s);
        }
        for (size_t e = warp_lane(); e < args.experts; e += WARP) {
            wide own = load<Real>(args.affinity, t * args.experts + e);
            wide d = 0;
            for (size_t s = 0; s < args.slots && sum > 0; s++) {
                if ((size_t)expert[s] == e) {
                    wide dw = load<Real>(args.dweight, t * args.slots + s);
                    d = (dw - mean / sum) / sum * own * (1 - own);
                }
            }
            store<Real>(args.dlogits, t * args.experts + e, d);
        }
    }
}

#define ROUTE_FORWARD_KERNEL(type)  MATH_KERNEL(route_forward, type)
#define ROUTE_BACKWARD_KERNEL(type) MATH_KERNEL(route_backward, type)
REAL_LIST(ROUTE_FORWARD_KERNEL)
REAL_WIDE_LIST(ROUTE_BACKWARD_KERNEL)
