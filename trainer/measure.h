/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/measure.h - what overlap is worth: the same steps run in several ways
 * from the same state, and the transfers once by themselves.
 *
 *   ovl     as in training
 *   comp    every transfer replaced by nothing, all dependencies kept
 *   ser     every transfer done before compute goes on
 *   alone   the transfers of a step and no compute
 *
 *   O   = hidden / transferring, in ovl, of all ranks
 *   H   = 1 - (T_ovl - T_comp) / (T_ser - T_comp)
 *   s_C = compute in ovl / compute in comp
 *   s_M = transferring in ovl / transferring alone
 *
 * Where there are several classes of transfers, comp and ser are run for each
 * by itself too, all others as in ovl: its H compares these.
 *
 * What the nodes could not hide in this order of theirs, the rest, and what the
 * bytes cost plain sockets, c, are measured beside: H can be 1 - (rest + c) /
 * x, x being T_ser - T_comp.
 *
 * H_bare is the H of plain sockets (trainer/measure_bare.h): the same bytes,
 * behind the compute that comp has.
 *
 * What "nothing" leaves: nodes compute on the values that are there, messages
 * of a pipeline are an element of each chunk, and experts have as many rows as
 * in the last step that exchanged any. The kinds take turns, so that a machine
 * that slows down slows them all.
 */
#ifndef TRAINER_MEASURE_H
#define TRAINER_MEASURE_H

#include "trainer/measure_cost.h"
#include "trainer/measure_rest.h"
#include "trainer/train_step.h"

#include <stdio.h>

typedef enum wefti_measure_kind {
    WEFTI_MEASURE_OVERLAPPED,
    WEFTI_MEASURE_COMPUTE,
    WEFTI_MEASURE_SERIAL,
    WEFTI_MEASURE_ALONE,
    WEFTI_MEASURE_KINDS
} wefti_measure_kind;

/* Step times over all measured steps of a kind, the slowest rank's each. */
typedef struct wefti_measure_times {
    double median_ms, min_ms, max_ms;
    double spread_ms; /* median distance from the median */
} wefti_measure_times;

/* A step in ovl, in the mean over steps and ranks: the first is the sum of the
 * others. */
typedef struct wefti_measure_terms {
    double step_ms, compute_ms, exposed_ms, bubble_ms, skew_ms, idle_ms;
} wefti_measure_terms;

/*
 * How H compares with what there is to hide; NAN where a value does not apply.
 *
 * gain_ms    x: what serial steps take longer than compute alone
 * over_ms    what overlapped ones do: what is not hidden
 * bare_ms    c: trainer/measure_cost.h; of all classes the sum
 * ceiling    1 - (rest + c) / x
 * over_ratio over / (rest + c)
 * hiding_bare, bare_alone_ms   H_bare, and how long the sockets take alone;
 *            NAN where hiding_why says so, or that is below 3 spreads
 */
typedef struct wefti_measure_ceiling {
    double gain_ms, over_ms, rest_ms, bare_ms, ceiling, over_ratio;
    double hiding_bare, bare_alone_ms;
    const char *hiding_why; /* NULL: plain sockets ran beside compute */
    double spread_ms;     /* the larger one of those that over is found from */
    bool bare_nothing;    /* no byte crosses a socket: there is no c to count */
    const char *bare_why; /* why not, or why a class is not in the sum; NULL: it
                             was measured */
} wefti_measure_ceiling;

/* NAN where a value does not apply. */
typedef struct wefti_measure_class {
    bool there; /* ranks have such transfers: else all else is zero */
    double transfer_ms, hidden_ms, exposed_ms; /* a step and rank, in ovl */
    double overlap_ratio, hiding_ratio;
    wefti_measure_times without, serial;
    double sent_bytes;                        /* a step and rank */
    char fell_back[WEFTI_OVERLAP_TEXT_BYTES]; /* why it has no H; "": no */
    wefti_measure_ceiling ceiling;
} wefti_measure_class;

/* NAN where a value does not apply. */
typedef struct wefti_measure_result {
    wefti_measure_times times[WEFTI_MEASURE_KINDS];
    wefti_measure_terms terms;
    wefti_measure_class classes[WEFT_CLASS_COUNT];
    size_t steps; /* measured, of each kind */
    double overlap_ratio;
    double hiding_ratio; /* NAN also where T_ser - T_comp is below 3 spreads */
    double s_C;          /* this rank's, as s_M */
    double s_M;
    wefti_measure_rest rest; /* that ovl could not hide */
    wefti_measure_ceiling ceiling;
    double cpu_share; /* of compute in ovl, of all ranks */
    /* Of a step in ovl, in the mean over steps and ranks: what weft's threads
     * cost; wakeups_per_mib: of payload out and a MiB in. */
    double wakeups, wakeups_per_mib, preemptions, progress_ms;
} wefti_measure_result;

/*
 * wefti_measure_run - all ranks together; needs a ledger. Parameters, moments
 * and counters are afterwards what they were before.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_INVALID (no ledger) | the
 *             communicator's fault.
 */
WEFT_NODISCARD weft_status wefti_measure_run(wefti_replica *replica,
                                             wefti_measure_result *result_out);

/*
 * wefti_measure_find_ceilings - part of it: what the times and the rest say.
 *
 * Returns     OK | the communicator's fault.
 */
WEFT_NODISCARD weft_status wefti_measure_find_ceilings(
    const wefti_replica *replica, wefti_measure_result *result);

/* Whether what is not hidden exceeds 1.15 times rest and c by more than steps
 * differ; never where bare_why says that c is not all there is. */
bool wefti_measure_exceeds(const wefti_measure_ceiling *ceiling);

/*
 * wefti_measure_verdict - what H says, or why there is none, in a few words: of
 * a class, or of all (WEFT_CLASS_COUNT). Nothing is called hidden that slows
 * compute by a tenth.
 */
const char *wefti_measure_verdict(const wefti_measure_result *result,
                                  weft_class class_id);

/* A few lines for people. */
void wefti_measure_print(const wefti_measure_result *result, FILE *file);

#endif
