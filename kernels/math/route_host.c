/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Choice of experts. The next best is found among those behind the last one, so
 * that no list of the chosen is kept.
 */
#include "kernels/math/route.h"

#include "base/check.h"
#include "kernels/math/level.h"

#include <math.h>
#include <string.h>

/* A score, and whose it is. */
typedef struct place {
    real score;
    size_t number;
} place;

static const place before_all = {INFINITY, 0};

/* Whether a comes before b; those of one score by number. */
static inline bool is_better(place a, place b)
{
    return a.score > b.score || (a.score == b.score && a.number < b.number);
}

/* A token's scores, by group. */
typedef struct scores {
    const real *affinity, *bias;
    size_t a_group, groups;
    size_t best;        /* of them count for a group */
    place worst_chosen; /* of the groups */
} scores;

static place score_of(const scores *of, size_t expert)
{
    real bias = of->bias ? of->bias[expert] : 0;
    return (place){of->affinity[expert] + bias, expert};
}

/* The best of a group behind last; it is number end where there is none. */
static place next_of_group(const scores *of, size_t group, place last,
                           bool first)
{
    const size_t end = (group + 1) * of->a_group;
    place best = {-(real)INFINITY, end};
    for (size_t e = group * of->a_group; e < end; e++) {
        place one = score_of(of, e);
        if ((first || is_better(last, one)) && is_better(one, best)) {
            best = one;
        }
    }
    return best;
}

static place score_group(const scores *of, size_t group)
{
    place sum = {0, group}, last = before_all;
    for (size_t i = 0; i < of->best; i++) {
        last = next_of_group(of, group, last, i == 0);
        sum.score += last.score;
    }
    return sum;
}

static void choose_groups(scores *of, size_t limit)
{
    for (size_t i = 0; i < limit; i++) {
        place best = {-(real)INFINITY, of->groups};
        for (size_t g = 0; g < of->groups; g++) {
            place one = score_group(of, g);
            if ((i == 0 || is_better(of->worst_chosen, one)) &&
                is_better(one, best)) {
                best = one;
            }
        }
        of->worst_chosen = best;
    }
}

static bool is_chosen(const scores *of, size_t group, size_t limit)
{
    return limit >= of->groups ||
           !is_better(of->worst_chosen, score_group(of, group));
}

static void choose(scores *of, const wefti_route_shape *how, int32_t *expert)
{
    place last = before_all;
    if (how->group_limit < how->groups) {
        choose_groups(of, how->group_limit);
    }
    for (size_t s = 0; s < how->slots; s++) {
        place best = {-(real)INFINITY, how->experts};
        for (size_t g = 0; g < of->groups; g++) {
            if (!is_chosen(of, g, how->group_limit)) {
                continue;
            }
            place one = next_of_group(of, g, last, s == 0);
            best = is_better(one, best) ? one : best;
        }
        WEFTI_ASSERT(best.number < how->experts); /* else a score is a NAN */
        expert[s] = (int32_t)best.number;
        last = best;
    }
}

/* By logits that are not numbers every expert is as good. */
static real affinity_of(real logit)
{
    real e = (real)exp(logit < 0 ? (double)logit : -(double)logit);
    real affinity = (logit < 0 ? e : 1) / (1 + e);
    return affinity == affinity ? affinity : 0;
}

void WEFTI_LEVEL(route_forward)(real *affinity, int32_t *expert, real *weight,
                                const real *logits, const real *bias,
                                const wefti_route_shape *how)
{
    WEFTI_ASSERT(how->groups > 0 && how->experts % how->groups == 0);
    for (size_t t = 0; t < how->tokens; t++) {
        real *a = affinity + t * how->experts, sum = 0;
        int32_t *chosen = expert + t * how->slots;
        scores of = {.affinity = a,
                     .bias = bias,
                     .a_group = how->experts / how->groups,
                     .groups = how->groups,
                     .best = (how->slots + how->group_limit - 1) /
                             how->group_limit};
        for (size_t e = 0; e < how->experts; e++) {
            a[e] = affinity_of(logits[t * how->experts + e]);
        }
        choose(&of, how, chosen);
        for (size_t s = 0; s < how->slots; s++) {
            sum += a[chosen[s]];
        }
        for (size_t s = 0; s < how->slots; s++) {
            weight[t * how->slots + s] = sum > 0 ? a[chosen[s]] / sum : 0;
        }
    }
}

void WEFTI_LEVEL(route_backward)(real *dlogits, const real *dweight,
                                 const real *affinity, const int32_t *expert,
                                 const wefti_route_shape *how)
{
    memset(dlogits, 0, how->tokens * how->experts * sizeof(*dlogits));
    for (size_t t = 0; t < how->tokens; t++) {
        const real *a = affinity + t * how->experts;
        const real *dw = dweight + t * how->slots;
        const int32_t *chosen = expert + t * how->slots;
        real sum = 0, mean = 0;
        for (size_t s = 0; s < how->slots; s++) {
            sum += a[chosen[s]];
            mean += a[chosen[s]] * dw[s];
        }
        for (size_t s = 0; s < how->slots && sum > 0; s++) {
            real own = a[chosen[s]];
            dlogits[t * how->experts + (size_t)chosen[s]] =
                (dw[s] - mean / sum) / sum * own * (1 - own);
        }
    }
}
