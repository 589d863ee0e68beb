/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/zbv.c - ZBV: two chunks a rank placed as a V, so that the
 * last rank turns a micro-batch round without a message and rank 0 has both the
 * first stage and the loss.
 *
 *     stages on rank, P = 4:   0,7   1,6   2,5   3,4
 *
 * The recipe is for at least 2P-1 micro-batches; with fewer, it is followed as
 * if there were so many and those that are not there are left out.
 *
 * Source: Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241,
 * section 6.
 */
#include "overlap/schedule/generator.h"

/* One chunk of the rank: what comes next of each kind. */
typedef struct chunk {
    int stage, f, i, w;
} chunk;

typedef struct zbv {
    wefti_action_writer *writer;
    int microbatches;
} zbv;

static void put(zbv *it, weft_action_type type, int stage, int microbatch)
{
    if (microbatch < it->microbatches) {
        wefti_action_writer_put(it->writer, type, stage, microbatch);
    }
}

static void put_f(zbv *it, chunk *c)
{
    put(it, WEFT_ACTION_F, c->stage, c->f++);
}

static void put_i(zbv *it, chunk *c)
{
    put(it, WEFT_ACTION_I, c->stage, c->i++);
}

static void put_w(zbv *it, chunk *c)
{
    put(it, WEFT_ACTION_W, c->stage, c->w++);
}

static void put_iw(zbv *it, chunk *c)
{
    put_i(it, c);
    put_w(it, c);
}

static void write_rank(zbv *it, int rank, int ranks)
{
    int count =
        it->microbatches > 2 * ranks - 1 ? it->microbatches : 2 * ranks - 1;
    chunk c0 = {.stage = rank}, c1 = {.stage = 2 * ranks - 1 - rank};

    it->writer->step = 1;
    for (int k = 0; k < 2 * (ranks - rank) - 1; k++) {
        put_f(it, &c0);
    }
    it->writer->step = 2;
    for (int k = 0; k < rank; k++) {
        put_f(it, &c1);
        put_f(it, &c0);
    }
    it->writer->step = 3;
    for (int k = 0; k < ranks - rank; k++) {
        put_f(it, &c1);
        put_iw(it, &c1);
    }
    it->writer->step = 4;
    while (c1.f < c0.f || c0.f < count) {
        if (c0.f < count) {
            put_f(it, &c0);
        }
        put_iw(it, &c0);
        put_f(it, &c1);
        put_iw(it, &c1);
    }
    it->writer->step = 5;
    for (int k = 0; k < rank; k++) {
        put_i(it, &c0);
        put_i(it, &c1);
    }
    it->writer->step = 6;
    for (int k = 0; k < ranks - rank; k++) {
        put_iw(it, &c0);
    }
    it->writer->step = 7;
    while (c1.w < c1.i) {
        put_w(it, &c1);
    }
    while (c0.w < c0.i) {
        put_w(it, &c0);
    }
}

weft_status wefti_generate_zbv(const weft_schedule_config *config,
                               weft_schedule **schedule_out)
{
    weft_status status = wefti_generate_chunks(config, 2);
    if (status == WEFT_OK) {
        status = wefti_schedule_make("zbv", config->ranks, 2 * config->ranks, 1,
                                     config->microbatches, schedule_out);
    }
    if (status != WEFT_OK) {
        return status;
    }
    wefti_schedule_place_v(*schedule_out);
    for (int r = 0; r < config->ranks; r++) {
        wefti_action_writer writer = {&(*schedule_out)->lists[r], 0};
        zbv it = {&writer, config->microbatches};
        write_rank(&it, r, config->ranks);
    }
    return WEFT_OK;
}
