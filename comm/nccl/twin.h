/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/nccl/twin.h - the NCCL communicator beside one of weft's: the same ranks
 * in the same order, for operations that are handed over as a whole.
 *
 * All ranks have one, or none: they agree when the communicator is made, and
 * where one rank cannot (no NCCL, another version, no GPU, one that another
 * rank has too) the cause is kept in comm->route_why and logged, and weft's own
 * steps carry everything out.
 *
 * After a fault a thread of its own calls ncclCommAbort, which may take long.
 *
 * It does not block (blocking 0): a call of NCCL may return before it is done,
 * and is then looked after until it is.
 */
#ifndef COMM_NCCL_TWIN_H
#define COMM_NCCL_TWIN_H

#include "comm/core/core.h"
#include "comm/nccl/nccl_api.h"

/*
 * calls     held around all of NCCL's calls with handle but the abort's
 * aborted   set before the abort: a thread that holds calls makes no more
 * end       OVER, from the abort: nothing of NCCL's touches a buffer any more.
 *           LOST: no rank waits for it any longer, or touches the twin
 * aborting  guarded by the engine's lock; looked_ns by calls
 * handed    collectives that it was given: who posts counts them
 */
enum { WEFTI_TWIN_OPEN, WEFTI_TWIN_OVER, WEFTI_TWIN_LOST };

struct wefti_twin {
    const wefti_nccl_api *api;
    struct ncclComm *handle;
    weft_comm *comm;
    weft_stream *stream; /* of operations that are on none */
    bool small_floats;   /* adds fp8, on all ranks */
    pthread_mutex_t calls;
    _Atomic bool aborted;
    _Atomic int end;
    pthread_t aborter;
    bool aborting;
    int64_t looked_ns;
    uint32_t handed;
};

/* One without a communicator of NCCL's yet. Returns OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_twin_create(weft_comm *comm,
                                             const wefti_nccl_api *api,
                                             bool small_floats,
                                             wefti_twin **twin_out);

/* Its end, in good order or after an abort; frees it. NULL is legal. Without
 * the lock; no call for it may be under way. Blocks: at most 10 s. */
void wefti_twin_end(wefti_twin *twin);

/* Whatever NCCL still does is to end, once. Lock held, or not in use yet. */
void wefti_twin_abort(wefti_twin *twin);

/* Until it is over, or 10 s have passed: whether it is. */
bool wefti_twin_await_abort(const wefti_twin *twin);

/* Whether nothing is in NCCL's hands any more, after an abort; NULL: true. */
bool wefti_twin_is_over(const wefti_twin *twin);

/*
 * wefti_twin_look - ask NCCL, now and then, whether something has failed since
 * the call that began it; NULL is legal. Without the lock; it stays meanwhile.
 *
 * Returns     OK | what it says.
 */
WEFT_NODISCARD weft_status wefti_twin_look(wefti_twin *twin);

/*
 * wefti_twin_settle - after a call of NCCL: until it is done, or comm has a
 * fault. calls is held, the device entered.
 *
 * Returns     NCCL's result; IN_PROGRESS: comm has a fault.
 */
int wefti_twin_settle(wefti_twin *twin, int result);

#endif
