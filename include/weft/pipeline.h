/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/pipeline.h - executes a schedule's list on real ranks: each rank runs
 * its own list in order; what a compute action does is given by calls; what
 * flows between stages travels in chunks of rows.
 *
 *   rank r        F(s,i) -- signal(rows) --> gate --+      sends posted before
 *                                                   | send   they are filled
 *   rank r+1                                        v
 *                 F(s+1,i) <-- wait(rows) --- gate <-+     receives posted
 *                                                          where the list says
 *
 * So the next stage starts when its first chunk is there. Neighbouring stages
 * on one rank (the turn of a V) hand their buffer over without a message.
 *
 * Which buffer, which slot of activations and which post belongs where follows
 * from the list alone and is settled when a pipeline
 * is made: a step allocates nothing, and what it holds at its peak is known
 * before. docs/pipeline.md tells the whole.
 */
#ifndef WEFT_PIPELINE_H
#define WEFT_PIPELINE_H

#include "weft/comm.h"
#include "weft/device.h"
#include "weft/ledger.h"
#include "weft/schedule.h"
#include "weft/schedule_cost.h"
#include "weft/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* weft_rows_tie - what ties rows to the gate they come or go by: weft's. */
typedef struct weft_rows_tie weft_rows_tie;

/*
 * weft_rows - rows that come or go in chunks: an activation or its gradient.
 *
 * data        [rows, or what stage_rows says][row_elems] of the pipeline's
 *             dtype, in device memory; valid until the call that got it
 *             returns.
 * tie         NULL: all rows are there, and nobody waits for them. So a struct
 *             with nothing but data serves tests of a stage by itself.
 */
typedef struct weft_rows {
    void *data;
    weft_rows_tie *tie;
} weft_rows;

/*
 * weft_rows_wait - rows [0, end_row) may be read. NULL rows: at once.
 *
 * A value beyond the last row counts as the last. Time spent waiting here is
 * no compute: it goes to the ledger and the step's record as what it is.
 *
 * Returns     OK | the communicator's fault | with a compute stream as
 *             weft_gate_wait.  Blocks: unless there is one.
 */
WEFT_NODISCARD weft_status weft_rows_wait(weft_rows *rows, size_t end_row);

/*
 * weft_rows_signal - rows [0, end_row) have been written and will not be
 * again: whole chunks of them may be sent. Never goes back. NULL: nothing.
 *
 * What the call does not signal counts as written when it returns OK.
 *
 * Returns     OK | the communicator's fault.  Blocks: no.
 */
WEFT_NODISCARD weft_status weft_rows_signal(weft_rows *rows, size_t end_row);

/*
 * weft_pipeline_work - one compute action for one micro-batch.
 *
 * type         F I W B, RECOMPUTE OFFLOAD RELOAD RELEASE; never FB.
 * stage        of the schedule; model_stage: the same without the direction,
 *              0 .. stages of a direction - 1; direction: 0 or 1.
 * microbatch   of the direction.
 * first, last  the stage is the first or last of the model.
 * slot         where the activations of (stage, microbatch) live: a number
 *              below the peaks' slots, from F to the end of B or W, or to the
 *              end of F or OFFLOAD, and again from RECOMPUTE or RELOAD. No two
 *              live ones share one, whatever their stages.
 * stage_slot   the same counted for each stage by itself, for who keeps a
 *              store per stage (weft_pipeline_get_stage_slots).
 * kept         where what RECOMPUTE or RELOAD needs lives, from F to the end
 *              of that; below the peaks' kept; -1: nothing is needed.
 * input        F: the activation; I, B: the gradient of F's output. NULL: at
 *              the end of the model, and for W and the others.
 * output       F: the activation; I, B: the gradient of F's input. NULL
 *              likewise. Undefined before: all of it must be written.
 */
