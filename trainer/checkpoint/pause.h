/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/pause.h - snapshots inside a step of training, and going
 * on from one.
 *
 *   the list      |------cut------cut------cut------|  norm, update
 *   this rank      run, copy, run, copy, ...
 *   its writer             write, commit               beside the compute
 *
 * A cut has nothing under way between ranks (overlap/schedule/cut.h), so each
 * rank stops when it comes there and waits only for messages and reductions
 * that are before the cut everywhere. What it has is copied, and goes on
 * changing while the replica's saver writes the copy
 * (trainer/checkpoint/saver.h), which comes after what it has to write already:
 * the state of the step's beginning (values, moments, counters), the executor's
 * state, live slots, what of the gradients' tree is there, or already reduced,
 * and losses. No random numbers are drawn in a step; which text comes next
 * follows from the counters.
 *
 * Files are those of trainer/checkpoint/checkpoint.h, in a folder of their own:
 * one snapshot, the newest. What a rank alone has, as tensors of its own, named
 * inside.RANK.*. All ranks make the same calls in the same order.
 */
#ifndef TRAINER_CHECKPOINT_PAUSE_H
#define TRAINER_CHECKPOINT_PAUSE_H

#include "trainer/checkpoint/saver.h"

/* A snapshot's own numbers: where it stands, and what must be the same. */
typedef enum wefti_pause_field {
    WEFTI_PAUSE_PLACE,
    WEFTI_PAUSE_POSITION,
    WEFTI_PAUSE_STATE_BYTES,
    WEFTI_PAUSE_LISTS, /* the digest; from here on they must be the same */
    WEFTI_PAUSE_MICROBATCHES,
    WEFTI_PAUSE_MICRO_BATCH,
    WEFTI_PAUSE_GLOBAL_BATCH,
    WEFTI_PAUSE_SLOTS,
    WEFTI_PAUSE_FIELDS
} wefti_pause_field;

/* Where in which step the copy was made. */
typedef struct wefti_pause_mark {
    uint64_t step; /* done before */
    uint64_t next_sequence;
    size_t place;       /* actions of all ranks before the cut */
    size_t position;    /* of this rank's list */
    size_t state_bytes; /* of the executor; 0 at the list's end */
} wefti_pause_mark;

typedef struct wefti_pause {
    wefti_replica *replica;
    wefti_savepoint point;
    size_t cut_count;
    size_t *ends;    /* [cut_count] of this rank's list */
    size_t *places;  /* [cut_count] of all ranks' lists together */
    size_t actions;  /* of this rank's list */
    uint64_t digest; /* of all ranks' lists, and of how slots are planned */
    bool pending;    /* the copy is to go on from */
    bool partial;    /* the last step went on from one */
    wefti_pause_mark mark;
    uint8_t *live;                      /* [slots] 1: of the copy */
    int64_t fields[WEFTI_PAUSE_FIELDS]; /* of the copy */
    wefti_state_list list;
    size_t base_count; /* the first are those of any savepoint */
} wefti_pause;

/*
 * wefti_pause_create - adds a place to pause to replica, which has a saver; the
 * replica's fini ends it.
 *
 * point    copied; its dir does not count
 * count    snapshots in a step, for which the saver has to write; 0: none, but
 *          it can go on from one
 *
 * Returns     OK | ERR_INVALID | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_pause_create(wefti_replica *replica,
                                              const wefti_savepoint *point,
                                              size_t count);

/* After the saver. NULL is legal. */
void wefti_pause_destroy(wefti_pause *pause);

/*
 * wefti_pause_run - the step's list, with its cuts; from where the copy stands,
 * if there is one to go on from. What begins a step has been done.
 *
 * Returns     as weft_pipeline_run | what writing the snapshot before has
 *             come to, on all ranks alike.
 */
WEFT_NODISCARD weft_status wefti_pause_run(wefti_pause *pause);

/*
 * How many of its snapshots the steps from here on take; returns how many they
 * took before. What is only measured leaves none. NULL: there are none.
 */
size_t wefti_pause_set_cuts(wefti_pause *pause, size_t count);

/* Whether the spans of the last step are those of a part of it. */
bool wefti_pause_is_partial(const wefti_pause *pause);

/*
 * wefti_pause_check, _get - a snapshot: whether it was taken in this run's
 * schedule and batch, and what this rank needs of it is sound; and into the
 * copy, for the next step.
 *
 * Return      OK | ERR_INVALID | ERR_SYSTEM | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_pause_check(wefti_pause *pause,
                                             wefti_checkpoint_reader *reader);
WEFT_NODISCARD weft_status wefti_pause_get(wefti_pause *pause,
                                           wefti_checkpoint_reader *reader);

/*
 * Between pause*.c.
 *
 * list      the pieces that there are at mark and live
 * describe  the fields at mark
 * own       a piece of what this rank alone has
 * take      the state into the copy; apply: the copy, without the pieces of any
 *           savepoint, into the state
 * start     hands the copy to the writer, which is settled
 */
void wefti_pause_list(wefti_pause *pause);
size_t wefti_pause_count_pieces(const wefti_pause *pause);
void wefti_pause_describe(const wefti_pause *pause,
                          int64_t fields[WEFTI_PAUSE_FIELDS]);
void wefti_pause_own(const wefti_pause *pause, const char *name,
                     weft_dtype dtype, void *live, size_t elems,
                     wefti_checkpoint_piece *piece_out);
bool wefti_pause_is_reduced(const wefti_pause *pause, size_t stage,
                            size_t position);
weft_status wefti_pause_take(wefti_pause *pause);
weft_status wefti_pause_apply(wefti_pause *pause);
void wefti_pause_start(wefti_pause *pause);

#endif
