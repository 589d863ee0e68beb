/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/rounds.h - what all ranks of a communicator must know of each other,
 * in log2(hosts) messages a host: the lowest rank of each host, its leader,
 * sends to the leader 2^k hosts further in round k, as dissemination barriers
 * do.
 *
 *      host   0 --> 1 --> 2 --> 3 --> 0     round 0
 *             0 --------> 2, 1 --------> 3  round 1
 *
 * Round k's message stands for the 2^k hosts up to the sender's. Two things
 * travel so: that all of them have entered a barrier (comm/steps/meeting.h),
 * and up to which operation all of their ranks have completed: when a slot may
 * be used again. The second is a number that only rises, so it rides on
 * whatever goes that way, and has messages of its own at every fourth
 * operation, or where a rank has an operation to enter that waits for it.
 *
 * Source: Hensgen, Finkel, Manber 1988 (dissemination barrier).
 */
#ifndef COMM_NET_ROUNDS_H
#define COMM_NET_ROUNDS_H

#include "comm/fabric/fabric.h"

enum { WEFTI_ROUNDS_MOST = 16 };

/*
 * One rank's view. Of a rank that is no leader, only leader is used.
 *
 * to, from   [count] the leaders of each round, ranks of the communicator;
 *            from[0] is the host before this one, to[0] the one after it
 * heard      [count] what from[k] has said of its 2^k hosts: all their ranks
 *            have completed it
 * told       [count] what to[k] has been told of this host and those before
 * needed     an operation of this rank waits for all to have completed it
 */
typedef struct wefti_rounds {
    int leader;
    bool leads;
    int count;
    int to[WEFTI_ROUNDS_MOST], from[WEFTI_ROUNDS_MOST];
    uint64_t heard[WEFTI_ROUNDS_MOST], told[WEFTI_ROUNDS_MOST];
    uint64_t needed;
    int local_count;
    int locals[]; /* [local_count] ranks of this host */
} wefti_rounds;

/*
 * wefti_rounds_create - firsts: [nranks] the lowest rank that shares memory
 * with each. NULL: no memory. Freed with free().
 */
wefti_rounds *wefti_rounds_create(const int *firsts, int nranks, int rank);

/* Which round's message goes to peer, or comes from it; -1: none. */
int wefti_rounds_find_to(const wefti_rounds *rounds, int peer);
int wefti_rounds_find_from(const wefti_rounds *rounds, int peer);

/* What a message to peer says, and that it says so; 0 where it is not told. */
uint64_t wefti_rounds_offer(wefti_fabric *fabric, int peer);

/* What a message from peer said. */
void wefti_rounds_receive(wefti_fabric *fabric, int peer, uint64_t completed);

/* Up to where all ranks have completed all, as far as is known here. */
uint64_t wefti_rounds_get_completed(const wefti_fabric *fabric);

/* An operation here needs all ranks to have completed number. */
void wefti_rounds_need(wefti_fabric *fabric, uint64_t number);

/* Shows the ranks of this host what is known; returns a bit set of the rounds
 * whose next leader is due a message. */
unsigned wefti_rounds_spread(wefti_fabric *fabric);

#endif