typedef struct weft_pipeline_work {
    weft_action_type type;
    int stage;
    int model_stage;
    int direction;
    int microbatch;
    bool first, last;
    int slot;
    int stage_slot;
    int kept;
    weft_rows *input;
    weft_rows *output;
} weft_pipeline_work;

/*
 * weft_pipeline_calls - what actions do. Each is done when it returns OK; any
 * other status ends the step, and the communicator is aborted so that no other
 * rank waits for this one. Called from the thread that runs the pipeline; they
 * post nothing to its communicator (a communicator of their own is theirs).
 *
 * input and output may be in chunks: wait before reading, signal after writing.
 * What a later action needs of the input must be kept in the slot.
 *
 * forward          F
 * backward_input   I          backward_weight   W, which gets no rows
 * backward         B; NULL: backward_input, then backward_weight
 * pair             FB; both first chunks are there. NULL: F, then B
 * recompute, offload, reload    needed only where the list has them
 * release          the storage of F's output has been given back; NULL: nobody
 *                  wants to know
 * whole            REDUCE_GRAD OPT GATHER_PARAM UNSHARD RESHARD EMA of a stage;
 *                  needed only where the list has them
 */
typedef struct weft_pipeline_calls {
    size_t size_bytes; /* sizeof(weft_pipeline_calls) */
    weft_status (*forward)(void *context, const weft_pipeline_work *f);
    weft_status (*backward_input)(void *context, const weft_pipeline_work *i);
    weft_status (*backward_weight)(void *context, const weft_pipeline_work *w);
    weft_status (*backward)(void *context, const weft_pipeline_work *b);
    weft_status (*pair)(void *context, const weft_pipeline_work *f,
                        const weft_pipeline_work *b);
    weft_status (*recompute)(void *context, const weft_pipeline_work *r);
    weft_status (*offload)(void *context, const weft_pipeline_work *o);
    weft_status (*reload)(void *context, const weft_pipeline_work *r);
    weft_status (*release)(void *context, const weft_pipeline_work *r);
    weft_status (*whole)(void *context, weft_action_type type, int stage);
} weft_pipeline_calls;

/* weft_pipeline - one rank's list, with what it needs to be run. */
typedef struct weft_pipeline weft_pipeline;

/*
 * weft_pipeline_stop, _resume - from inside a call: the rank stops for what is
 * no rows (parameters under way), and goes on. As with weft_rows_wait the time
 * between is no compute, and the action's record says what was waited for
 * (NONE: nothing, the rank did what is no compute).
 */
void weft_pipeline_stop(weft_pipeline *pipeline, weft_schedule_wait wait);
void weft_pipeline_resume(weft_pipeline *pipeline);

/*
 * weft_pipeline_config - what is executed, where, with what.
 *
 * schedule       lowered; borrowed and unchanged for the pipeline's life.
 * comm           one rank for each of the schedule's, the same numbers; the
 *                pipeline alone posts sends and receives to it. Borrowed.
 * device         where buffers are; the one comm was made with. Borrowed.
 * ledger         of compute spans; NULL: none. Borrowed.
 * rows, row_elems, dtype
 *                one activation of a micro-batch, and so its gradient, at most;
 *                the same on all ranks.
 * chunk_rows     rows that are sent and awaited together; 0: all. The same on
 *                all ranks.
 * receive_ahead  compute actions by which receives are posted earlier than the
 *                list says; each may take one more buffer for each peer.
 * spare_buffers  sends that may still be under way after the list has done
 *                with them; when there are more, the rank waits. 0: two for
 *                each peer that this rank sends to.
 * stage_rows     [stages of the schedule] rows of what each sends on, and so of
 *                the gradient that comes back, where stages differ: 1 .. rows;
 *                of a last stage it is not read. NULL: rows. The same on all
 *                ranks. Borrowed.
 * calls, context what the actions do; copied, borrowed.
 * compute        of device: the stream that calls queue their work on. Neither
 *                they nor the pipeline wait then: weft_rows_wait lets what is
 *                queued later wait, weft_rows_signal signals behind what is
 *                queued, and a run returns when all is queued. What spans say
 *                is when the host came by; the ledger has the stream's times.
 *                NULL: calls compute before they return. Borrowed.
 */
