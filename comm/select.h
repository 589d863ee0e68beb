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
    bool sum_flat; /* sums ignore which ranks share memory */
} wefti_tuning;

/* pattern NULL: one-shot, inside the entries. digest: for the signature. */
typedef struct wefti_choice {
    const wefti_pattern *pattern;
    size_t chunk_elems;
    uint8_t digest;
} wefti_choice;

/*
 * wefti_tuning_read - from WEFT_ALGORITHM, WEFT_CHUNK_BYTES, WEFT_MACHINES,
 * WEFT_SUM_FLAT and WEFT_EMULATE_GBPS.
 *
 * Returns     OK | ERR_INVALID: the text names variable, value and what is
 *             allowed.
 */
WEFT_NODISCARD weft_status wefti_tuning_read(wefti_tuning *tuning_out);

/* grouping: of the ranks; NULL: there is one level. */
wefti_choice wefti_select(const wefti_tuning *tuning, int nranks,
                          const wefti_grouping *grouping, const weft_op *op,
                          const wefti_role *role);

/*
 * Whether sums of op follow one tree over all ranks also where there are
 * levels: WEFT_SUM_FLAT, if another order would show, and reductions of a
 * program's own, which need not commute.
 */
bool wefti_select_is_flat(const wefti_tuning *tuning, const weft_op *op);

/* What a buffer must hold for any step of any operation: a chunk, wide or not,
 * or a one-shot's result. */
size_t wefti_select_bounce_bytes(const wefti_tuning *tuning, int nranks,
                                 const wefti_grouping *grouping);

/* The name of the algorithm that a digest stands for. */
const char *wefti_choice_name(uint8_t digest);

/* Why wefti_select chooses as it does, in one sentence; lives for ever. */
const char *wefti_select_why(const wefti_tuning *tuning, int nranks,
                             const wefti_grouping *grouping, const weft_op *op);

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

/* Which of its ranks share memory; NULL: there is one level. */
const wefti_grouping *wefti_comm_grouping(const weft_comm *comm);

/* The host of each rank, from 0, where such sums on comm have two levels; NULL:
 * one level. */
const int *wefti_comm_sum_hosts(const weft_comm *comm, weft_dtype dtype,
                                weft_redop redop);

/* How many network devices its messages are spread over; 0: it sends none. */
int wefti_comm_rails(const weft_comm *comm);

/* Whether this rank's host, as far as it can see, has more ranks than cores. */
bool wefti_comm_is_crowded(const weft_comm *comm);

#endif
