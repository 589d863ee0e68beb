/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/moe_sum.c - what experts made of rows, on its way back: summed on
 * their rank, where two hops meet, and where the token came from. Every sum is
 * taken in one order, in f32:
 *
 *      slots of one rank -> combine_dtype -> ranks of one node ->
 *      combine_dtype -> nodes -> dtype
 *
 * Over one hop the sum of a node is taken, and rounded, by the token's rank.
 */
#include "overlap/moe_core.h"

#include "kernels/wire/reduce.h"

#include <string.h>

static size_t slots_of(const weft_moe *moe)
{
    return (size_t)moe->config.slots;
}

static const unsigned char *row_at(const weft_moe *moe, const void *rows,
                                   int32_t place)
{
    return (const unsigned char *)rows +
           (size_t)place * moe->config.hidden * moe->elem_bytes;
}

/* dst = a, or dst + a. */
static void add(float *dst, const float *a, size_t elems, bool first)
{
    if (first) {
        memcpy(dst, a, elems * sizeof(*dst));
        return;
    }
    for (size_t i = 0; i < elems; i++) {
        dst[i] += a[i];
    }
}

static void scale(float *x, float factor, size_t elems)
{
    for (size_t i = 0; i < elems; i++) {
        x[i] *= factor;
    }
}

static void narrow(const weft_moe *moe, void *dst, const float *src,
                   weft_dtype dtype)
{
    wefti_narrow(dst, src, 1, moe->config.hidden, dtype, WEFT_REDOP_SUM);
}