typedef struct weft_pipeline_config {
    size_t size_bytes; /* sizeof(weft_pipeline_config) */
    const weft_schedule *schedule;
    weft_comm *comm;
    weft_device *device;
    weft_ledger *ledger;
    size_t rows;
    size_t row_elems;
    weft_dtype dtype;
    size_t chunk_rows;
    int receive_ahead;
    int spare_buffers;
    const weft_pipeline_calls *calls;
    void *context;
    weft_stream *compute;
    const size_t *stage_rows;
} weft_pipeline_config;

/*
 * weft_pipeline_create - checks the schedule and makes all it needs.
 *
 * Lists are checked with WEFT_SEMANTICS_GROUPED: what is valid then is never
 * stopped here, where sends block only for lack of buffers.
 *
 * Returns     OK | ERR_INVALID (the schedule is not lowered, or not valid: the
 *             checker's text; other ranks; a call is missing; sizes) |
 *             ERR_NO_MEMORY | ERR_SYSTEM.  Blocks: no; not collective.
 */
WEFT_NODISCARD weft_status weft_pipeline_create(
    const weft_pipeline_config *config, weft_pipeline **pipeline_out);

/*
 * weft_pipeline_destroy - between steps, at a cut that all ranks have come to,
 * or after a failure; when the compute stream has drained. NULL is legal.
 */
void weft_pipeline_destroy(weft_pipeline *pipeline);

/*
 * weft_pipeline_run - runs this rank's list up to action end (not included),
 * from where the last run ended, or from the beginning if that was the list's
 * end; SIZE_MAX: to the list's end.
 *
 * No message that stands at end or behind it is posted, so ranks that stop at
 * a cut (docs/pipeline.md) have nothing under way between them.
 *
 * Returns     OK | the communicator's fault, with its text, now and from then
 *             on | what a call returned, likewise | ERR_INVALID (NULL; end lies
 *             before what has been run).
 * Threads     one.  Blocks: yes, unless there is a compute stream.
 */
WEFT_NODISCARD weft_status weft_pipeline_run(weft_pipeline *pipeline,
                                             size_t end);

/*
 * weft_pipeline_settle - what has been posted has gone or come, and what calls
 * have queued has run. A run to the list's end does so by itself, unless there
 * is a compute stream; at a cut all ranks call it.
 *
 * Returns     OK | as weft_pipeline_run.  Blocks: yes.
 */
WEFT_NODISCARD weft_status weft_pipeline_settle(weft_pipeline *pipeline);

/*
 * weft_pipeline_get_state_bytes - how long what pack writes is where it stands;
 * 0 for NULL.
 */
size_t weft_pipeline_get_state_bytes(const weft_pipeline *pipeline);

/*
 * weft_pipeline_get_state_bytes_most - how long it is at any cut, at most; 0
 * for NULL.
 */
size_t weft_pipeline_get_state_bytes_most(const weft_pipeline *pipeline);

/*
 * weft_pipeline_pack, _unpack - a pipeline that stands in the middle of a step
 * as bytes, and back: its position, and the messages that are in its buffers.
 * What the calls keep (slots, gradients) is their own to save.
 *
 * pack     at a cut that all ranks have come to (docs/pipeline.md);
 *          settles first.
 * unpack   between steps, into a pipeline of the same schedule, sizes and
 *          rank; the next run goes on where it stood. All ranks.
 * state    [weft_pipeline_get_state_bytes, at the cut], of any alignment.
 *
 * Returns     OK | as weft_pipeline_run | ERR_INVALID (unpack: the state is
 *             another pipeline's, or damaged; this one is of no more use).
 */
