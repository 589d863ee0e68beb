/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/overlap/moes.h - worlds that exchange rows of tokens with experts, and
 * what must come of it, computed from nothing but the scene: tokens, experts
 * and weights are functions of rank and token, so that each rank knows those of
 * all.
 *
 * Sums follow the text of weft/moe.h step by step, with arithmetic of their
 * own: bits are compared.
 */
#ifndef TESTS_OVERLAP_MOES_H
#define TESTS_OVERLAP_MOES_H

#include "tests/comm/world.h"
#include "weft/moe.h"

#include <stdbool.h>
#include <stdio.h>

enum { MOES_MOST = 6 };

/* Who goes where. */
typedef enum moes_pattern {
    MOES_ANY,   /* any expert, twice the same and none included */
    MOES_ONE,   /* all tokens to the last expert */
    MOES_LONELY /* rank 1 has no tokens, and no expert of rank 0 any */
} moes_pattern;

typedef struct moes_scene {
    const char *device;
    bool streams;
    weft_dtype dtype, dispatch, combine;
    int hops, node_ranks;
    moes_pattern pattern;
    size_t hidden, tokens;
    int slots, experts_here;
    int rounds;
    size_t capacity;  /* 0: enough */
    int overflows_at; /* rank that has capacity, others have enough; or -1 */
    weft_device *devices[MOES_MOST];
} moes_scene;

/* Counts what is not right, and says what. */
int moes_check(bool right, const char *what);
#define CHECK(condition) moes_check(condition, #condition)

/* One rank of it. */
typedef struct moes_side {
    const moes_scene *of;
    weft_comm *comm;
    weft_device *device;
    weft_stream *stream;
    weft_moe *moe;
    int rank, nranks, experts;
    size_t capacity, row_bytes;
    /* The device's: arguments, and what comes out. */
    void *x, *out, *y, *dy, *expert, *weight, *dweight;
    size_t tokens; /* of this rank, in the round */
    int round;
} moes_side;

int moes_set_up(moes_side *self, weft_comm *comm, const moes_scene *of);
void moes_tear_down(moes_side *self);

/* Puts the round's arguments into x, expert and weight. */
int moes_fill(moes_side *self, int round);

/* The round's rows as they must have come, and how many each expert has;
 * with a NULL stream or behind a wait. */
int moes_check_rows(moes_side *self, const weft_moe_batch *batch);

/* What the experts make of a batch's rows, as they are on the host, into y. */
int moes_compute(moes_side *self, const weft_moe_batch *batch);

/* Whether out is the weighted sum, or without weights. */
int moes_check_sums(moes_side *self, bool weighted);

/* Whether dy and dweight are what they must be where dout was x. */
int moes_check_gradients(moes_side *self, const weft_moe_batch *batch);

/* Runs call on the ranks of a world as threads, each with a device. */
void moes_run_world(moes_scene of, int nranks, world_rank_call call);
weft_device *moes_open(const moes_scene *of);

#endif
