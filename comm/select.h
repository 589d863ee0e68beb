/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/select.h - which algorithm and chunk size an operation gets. Depends
 * only on what all ranks have in common, so that all choose alike.
 */
#ifndef COMM_SELECT_H
#define COMM_SELECT_H

#include "comm/pattern/pattern.h"
#include "comm/pattern/shape.h"
#include "weft/op.h"

/*
 * Rank 0's settings, sent to everybody when the job is made.
 *
 * forced   per collective: 0 = free choice, 1 = one-shot where it fits, else
 *          2 + index in wefti_patterns.
 */
typedef struct wefti_tuning {
    uint32_t chunk_bytes; /* 0: by size */
    uint8_t forced[WEFT_COLLECTIVE_COUNT];
    double emulate_gbps;
    bool machines; /* hosts describe themselves */
} wefti_tuning;

/* pattern NULL: one-shot, inside the entries. digest: for the signature. */
typedef struct wefti_choice {
    const wefti_pattern *pattern;
    size_t chunk_elems;
    uint8_t digest;
} wefti_choice;

/*
 * wefti_tuning_read - from WEFT_ALGORITHM, WEFT_CHUNK_BYTES, WEFT_MACHINES and
 * WEFT_EMULATE_GBPS.
 *
 * Returns     OK | ERR_INVALID: the text names variable, value and what is
 *             allowed.
 */
WEFT_NODISCARD weft_status wefti_tuning_read(wefti_tuning *tuning_out);

wefti_choice wefti_select(const wefti_tuning *tuning, int nranks,
                          const weft_op *op, const wefti_role *role);

/* What a buffer must hold for any step of any operation: a chunk, wide or not,
 * or a one-shot's result. */
size_t wefti_select_bounce_bytes(const wefti_tuning *tuning, int nranks);

/* The name of the algorithm that a digest stands for. */
const char *wefti_choice_name(uint8_t digest);

/* Why wefti_select chooses as it does, in one sentence; lives for ever. */
const char *wefti_select_why(const wefti_tuning *tuning, int nranks,
                             const weft_op *op);

/* Bytes that one rank contributes in an entry when the operation is one-shot.
 */
size_t wefti_oneshot_bytes(int nranks, const weft_op *op,
                           const wefti_role *role);

/*
 * wefti_comm_explain - the name of the algorithm that op would get on comm,
 * and of the fabric. Both live for ever.
 */
const char *wefti_comm_explain(weft_comm *comm, const weft_op *op,
                               const char **fabric_out);

/* What was agreed when it was made. */
const wefti_tuning *wefti_comm_tuning(const weft_comm *comm);

/* How many network devices its messages are spread over; 0: it sends none. */
int wefti_comm_rails(const weft_comm *comm);

/* Whether this rank's host, as far as it can see, has more ranks than cores. */
bool wefti_comm_is_crowded(const weft_comm *comm);

#endif
