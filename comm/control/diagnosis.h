/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/diagnosis.h - no hang without a name: who is waited for, since
 * when, and whether he is still alive.
 */
#ifndef COMM_CONTROL_DIAGNOSIS_H
#define COMM_CONTROL_DIAGNOSIS_H

#include "comm/control/waits.h"
#include "comm/core.h"

/*
 * wefti_watch_stalled - called each time op could not move. Looks for dead
 * peers after 20 ms, warns after warn_ns, fails the communicator after op's own
 * limit, else timeout_ns. Costs one coarse clock call.
 */
void wefti_watch_stalled(weft_comm *comm, wefti_op *op);

/*
 * wefti_peer_has_died - whether its process has ended; false for ranks of this
 * one. Threads: any.
 */
bool wefti_peer_has_died(const weft_comm *comm, int peer);

/* Whether its process, another one of this host, is stopped (SIGSTOP, a
 * debugger). Reads files: for texts of what has waited long. Threads: any. */
bool wefti_peer_is_stopped(const weft_comm *comm, int peer);

/* Whether its host does not answer any more. Threads: any. */
bool wefti_peer_is_cut(const weft_comm *comm, int peer);

/* After so long without a step other hosts are spoken to. */
int64_t wefti_watch_patience(const weft_comm *comm, int64_t limit_ns);

/*
 * wefti_watch_hosts - once a wait is long enough for a warning, or half as long
 * as it may be (limit_ns), ask now and then whether the awaited ranks' hosts
 * answer.
 */
void wefti_watch_hosts(weft_comm *comm, int64_t stalled_ns, int64_t limit_ns,
                       int64_t now_ns,
                       bool (*awaits)(weft_comm *comm, const void *context,
                                      int peer),
                       const void *context);

/* op as what a rank waits in, for no peer yet. */
wefti_wait_record wefti_watch_record(const wefti_op *op);

/* The newest operation that rank has entered; 0: none. Threads: any. */
uint64_t wefti_peer_last_entered(weft_comm *comm, int rank, const char **what,
                                 int64_t *when_ns);

/* How peer was lost: "has died", "has destroyed its communicator"; NULL: it
 * was not. In a job of several ranks. */
const char *wefti_watch_lost(weft_comm *comm, int peer);

/* "rank 3 has died", how being what wefti_watch_lost said; and which limit to
 * raise, if the kernel has ended processes for want of memory meanwhile. */
void wefti_watch_lost_text(weft_comm *comm, int peer, const char *how,
                           char *text, size_t text_bytes);

#endif
