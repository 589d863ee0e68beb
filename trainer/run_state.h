/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/run_state.h - a run from inside: what run_open.c opens, run.c trains
 * with and closes, and run_sum.c ends with.
 */
#ifndef TRAINER_RUN_STATE_H
#define TRAINER_RUN_STATE_H

#include "trainer/loop.h"
#include "trainer/pipe/trials.h"
#include "trainer/run.h"
#include "weft/schedule.h"

typedef struct wefti_run_state {
    wefti_run_config how;
    wefti_config config;
    weft_device *device;
    weft_comm *comm;
    wefti_data data, encoder_data;
    weft_ledger *ledger;
    wefti_trials trials;     /* of schedules, before the run */
    weft_schedule *schedule; /* this rank's copy's */
    wefti_overlap_verdict overlap;
    wefti_replica replica;
    wefti_savepoint savepoint;
    wefti_checkpoint_owner owner;              /* of where it saves */
    char resumed[WEFTI_CHECKPOINT_PATH_BYTES]; /* "": it began anew */
    wefti_metrics metrics;
    wefti_progress progress;
    wefti_summary summary;
    wefti_measure_result measured;
    wefti_page page;                 /* zeros: no report */
    wefti_expert_loads expert_loads; /* rank 0's, where ranks share experts */
    wefti_loop loop;
    /* What close has to undo. */
    bool has_config, has_data, has_replica, has_metrics, has_progress,
        has_summary;
    bool alone;   /* the others have gone on without this rank */
    bool is_over; /* and need it no more: it ends well */
} wefti_run_state;

/* Whether this rank prints: rank 0 does. */
bool wefti_run_prints(const wefti_run_state *state);

/*
 * wefti_run_open - all of it, up to the files.
 *
 * everywhere  set where every rank fails alike
 */
WEFT_NODISCARD weft_status wefti_run_open(wefti_run_state *state,
                                          bool *everywhere);

/* Which schedule a pipeline has, auto or named; comm and data are there. */
WEFT_NODISCARD weft_status wefti_run_choose_schedule(wefti_run_state *state);

/* What overlap is worth: tried where it is asked for, or as the checkpoint has
 * it that is gone on with. again: after a loss, which leaves another layout. */
WEFT_NODISCARD weft_status wefti_run_try_overlap(wefti_run_state *state,
                                                 bool again);

/* Ledger, schedule and replica, on the communicator at hand. */
WEFT_NODISCARD weft_status wefti_run_open_replica(wefti_run_state *state);

/* Goes on with another communicator, or with none. */
void wefti_run_replace_comm(wefti_run_state *state, weft_comm *comm);

/*
 * wefti_run_generate - text from the final state, rank 0's to print; in a
 * pipeline by all ranks of the first copy.
 */
WEFT_NODISCARD weft_status wefti_run_generate(wefti_run_state *state);

/* wefti_run_sum_up - rank 0's closing summary. */
WEFT_NODISCARD weft_status wefti_run_sum_up(wefti_run_state *state);

#endif
