/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/relay.h - two_hop with counts: small parts travel together with
 * those of the sender's host, by way of an agent; the others go straight.
 *
 *      host A        parts for 2 of host B
 *      0 agent of 2  |3|      COPY \
 *      1             |500|          \  too long: straight to 2
 *      3             |4|      IN --> > scratch |3|4| --OUT--> 2
 *
 * A part is small if it has at most problem->relay_elems elements, and at most
 * a chunk divided by the ranks of its sender's host: so all of a host's for one
 * rank are one message. Sender and receiver both know its length, and so which
 * way it goes; of what other ranks of its host have for whom it is the agent
 * of, an agent is told (problem->host_counts) before the operation begins.
 *
 *      list IN         SEND own small parts to the agents of their ranks
 *      list OUT        as agent: COPY own, RECV the host's, SEND them all
 *      list TAKE       RECV of other hosts, COPY to their places
 *      list AWAY_OUT   SEND round by round what goes straight
 *      list AWAY_IN    COPY own, RECV round by round what comes straight
 *
 * No rank can starve, with one slot a channel: small parts move in the order of
 * two_hop.c, of whose messages these are some; what goes straight in that of
 * pairwise.c.
 */
#ifndef COMM_PATTERN_RELAY_H
#define COMM_PATTERN_RELAY_H

#include "comm/pattern/pattern.h"

/* Ranks that a communicator may have, as each tells its host of all: in
 * WEFTI_ENTRIES_BYTES. */
enum {
    WEFTI_RELAY_RANKS = WEFTI_ENTRIES_BYTES / (int)sizeof(uint16_t),
    WEFTI_RELAY_ELEMS = UINT16_MAX - 1 /* of a small part; else it is told as
                                          UINT16_MAX */
};

/* The calls of a wefti_pattern, of an all-to-all with counts. */
size_t wefti_relay_step_count(const wefti_problem *problem, int list);
void wefti_relay_step_at(const wefti_problem *problem, int list, size_t index,
                         wefti_step *step_out);
int wefti_relay_slots(const wefti_problem *problem, int channel);

#endif
