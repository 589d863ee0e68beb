/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/stall.c - look for dead peers, warn, give up.
 */
#include "comm/watch/stall.h"

#include "base/clock.h"
#include "base/log.h"
#include "comm/control/fault.h"
#include "comm/watch/cause.h"
#include "comm/watch/diagnosis.h"
#include "comm/watch/peer_life.h"
#include "comm/watch/waits.h"

enum {
    LOOK_NS = 20000000,   /* between looks */
    PAUSE_NS = 1000000000 /* no look for so long: it was us who stood still */
};

/* A peer is lost if two looks in a row find it so: what it did last is seen by
 * the push between them. */
static bool fail_if_lost(weft_comm *comm, wefti_stall *stall, int peer,
                         const char *what)
{
    const char *how = peer == comm->rank ? NULL : wefti_peer_lost(comm, peer);
    if (!how) {
        wefti_peer_doubt(comm, peer, comm->timeout_ns);
        return false;
    }
    if (stall->suspect != peer + 1) {
        stall->suspect = peer + 1;
        stall->checked_ns -= LOOK_NS;
        return true;
    }
    char lost[400];
    wefti_peer_lost_text(comm, peer, how, lost, sizeof(lost));
    wefti_fault_publish(comm, WEFT_ERR_PEER, peer, 0, "%s: %s", what, lost);
    return true;
}

static bool awaits(weft_comm *comm, const void *context, int peer)
{
    const int *awaited = context;
    (void)comm;
    return *awaited == WEFTI_ALL_PEERS || *awaited == peer;
}

void wefti_stall_look(weft_comm *comm, wefti_stall *stall, int peer,
                      void (*describe)(const void *context, char *text_out,
                                       size_t text_bytes),
                      const void *context)
{
    int64_t now_ns = wefti_clock_coarse_ns();
    if (stall->since_ns == 0) {
        stall->since_ns = stall->checked_ns = now_ns;
        return;
    }
    int64_t pause_ns = now_ns - stall->checked_ns;
    if (pause_ns < LOOK_NS) {
        return;
    }
    if (pause_ns > PAUSE_NS) {
        stall->since_ns += pause_ns; /* a stopped job goes on when continued */
    }
    stall->checked_ns = now_ns;
    char what[160];
    describe(context, what, sizeof(what));
    int first = peer == WEFTI_ALL_PEERS ? 0 : peer;
    int end = peer == WEFTI_ALL_PEERS ? comm->nranks : peer + 1;
    for (int at = first; at < end && comm->engine->members; at++) {
        if (fail_if_lost(comm, stall, at, what)) {
            return;
        }
    }
    int64_t stalled_ns = now_ns - stall->since_ns;
    wefti_watch_hosts(comm, stalled_ns, comm->timeout_ns, now_ns, awaits,
                      &peer);
    const bool late = stalled_ns >= comm->timeout_ns;
    if (!late && (stall->warned || stalled_ns < comm->warn_ns)) {
        return;
    }
    char chain[256] = "";
    int rank = peer;
    if (peer >= 0) {
        const int64_t fresh_ns = wefti_waits_fresh_ns(comm->timeout_ns);
        const wefti_cause cause = wefti_cause_of_peer(comm, peer, fresh_ns);
        wefti_cause_append(comm, &cause, fresh_ns, chain, sizeof(chain));
        rank = cause.rank;
    }
    if (late) {
        wefti_fault_publish(comm, WEFT_ERR_TIMEOUT, rank, 0,
                            "%s, after %.1f s%s", what,
                            (double)stalled_ns / 1e9, chain);
    } else {
        stall->warned = true;
        wefti_log(WEFTI_LOG_WARN, comm->rank, "%s, after %.1f s%s", what,
                  (double)stalled_ns / 1e9, chain);
    }
}
