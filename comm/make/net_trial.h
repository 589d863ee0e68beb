/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/net_trial.h - two ranks that share no memory use the network
 * between them for the first time: what they send is a pattern that its
 * receiver checks, and what it takes is measured.
 *
 *      leader                follower
 *      request PING      ->
 *                        <-  reply             half of it is the latency
 *      request BURST     ->
 *                        <-  reply
 *      16 small messages ->
 *                        <-  reply             the time of a message
 *      request DATA n    ->
 *                        <-  reply
 *      n bytes           ->
 *                        <-  reply             n doubles; that of a byte
 *      request BACK n    ->
 *                        <-  n bytes
 *      request END       ->
 *
 * All are messages of the communicator's, so what they take includes what weft
 * does for each.
 */
#ifndef COMM_MAKE_NET_TRIAL_H
#define COMM_MAKE_NET_TRIAL_H

#include "comm/core/core.h"

enum {
    WEFTI_TRIAL_LEAST_BYTES = 32 << 10,
    WEFTI_TRIAL_MOST_BYTES = 1 << 20,
    WEFTI_TRIAL_BACK_BYTES = 64 << 10
};

/*
 * What one rank brings home; as it travels.
 *
 * figures     of the slowest of its trials; only a leader's
 * measured    whether there are any
 * bad_from    the rank whose bytes came changed; -1: nobody's
 * bad_place   of bad_bytes that it sent: the first word of 8 that is changed
 */
typedef struct wefti_net_trial {
    wefti_net_figures figures;
    int32_t measured, bad_from;
    uint32_t bad_place, bad_bytes;
    uint64_t bad_found, bad_sent;
} wefti_net_trial;

static inline wefti_net_trial wefti_net_trial_begin(void)
{
    return (wefti_net_trial){.bad_from = -1};
}

/* How long to try; what has begun is ended, so a slow network takes longer. */
typedef struct wefti_net_effort {
    int pings, bursts, repeats;
    size_t most_bytes;
    int64_t limit_ns;
} wefti_net_effort;

/*
 * wefti_net_trial_run - one of the two ends: the leader's, or with NULL for
 * effort the follower's. What has been measured goes into *trial, where the
 * slower figure counts, and what came changed, where the first counts: that is
 * no error here.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM (a request came changed) | as
 *             weft_send.
 */
WEFT_NODISCARD weft_status wefti_net_trial_run(weft_comm *comm, int peer,
                                               const wefti_net_effort *effort,
                                               wefti_net_trial *trial);

void wefti_net_keep_slower(int64_t *figure, int64_t other);

/* Word number `at` of what a rank sends. */
uint64_t wefti_net_trial_word(int from, size_t at);

#endif
