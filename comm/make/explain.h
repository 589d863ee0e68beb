/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/explain.h - what others ask of a communicator: what it was made
 * with, and what it would do.
 */
#ifndef COMM_MAKE_EXPLAIN_H
#define COMM_MAKE_EXPLAIN_H

#include "comm/core/select.h"

/*
 * wefti_comm_explain - the name of the algorithm that op would get on comm,
 * and of the fabric. Both live for ever.
 */
const char *wefti_comm_explain(weft_comm *comm, const weft_op *op,
                               const char **fabric_out);

/*
 * wefti_comm_allow - the algorithms that this rank's next posts of the
 * collective may take, as WEFT_ALGO says it; 0: all. All ranks of comm allow
 * the same before they post, by the thread that posts.
 *
 * Returns     those before.
 */
wefti_algorithms wefti_comm_allow(weft_comm *comm, weft_collective collective,
                                  wefti_algorithms allowed);

/* What was asked to carry operations out (WEFT_ROUTE). */
wefti_route_kind wefti_comm_route(const weft_comm *comm);

/* The host of each rank, from 0, where such sums on comm have two levels; NULL:
 * one level. */
const int *wefti_comm_sum_hosts(const weft_comm *comm, weft_dtype dtype,
                                weft_redop redop);

/* How many network devices its messages are spread over; 0: it sends none. */
int wefti_comm_rails(const weft_comm *comm);

/* The name of one of them, and what it was measured to carry; NULL: it was
 * not. */
const char *wefti_comm_rail(const weft_comm *comm, int rail, double *GBps_out);

/* Why large messages of comm are staged; NULL: each is read where it lies in
 * its sender's buffer. */
const char *wefti_comm_staged_why(weft_comm *comm);

/* Whether those in a weft_mem of comm are read there, all the same. */
bool wefti_comm_reads_mapped(weft_comm *comm);

/*
 * wefti_comm_explain_fault - what a gate, or a post, shows only as a failure:
 * the communicator's fault with its text, if it has one.
 *
 * Returns     status where that is none, or the communicator has no fault.
 */
WEFT_NODISCARD weft_status wefti_comm_explain_fault(weft_comm *comm,
                                                    weft_status status);

/* Whether this rank's host, as far as it can see, has more ranks than cores. */
bool wefti_comm_is_oversubscribed(const weft_comm *comm);

#endif
