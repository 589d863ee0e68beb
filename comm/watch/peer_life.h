/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/peer_life.h - what a rank knows of another: how far it has come,
 * and whether it still lives.
 */
#ifndef COMM_WATCH_PEER_LIFE_H
#define COMM_WATCH_PEER_LIFE_H

#include "comm/core/core.h"

/*
 * wefti_peer_has_died - whether its process has ended; false for ranks of this
 * one. Threads: any.
 */
bool wefti_peer_has_died(const weft_comm *comm, int peer);

/* Whether it has destroyed its communicator, as far as is known here: a rank of
 * another host does not tell it unless it is asked. Threads: any. */
bool wefti_peer_has_left(const weft_comm *comm, int peer);

/* Whether it has, and nothing had failed. Threads: any. */
bool wefti_peer_has_left_well(const weft_comm *comm, int peer);

/* Whether its process, another one of this host, is stopped (SIGSTOP, a
 * debugger). Reads files: for texts of what has waited long. Threads: any. */
bool wefti_peer_is_stopped(const weft_comm *comm, int peer);

/* Whether its host does not answer any more. Threads: any. */
bool wefti_peer_is_cut(const weft_comm *comm, int peer);

/*
 * Up to where rank has completed all, as far as is known here; and what it has
 * finished for its program, though it may still look at peers' entries.
 * Threads: any.
 */
uint64_t wefti_peer_completed(const weft_comm *comm, int rank);
uint64_t wefti_peer_finished(const weft_comm *comm, int rank);

/* The newest operation that rank has entered, as far as is known here; 0: none.
 * Threads: any. */
uint64_t wefti_peer_last_entered(weft_comm *comm, int rank, const char **what,
                                 int64_t *when_ns);

/* How peer was lost: "has died", "has destroyed its communicator"; NULL: it
 * was not. In a job of several ranks. */
const char *wefti_peer_lost(weft_comm *comm, int peer);

/* This rank waits for peer, for limit_ns at most: one of another host is asked
 * whether it has left, if the wait lasts. Threads: any. */
void wefti_peer_doubt(weft_comm *comm, int peer, int64_t limit_ns);

/* "rank 3 has died", how being what wefti_peer_lost said; and which limit to
 * raise, if the kernel has ended processes for want of memory meanwhile. */
void wefti_peer_lost_text(weft_comm *comm, int peer, const char *how,
                          char *text, size_t text_bytes);

#endif