WEFT_NODISCARD weft_status weft_pipeline_pack(weft_pipeline *pipeline,
                                              void *state);
WEFT_NODISCARD weft_status weft_pipeline_unpack(weft_pipeline *pipeline,
                                                const void *state,
                                                size_t state_bytes);

/* The action that the next run begins with: 0 between steps. */
size_t weft_pipeline_get_position(const weft_pipeline *pipeline);

/* Whether activations live in a slot (below the peaks' slots) where it stands.
 */
bool weft_pipeline_is_slot_live(const weft_pipeline *pipeline, int slot);

/*
 * weft_pipeline_peaks - what a rank holds at most.
 *
 * slots      activations of a stage and a micro-batch: the checker's peak in
 *            device units, times the schedule's chunks.
 * kept       what RECOMPUTE and RELOAD need.
 * received   messages received, or asked for, and not yet used: the checker's
 *            early (with receive_ahead 0).
 * held       those, and what has been made for another stage and that the list
 *            has not done with: until its RELEASE, or without one until the
 *            end of the stage's backward for the micro-batch; gradients until
 *            they are sent.
 * buffers    held, and those under way after that.
 * bytes      of buffers.
 */
typedef struct weft_pipeline_peaks {
    size_t size_bytes; /* sizeof(weft_pipeline_peaks) */
    int slots;
    int kept;
    int received;
    int held;
    int buffers;
    size_t bytes;
} weft_pipeline_peaks;

/*
 * weft_pipeline_predict - a rank's peaks, from the list alone. Of config count
 * schedule, rows, row_elems, dtype, receive_ahead and spare_buffers.
 *
 * Returns     OK | ERR_INVALID | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status
weft_pipeline_predict(const weft_pipeline_config *config, int rank,
                      weft_pipeline_peaks *peaks_out);

/*
 * weft_pipeline_get_peaks - what steps have held so far.
 *
 * Returns     OK | ERR_INVALID.
 */
WEFT_NODISCARD weft_status weft_pipeline_get_peaks(
    const weft_pipeline *pipeline, weft_pipeline_peaks *peaks_out);

/* Slots that a stage of this rank needs for itself; 0: another rank's. */
int weft_pipeline_get_stage_slots(const weft_pipeline *pipeline, int stage);

/*
 * weft_pipeline_span - when an action ran in the last step, on
 * CLOCK_MONOTONIC. A message's: when it was posted.
 *
 * reached_ns   the rank had done with the action before.
 * begin_ns     what it waited for was there (of a message: its first chunk).
 * waited_ns    between begin and end: for further chunks.
 * wait         what it waited for, before or while it ran.
 */
typedef struct weft_pipeline_span {
    int64_t reached_ns, begin_ns, end_ns, waited_ns;
    weft_schedule_wait wait;
    int wait_rank; /* -1: none */
} weft_pipeline_span;

/* One for each action of this rank's list, in its order; borrowed. */
const weft_pipeline_span *weft_pipeline_get_spans(const weft_pipeline *p);

/*
 * weft_pipeline_measure - a step of all ranks as one run, for the painter and
 * for comparisons with the simulator's; collective, between steps.
 *
 * spans             [actions of this rank's list] of that step, as get_spans
 *                   gave them after it; NULL: the last one's.
 * unit_ns           of the run's times; 1e6: in ms.
 * clock_error_out   in ns, by how much the ranks' clocks may differ after they
 *                   have been aligned; 0: they are one; NULL: not wanted.
 *
 * Returns     OK (weft_schedule_run_fini it) | ERR_INVALID | ERR_NO_MEMORY |
 * the fault.
 */
WEFT_NODISCARD weft_status weft_pipeline_measure(
    weft_pipeline *pipeline, const weft_pipeline_span *spans, double unit_ns,
    weft_schedule_run *run_out, int64_t *clock_error_out);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
