/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/patience.h - ranks that wait for something together which is not an
 * operation of weft's: a library's call, a first use of a route. Where it has
 * failed on one rank only, that rank goes on to conclude, and what the others
 * wait for may never end.
 */
#ifndef COMM_MAKE_PATIENCE_H
#define COMM_MAKE_PATIENCE_H

#include "comm/core/core.h"

typedef struct wefti_patience {
    weft_comm *comm;
    const char *what;
    int64_t limit_ns, until_ns;
    int64_t pause_ns; /* the last one */
    bool concluded;
} wefti_patience;

/* what: "<what> has not ended within ..". */
wefti_patience wefti_patience_begin(weft_comm *comm, const char *what);

/*
 * wefti_patience_go_on - one pause, longer than the one before, to 1 ms.
 *
 * Returns     OK | why it makes no sense to wait longer: ERR_PEER, ERR_TIMEOUT.
 */
WEFT_NODISCARD weft_status wefti_patience_go_on(wefti_patience *patience);

/*
 * wefti_patience_await - until all that is on stream has run, which event is
 * for the caller to have made.
 *
 * Returns     OK | what the device says | as wefti_patience_go_on.
 */
WEFT_NODISCARD weft_status wefti_patience_await(weft_comm *comm,
                                                weft_stream *stream,
                                                weft_event *event,
                                                const char *what);

/*
 * wefti_patience_put, _compare - what a first use moves, in memory of comm's
 * device: WEFTI_TRIED_ELEMS numbers, step, 2 step, 3 step ..; and whether what
 * a use of that name gave is right.
 *
 * Returns     OK | ERR_SYSTEM: it is not | as weft_device_copy.
 */
enum { WEFTI_TRIED_ELEMS = 4 };
WEFT_NODISCARD weft_status wefti_patience_put(const weft_comm *comm,
                                              int32_t *data, int32_t step);
WEFT_NODISCARD weft_status wefti_patience_compare(const weft_comm *comm,
                                                  const int32_t *data,
                                                  int32_t step,
                                                  const char *what);

/*
 * wefti_patience_conclude - all have done well, or why one has not: not that it
 * waited for another, if there is a better reason. Collective.
 *
 * Returns     as wefti_consensus_conclude.
 */
WEFT_NODISCARD weft_status wefti_patience_conclude(weft_comm *comm,
                                                   const char *what,
                                                   weft_status built);

#endif
