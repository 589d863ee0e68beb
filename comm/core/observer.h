/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/observer.h - how a ledger learns of operations, without comm
 * knowing that ledgers exist.
 */
#ifndef COMM_CORE_OBSERVER_H
#define COMM_CORE_OBSERVER_H

#include "weft/comm.h"
#include "weft/types.h"

#include <stdint.h>

/*
 * One piece of one operation: a run of chunks that moved without a pause. All
 * times on wefti_clock_ns. [posted_ns, ready_ns) is waiting for a late peer,
 * [ready_ns, end_ns) is transferring; posted <= ready <= end.
 */
typedef struct wefti_transfer {
    weft_collective collective;
    weft_class class_id;
    const char *label; /* may be NULL */
    uint64_t op_number;
    size_t bytes;      /* payload this rank sent and received in this piece */
    int64_t posted_ns; /* this rank's part was ready and posted */
    int64_t ready_ns;  /* so were those of the peers it needed */
    int64_t end_ns;
} wefti_transfer;

typedef struct wefti_observer {
    void (*moved)(void *context, const wefti_transfer *transfer);
    void *context;
} wefti_observer;

/*
 * wefti_comm_observe - call observer->moved for every transfer of comm, from
 * the thread that drives the engine; it must be short and may not block. NULL
 * ends it. Copied. Not while operations are in flight.
 *
 * Returns     OK | ERR_INVALID (comm NULL, or it already has an observer).
 */
WEFT_NODISCARD weft_status wefti_comm_observe(weft_comm *comm,
                                              const wefti_observer *observer);

#endif
