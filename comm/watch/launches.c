/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/launches.c - who holds up a launch.
 *
 * The engine knows of none: a program launches its graphs by itself. But flags
 * lie in memory that the host reads. A launch is within a turn with a peer from
 * when it has taken the peer's READ down until the peer raises it again, and
 * the peer has not come to that turn as long as this rank's own READ is up
 * there. Between launches all READ are up.
 *
 * How long one launch stays in a turn the host can not tell, as it may have
 * seen another one before: so it warns of what has always looked the same, and
 * sets no limit.
 */
#include "comm/watch/launches.h"

#include "base/clock.h"
#include "base/log.h"
#include "comm/control/fault.h"
#include "comm/streams/streams.h"
#include "comm/watch/peer_life.h"

#include <stdio.h>

enum { LOOK_NS = 20000000 /* between looks */ };

/* One that gives up the route has left, but waits for the others to leave. */
static const char *find_lost(weft_comm *comm, int peer)
{
    const wefti_rank_page *page =
        wefti_shared_get_page(&comm->fabric.shared, peer);
    return atomic_load(&page->streams_closed) ? "has destroyed its communicator"
           : comm->engine->members            ? wefti_peer_lost(comm, peer)
                                              : NULL;
}

/* As of operations, two looks in a row have to find it: its last stores may
 * have come between. */
static bool fail_if_lost(weft_comm *comm, int peer)
{
    wefti_launches *launches = &comm->streams->launches;
    const char *how = find_lost(comm, peer);
    if (!how) {
        return false;
    }
    if (launches->suspect != peer + 1) {
        launches->suspect = peer + 1;
        return true;
    }
    char lost[400];
    wefti_peer_lost_text(comm, peer, how, lost, sizeof(lost));
    wefti_fault_publish(comm, WEFT_ERR_PEER, peer, 0,
                        "a graph launched by rank %d waits on \"%s\": %s",
                        comm->rank, comm->name, lost);
    return true;
}

static void warn(weft_comm *comm, uint64_t late, int64_t since_ns)
{
    char ranks[160] = "";
    size_t used = 0;
    for (int peer = 0; peer < comm->nranks && used < sizeof(ranks) - 8;
         peer++) {
        if (late >> peer & 1) {
            used += (size_t)snprintf(ranks + used, sizeof(ranks) - used, " %d",
                                     peer);
        }
    }
    wefti_log(WEFTI_LOG_WARN, comm->rank,
              "\"%s\": a graph launched here has waited for %lld ms; not come "
              "to it: rank%s",
              comm->name, (long long)(since_ns / 1000000), ranks);
}

/* late: a bit for each rank that has not begun what this one has. */
static void judge(weft_comm *comm, uint64_t late, int64_t now_ns)
{
    wefti_launches *launches = &comm->streams->launches;
    if (late == 0 || late != launches->late) {
        launches->late = late;
        launches->since_ns = now_ns;
        launches->warned = false;
    } else if (!launches->warned &&
               now_ns - launches->since_ns >= comm->warn_ns) {
        launches->warned = true;
        warn(comm, late, now_ns - launches->since_ns);
    }
}

void wefti_launches_look(weft_comm *comm)
{
    wefti_streams *streams = comm->streams;
    wefti_launches *launches = &streams->launches;
    const int64_t now_ns = wefti_clock_coarse_ns();
    if (now_ns - launches->looked_ns < LOOK_NS ||
        wefti_fault_is_published(comm)) {
        return;
    }
    launches->looked_ns = now_ns;
    uint64_t late = 0;
    bool suspected = false;
    for (int peer = 0; peer < comm->nranks && !suspected; peer++) {
        bool begun = true;
        if (peer != comm->rank &&
            wefti_streams_launch_awaits(streams, peer, &begun)) {
            suspected = fail_if_lost(comm, peer);
            late |= (uint64_t)!begun << peer;
        }
    }
    if (!suspected) {
        launches->suspect = 0;
        judge(comm, late, now_ns);
    }
}
