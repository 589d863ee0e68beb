/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/moe_pack.c - rows on their way to experts. What an operation that
 * failed has left is rubbish: whatever is read from a row is checked before it
 * becomes an index.
 */
#include "overlap/moe_core.h"
#include "overlap/moe_row.h"

#include <string.h>

static size_t slots_of(const weft_moe *moe)
{
    return (size_t)moe->config.slots;
}

/* Copies what the program says of its tokens; an expert that there is not
 * fails all. */
static void keep_tokens(const wefti_moe_job *job)
{
    weft_moe *moe = job->moe;
    wefti_moe_held *held = job->held;
    const size_t count = held->tokens * slots_of(moe);
    for (size_t i = 0; i < count; i++) {
        const int32_t expert = job->expert[i];
        const bool known = expert >= -1 && expert < moe->config.experts;
        if (!known) {
            wefti_moe_fail(moe,
                           "rank %d gave token %zu expert %d: allowed is -1 .. "
                           "%d",
                           moe->rank, i / slots_of(moe), (int)expert,
                           moe->config.experts - 1);
        }
        held->experts[i] = known ? expert : -1;
        held->weights[i] = job->weight ? job->weight[i] : 1;
    }
}

static void pack_row(const wefti_moe_job *job, size_t token, unsigned char *row)
{
    const weft_moe *moe = job->moe;
    const wefti_moe_held *held = job->held;
    const weft_moe_config *config = &moe->config;
    const unsigned char *elements = (const unsigned char *)job->from +
                                    token * config->hidden * moe->elem_bytes;
    if (job->row == WEFTI_MOE_ROW_PLAIN) {
        memcpy(row, elements, config->hidden * moe->elem_bytes);
        return;
    }
    wefti_moe_header_pack(
        row, (wefti_moe_header){.source = moe->rank, .token = (int32_t)token},
        held->experts + token * slots_of(moe),
        held->weights + token * slots_of(moe), config->slots);
    wefti_moe_payload_pack(row + wefti_moe_header_bytes(config->slots),
                           elements, config->hidden, config->dtype,
                           config->dispatch_dtype, moe->term);
}

/* Puts a row into the part of each of its targets, in turn. */
static const unsigned char *spread(const wefti_moe_job *job, int hop,
                                   const int32_t *experts,
                                   const unsigned char *row, size_t token)
{
    weft_moe *moe = job->moe;
    size_t *rows = job->held->out_rows[hop];
    int targets[WEFT_MOE_SLOTS_MOST];
    const int count =
        wefti_moe_targets(&moe->layout, hop, moe->rank, experts, targets);
    for (int i = 0; i < count; i++) {
        unsigned char *at = wefti_moe_at(moe, &moe->hops[hop].out, targets[i],
                                         rows[targets[i]]++, job->row);
        if (row) {
            memcpy(at, row, moe->row_bytes[job->row]);
        } else {
            pack_row(job, token, at);
            row = at;
        }
    }
    return row;
}

static void begin_rows(const weft_moe *moe, size_t *rows)
{
    memset(rows, 0, (size_t)moe->nranks * sizeof(*rows));
}

void wefti_moe_pack(const wefti_moe_job *job)
{
    weft_moe *moe = job->moe;
    wefti_moe_held *held = job->held;
    if (job->row == WEFTI_MOE_ROW_TOKEN) {
        keep_tokens(job);
    }
    begin_rows(moe, held->out_rows[0]);
    for (size_t token = 0; token < held->tokens; token++) {
        (void)spread(job, 0, held->experts + token * slots_of(moe), NULL,
                     token);
    }
    wefti_moe_announce(moe, 0, held->out_rows[0], job->row);
}

/* How many rows have come: of TOKEN the operation says it. Behind one that has
 * failed that may be anything, and is no more than there is room for. */
static void count_rows(const wefti_moe_job *job, int hop)
{
    const weft_moe *moe = job->moe;
    const size_t *begins = moe->hops[hop].in.begins;
    for (int rank = 0; rank < moe->nranks && job->row == WEFTI_MOE_ROW_TOKEN;
         rank++) {
        const size_t rows =
            moe->hops[hop].come[rank] / moe->row_bytes[job->row];
        const size_t room = (begins[rank + 1] - begins[rank]) / moe->stride;
        job->held->in_rows[hop][rank] = rows < room ? rows : room;
    }
}

void wefti_moe_forward(const wefti_moe_job *job)
{
    weft_moe *moe = job->moe;
    wefti_moe_held *held = job->held;
    int32_t *experts = held->relayed;
    count_rows(job, 0);
    begin_rows(moe, held->out_rows[1]);
    for (int rank = 0; rank < moe->nranks; rank++) {
        for (size_t i = 0; i < held->in_rows[0][rank]; i++) {
            const unsigned char *row =
                wefti_moe_at(moe, &moe->hops[0].in, rank, i, job->row);
            if (job->row == WEFTI_MOE_ROW_TOKEN) {
                (void)wefti_moe_header_unpack(row, experts, NULL,
                                              moe->config.slots);
            }
            (void)spread(job, 1, experts, row, 0);
            experts += slots_of(moe);
        }
    }
    wefti_moe_announce(moe, 1, held->out_rows[1], job->row);
}