/* Four chains of sums, so that the order is one whatever the machine. */
static float dot(const float *a, const float *b, size_t elems)
{
    float sums[4] = {0};
    size_t i = 0;
    for (; i + 4 <= elems; i += 4) {
        for (size_t k = 0; k < 4; k++) {
            sums[k] += a[i + k] * b[i + k];
        }
    }
    for (; i < elems; i++) {
        sums[i % 4] += a[i] * b[i];
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* ---- at the experts' rank -------------------------------------------------
 */

/* A token's dout for its rows here; what y was there gives products first: dy
 * may be y. */
static void expand_gradient(const wefti_moe_job *job, const unsigned char *row,
                            size_t number)
{
    weft_moe *moe = job->moe;
    const weft_moe_config *config = &moe->config;
    const int32_t *places = job->held->places + number * slots_of(moe);
    const float *weights = job->held->row_weights + number * slots_of(moe);
    float *products = moe->products + number * slots_of(moe);
    wefti_widen(moe->term, row, config->hidden, config->dtype);
    for (size_t slot = 0; slot < slots_of(moe); slot++) {
        products[slot] = 0;
        if (places[slot] < 0) {
            continue;
        }
        if (job->other) {
            wefti_widen(moe->part, row_at(moe, job->other, places[slot]),
                        config->hidden, config->dtype);
            products[slot] = dot(moe->part, moe->term, config->hidden);
        }
        memcpy(moe->part, moe->term, config->hidden * sizeof(*moe->part));
        scale(moe->part, weights[slot], config->hidden);
        narrow(moe, (void *)row_at(moe, job->to, places[slot]), moe->part,
               config->dtype);
    }
}

void wefti_moe_expand_gradient(const wefti_moe_job *job)
{
    weft_moe *moe = job->moe;
    const int last = moe->layout.hops - 1;
    size_t number = 0;
    for (int rank = 0; rank < moe->nranks; rank++) {
        for (size_t i = 0; i < job->held->in_rows[last][rank]; i++) {
            expand_gradient(
                job, wefti_moe_at(moe, &moe->hops[last].in, rank, i, job->row),
                number++);
        }
    }
}

/* The sum of a row's slots. */
static void reduce_row(const wefti_moe_job *job, unsigned char *row,
                       size_t number)
{
    weft_moe *moe = job->moe;
    const weft_moe_config *config = &moe->config;
    const int32_t *places = job->held->places + number * slots_of(moe);
    const float *weights = job->held->row_weights + number * slots_of(moe);
    bool first = true;
    memset(moe->sum, 0, config->hidden * sizeof(*moe->sum));
    for (size_t slot = 0; slot < slots_of(moe); slot++) {
        if (places[slot] < 0) {
            continue;
        }
        wefti_widen(moe->term, row_at(moe, job->from, places[slot]),
                    config->hidden, config->dtype);
        if (job->weighted) {
            scale(moe->term, weights[slot], config->hidden);
        }
        add(moe->sum, moe->term, config->hidden, first);
        first = false;
    }
    narrow(moe, row, moe->sum, config->combine_dtype);
}

void wefti_moe_reduce(const wefti_moe_job *job)
{
    weft_moe *moe = job->moe;
    const int last = moe->layout.hops - 1;
    size_t number = 0;
    for (int rank = 0; rank < moe->nranks; rank++) {
        for (size_t i = 0; i < job->held->in_rows[last][rank]; i++, number++) {
            unsigned char *row =
                wefti_moe_at(moe, &moe->hops[last].in, rank, i, job->row);
            if (job->row == WEFTI_MOE_ROW_SLOTS) {
                memcpy(row, moe->products + number * slots_of(moe),
                       moe->row_bytes[job->row]);
            } else {
                reduce_row(job, row, number);
            }
        }
    }
    wefti_moe_announce(moe, last, job->held->in_rows[last], job->row);
}

/* ---- on the way, and at the end -------------------------------------------
 */

/* What came back of a row that went to some targets, one after another. */
typedef struct answers {
    const wefti_moe_job *job;
    int hop;
    size_t *rows; /* [nranks] answers used of each rank */
} answers;

static const unsigned char *next_answer(const answers *of, int target)
{
    const weft_moe *moe = of->job->moe;
    return wefti_moe_at(moe, &moe->hops[of->hop].out, target,
                        of->rows[target]++, of->job->row);
}

/* The slots that experts behind a target have answered. */
static void take_slots(const answers *of, const int32_t *experts, float *to)
{
    const weft_moe *moe = of->job->moe;
    int targets[WEFT_MOE_SLOTS_MOST];
    float answer[WEFT_MOE_SLOTS_MOST];
    const int count =
        wefti_moe_targets(&moe->layout, of->hop, moe->rank, experts, targets);
    memset(to, 0, slots_of(moe) * sizeof(*to));
    for (int i = 0; i < count; i++) {
        memcpy(answer, next_answer(of, targets[i]),
               slots_of(moe) * sizeof(*answer));
        for (size_t slot = 0; slot < slots_of(moe); slot++) {
            if (wefti_moe_next(&moe->layout, of->hop, moe->rank,
                               experts[slot]) == targets[i]) {
                to[slot] = answer[slot];
            }
        }
    }
}

/* The sum of a node's answers, targets [begin, end), to part. */
static void sum_node(const answers *of, const int *targets, int begin, int end)
{
    weft_moe *moe = of->job->moe;
    const weft_moe_config *config = &moe->config;
    for (int i = begin; i < end; i++) {
        wefti_widen(moe->term, next_answer(of, targets[i]), config->hidden,
                    config->combine_dtype);
        add(moe->part, moe->term, config->hidden, i == begin);
    }
}

static void merge_row(const answers *of, const int32_t *experts,
                      unsigned char *row)
{
    const weft_moe *moe = of->job->moe;
    int targets[WEFT_MOE_SLOTS_MOST];
    const int count =
        wefti_moe_targets(&moe->layout, of->hop, moe->rank, experts, targets);
    memset(moe->part, 0, moe->config.hidden * sizeof(*moe->part));
    sum_node(of, targets, 0, count);
    narrow(moe, row, moe->part, moe->config.combine_dtype);
}

void wefti_moe_merge(const wefti_moe_job *job)
{
    weft_moe *moe = job->moe;
    wefti_moe_held *held = job->held;
    const answers of = {job, 1, moe->answered};
    const int32_t *experts = held->relayed;
    memset(of.rows, 0, (size_t)moe->nranks * sizeof(*of.rows));
    for (int rank = 0; rank < moe->nranks; rank++) {
        for (size_t i = 0; i < held->in_rows[0][rank]; i++) {
            unsigned char *row =
                wefti_moe_at(moe, &moe->hops[0].in, rank, i, job->row);
            if (job->row == WEFTI_MOE_ROW_SLOTS) {
                float slots[WEFT_MOE_SLOTS_MOST];
                take_slots(&of, experts, slots);
                memcpy(row, slots, moe->row_bytes[job->row]);
            } else {
                merge_row(&of, experts, row);
            }
            experts += slots_of(moe);
        }
    }
    wefti_moe_announce(moe, 0, held->in_rows[0], job->row);
}

/* What two hops have rounded at the node is rounded here over one. */
static void round_node(weft_moe *moe)
{
    if (moe->layout.hops == 1 && moe->config.combine_dtype != WEFT_DTYPE_F32) {
        wefti_round(moe->part, 1, moe->config.hidden, moe->config.combine_dtype,
                    WEFT_REDOP_SUM);
    }
}

static void finish_token(const answers *of, const int32_t *experts,
                         unsigned char *to)
{
    weft_moe *moe = of->job->moe;
    const weft_moe_config *config = &moe->config;
    int targets[WEFT_MOE_SLOTS_MOST];
    const int count =
        wefti_moe_targets(&moe->layout, of->hop, moe->rank, experts, targets);
    memset(moe->sum, 0, config->hidden * sizeof(*moe->sum));
    for (int begin = 0, end; begin < count; begin = end) {
        const int node = moe->layout.nodes[targets[begin]];
        end = begin + 1;
        while (end < count && moe->layout.nodes[targets[end]] == node) {
            end++;
        }
        sum_node(of, targets, begin, end);
        round_node(moe);
        add(moe->sum, moe->part, config->hidden, begin == 0);
    }
    narrow(moe, to, moe->sum, config->dtype);
}

void wefti_moe_finish(const wefti_moe_job *job)
{
    weft_moe *moe = job->moe;
    const wefti_moe_held *held = job->held;
    const answers of = {job, 0, moe->answered};
    memset(of.rows, 0, (size_t)moe->nranks * sizeof(*of.rows));
    for (size_t token = 0; token < held->tokens; token++) {
        const int32_t *experts = held->experts + token * slots_of(moe);
        if (job->row == WEFTI_MOE_ROW_SLOTS) {
            take_slots(&of, experts, (float *)job->to + token * slots_of(moe));
        } else {
            finish_token(&of, experts,
                         (unsigned char *)job->to +
                             token * moe->config.hidden * moe->elem_bytes);
        }
    }
}
