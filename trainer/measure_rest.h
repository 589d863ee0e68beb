/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/measure_rest.h - the rest: what the nodes of a step, in their order,
 * could not hide if transfers cost no compute.
 *
 * Compute alone says how long each stretch between two calls of the score
 * (trainer/program/score.h) is, serial steps how long each operation takes
 * alone: until the last of its ranks has come to it, none of its time counts.
 * The replay (trainer/step_replay.h) of several steps one after the other, as
 * parameters are gathered in one and awaited in the next, gives a step's length
 * in the middle of them; what that is more than the stretches' sum is the rest.
 * All ranks count as alike, each with one way out and one in, and an operation
 * takes both: on a link it stands alone. A class that compute waits for goes
 * first, as in weft: what moves in bulk stands back for it.
 */
#ifndef TRAINER_MEASURE_REST_H
#define TRAINER_MEASURE_REST_H

#include "trainer/replica.h"

enum { WEFTI_REST_NODES = 4 };

/* For how long a step stands still, in the replay, for operations of a name. */
typedef struct wefti_rest_node {
    const char *label; /* NULL: no more */
    weft_class class_id;
    double ms;
} wefti_rest_node;

/*
 * Of a step; NAN where why says so.
 *
 * rest_ms    class_ms: what is less without that class; whole ns
 * least_ms   what no order of operations on the links could hide; NAN also
 *            where a step has too many to search, and why is NULL
 * alone_ms   all operations of a step, one after the other
 * ops        of a step, of each class
 */
typedef struct wefti_measure_rest {
    double rest_ms, least_ms, alone_ms;
    double class_ms[WEFT_CLASS_COUNT];
    size_t ops[WEFT_CLASS_COUNT];
    wefti_rest_node nodes[WEFTI_REST_NODES]; /* most first */
    const char *why;                         /* NULL: there is a rest */
} wefti_measure_rest;

/* What has been noted so far, of one rank. */
typedef struct wefti_rest_log {
    wefti_score score;
    wefti_score step;      /* the notes of one step, and its calls */
    size_t samples;        /* of each kind, at most */
    double *samples_ns[2]; /* [calls][samples]: stretches; calls of serial */
    size_t taken[2];
    const char *why;
} wefti_rest_log;

typedef enum wefti_rest_kind {
    WEFTI_REST_COMPUTE,
    WEFTI_REST_SERIAL
} wefti_rest_kind;

/* samples: steps of each kind that will be taken. */
void wefti_rest_init(wefti_rest_log *log, const wefti_replica *replica,
                     size_t samples);
void wefti_rest_fini(wefti_rest_log *log);

/* From now on the replica's steps are noted, until take; wefti_score_step ends
 * each. */
void wefti_rest_listen(wefti_rest_log *log, wefti_replica *replica);

/* What was noted since, but for the first steps, so many. */
void wefti_rest_take(wefti_rest_log *log, wefti_replica *replica,
                     wefti_rest_kind kind, size_t skipped_steps);

/*
 * wefti_rest_find - all ranks together.
 *
 * Returns     OK | ERR_NO_MEMORY | comm's fault.
 */
WEFT_NODISCARD weft_status wefti_rest_find(wefti_rest_log *log, weft_comm *comm,
                                           wefti_measure_rest *rest_out);

#endif