/* ---- at the experts' rank -------------------------------------------------
 */

/* Which of this rank's experts it is; -1: none. */
static int expert_here(const weft_moe *moe, int32_t expert)
{
    return wefti_moe_owner(&moe->layout, expert) == moe->rank
               ? expert % moe->experts_here
               : -1;
}

/* counts of what each expert gets of each source; false: there is not so much
 * room. places get the experts meanwhile. */
static bool count_experts(const wefti_moe_job *job, size_t *total_out)
{
    weft_moe *moe = job->moe;
    wefti_moe_held *held = job->held;
    const int last = moe->layout.hops - 1;
    const size_t slots = slots_of(moe), nranks = (size_t)moe->nranks;
    size_t number = 0;
    *total_out = 0;
    memset(moe->counts, 0,
           (size_t)moe->experts_here * nranks * sizeof(*moe->counts));
    for (int rank = 0; rank < moe->nranks; rank++) {
        for (size_t i = 0; i < held->in_rows[last][rank]; i++, number++) {
            int32_t *experts = held->places + number * slots;
            const wefti_moe_header header = wefti_moe_header_unpack(
                wefti_moe_at(moe, &moe->hops[last].in, rank, i, job->row),
                experts, held->row_weights + number * slots, moe->config.slots);
            const bool known =
                header.source >= 0 && header.source < moe->nranks;
            for (size_t slot = 0; slot < slots; slot++) {
                const int here = known ? expert_here(moe, experts[slot]) : -1;
                experts[slot] = here;
                if (here >= 0) {
                    moe->counts[(size_t)here * nranks +
                                (size_t)header.source]++;
                    ++*total_out;
                }
            }
        }
    }
    return *total_out <= moe->config.capacity;
}

/* counts become where the rows of each expert and source begin. */
static void place_experts(weft_moe *moe, wefti_moe_held *held)
{
    size_t begin = 0;
    for (int expert = 0; expert < moe->experts_here; expert++) {
        const size_t first = begin;
        for (int source = 0; source < moe->nranks; source++) {
            size_t *count = &moe->counts[(size_t)expert * (size_t)moe->nranks +
                                         (size_t)source];
            const size_t rows = *count;
            *count = begin;
            begin += rows;
        }
        held->expert_rows[expert] = (int32_t)(begin - first);
    }
}

static unsigned char *row_at(const weft_moe *moe, const void *rows,
                             int32_t place)
{
    return (unsigned char *)rows +
           (size_t)place * moe->config.hidden * moe->elem_bytes;
}

/* One row that came, to its places. */
static void expand_row(const wefti_moe_job *job, const unsigned char *row,
                       int32_t *places)
{
    weft_moe *moe = job->moe;
    const weft_moe_config *config = &moe->config;
    const wefti_moe_header header =
        wefti_moe_header_unpack(row, NULL, NULL, config->slots);
    const unsigned char *done = NULL;
    for (size_t slot = 0; slot < slots_of(moe); slot++) {
        if (places[slot] < 0) {
            continue;
        }
        size_t *next = &moe->counts[(size_t)places[slot] * (size_t)moe->nranks +
                                    (size_t)header.source];
        places[slot] = (int32_t)(*next)++;
        unsigned char *to = row_at(moe, job->held->rows_placed, places[slot]);
        if (done) {
            memcpy(to, done, config->hidden * moe->elem_bytes);
        } else {
            wefti_moe_payload_unpack(
                to, row + wefti_moe_header_bytes(config->slots), config->hidden,
                config->dtype, config->dispatch_dtype, moe->term);
            done = to;
        }
    }
}

void wefti_moe_expand(const wefti_moe_job *job)
{
    weft_moe *moe = job->moe;
    wefti_moe_held *held = job->held;
    const int last = moe->layout.hops - 1;
    size_t total;
    count_rows(job, last);
    if (!count_experts(job, &total)) {
        wefti_moe_fail(moe,
                       "%zu rows for the experts of rank %d: its capacity is "
                       "%zu",
                       total, moe->rank, moe->config.capacity);
        begin_rows(moe, held->in_rows[last]);
        memset(moe->counts, 0,
               (size_t)moe->experts_here * (size_t)moe->nranks *
                   sizeof(*moe->counts));
    }
    place_experts(moe, held);
    int32_t *places = held->places;
    for (int rank = 0; rank < moe->nranks; rank++) {
        for (size_t i = 0; i < held->in_rows[last][rank]; i++) {
            expand_row(
                job, wefti_moe_at(moe, &moe->hops[last].in, rank, i, job->row),
                places);
            places += slots_of(moe);
        }
    }
}
