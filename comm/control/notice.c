/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/notice.c - a note goes to one rank of a domain after the other,
 * until one of them has acknowledged it.
 *
 * A rank that does not answer within ACK_NS may only be slow: it keeps what
 * was sent, and every note may come twice.
 */
#include "comm/control/channel_crew.h"
#include "comm/control/channel_state.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

enum { ACK_NS = 300000000 };
static const int64_t notice_ns = 10 * INT64_C(1000000000);

static void append(wefti_control *control, wefti_notice *notice)
{
    pthread_mutex_lock(&control->lock);
    *control->posted_end = notice;
    control->posted_end = &notice->next;
    pthread_mutex_unlock(&control->lock);
    if (control->crew) {
        wefti_crew_wake(control->crew);
    }
}

void wefti_control_notify(weft_comm *comm, int peer, const wefti_note *note)
{
    wefti_control *control = comm->engine->control;
    if (!control) {
        return;
    }
    const int domain = control->domains[comm->peers[peer].world_rank];
    wefti_notice *notice =
        calloc(1, sizeof(*notice) + (size_t)comm->nranks * sizeof(int));
    if (!notice) {
        wefti_log(WEFTI_LOG_ERROR, comm->rank,
                  "no memory to send rank %d's host what happened", peer);
        return;
    }
    notice->note = *note;
    notice->note.comm = comm->fabric.id;
    notice->culprit = note->kind == WEFTI_NOTE_FAULT && note->rank >= 0
                          ? comm->peers[note->rank].world_rank
                          : -1;
    for (int rank = 0; rank < comm->nranks; rank++) {
        int world_rank = comm->peers[rank].world_rank;
        if (control->domains[world_rank] == domain) {
            notice->ranks[notice->count++] = world_rank;
        }
    }
    append(control, notice);
}

void wefti_control_notify_all(weft_comm *comm, const wefti_note *note)
{
    const wefti_control *control = comm->engine->control;
    for (int peer = 0; control && peer < comm->nranks; peer++) {
        if (comm->peers[peer].first == peer &&
            peer != comm->peers[comm->rank].first) {
            wefti_control_notify(comm, peer, note);
        }
    }
}

void wefti_control_ping(weft_comm *comm, int peer)
{
    const wefti_note ping = {.kind = WEFTI_NOTE_PING};
    wefti_control_notify(comm, peer, &ping);
}

void wefti_notices_take(wefti_control *control, int64_t now_ns)
{
    pthread_mutex_lock(&control->lock);
    wefti_notice *list = control->posted;
    control->posted = NULL;
    control->posted_end = &control->posted;
    pthread_mutex_unlock(&control->lock);
    wefti_notice **end = &control->notices;
    while (*end) {
        end = &(*end)->next;
    }
    *end = list;
    for (; list; list = list->next) {
        list->note.serial = ++control->serial;
        list->until_ns = now_ns + notice_ns;
        list->since_ns = now_ns;
    }
}

static void go_to_next(wefti_notice *notice, int64_t now_ns)
{
    notice->at++;
    notice->sent = false;
    notice->since_ns = now_ns;
}

/* Moves one notice as far as it goes; false: it has ended. */
static bool advance(wefti_control *control, wefti_notice *notice,
                    int64_t now_ns)
{
    while (notice->at < notice->count && now_ns < notice->until_ns) {
        const int rank = notice->ranks[notice->at];
        if (wefti_control_get_outcome(control, rank) !=
            WEFTI_RANK_OUTCOME_NONE) {
            go_to_next(notice, now_ns);
            continue;
        }
        if (now_ns - notice->since_ns > ACK_NS &&
            notice->at + 1 < notice->count) {
            go_to_next(notice, now_ns);
            continue;
        }
        wefti_peer_probe *probe = wefti_control_find_probe(control, rank);
        if (!probe) {
            notice->sent = false;
            wefti_control_connect(control, rank, now_ns);
        } else if (probe->state != WEFTI_PEER_OPEN) {
            notice->sent = false;
        } else if (!notice->sent) {
            notice->sent = true;
            wefti_peer_probe_send(probe, &notice->note);
        }
        return true;
    }
    return false;
}

int64_t wefti_notices_advance(wefti_control *control, int64_t now_ns)
{
    int64_t next_ns = INT64_MAX;
    for (wefti_notice **link = &control->notices; *link;) {
        wefti_notice *notice = *link;
        if (!advance(control, notice, now_ns)) {
            *link = notice->next;
            free(notice);
            continue;
        }
        int64_t check_ns = now_ns + ACK_NS + 1;
        next_ns = check_ns < next_ns ? check_ns : next_ns;
        link = &notice->next;
    }
    return next_ns;
}

/* Whether its note lies with the kernel of the rank that it is for. */
static bool is_delivered(wefti_control *control, const wefti_notice *notice)
{
    const wefti_peer_probe *probe =
        notice->at < notice->count
            ? wefti_control_find_probe(control, notice->ranks[notice->at])
            : NULL;
    return probe && probe->state == WEFTI_PEER_OPEN && notice->sent &&
           !wefti_oob_connection_has_output(&probe->connection) &&
           probe->unacked_ns == 0;
}

/* A question whose sender has left; a fault that is for its own rank. */
static bool is_idle(const wefti_notice *notice)
{
    return notice->note.kind == WEFTI_NOTE_PING ||
           (notice->at < notice->count &&
            notice->ranks[notice->at] == notice->culprit);
}

bool wefti_notices_may_end(wefti_control *control)
{
    for (const wefti_notice *notice = control->notices; notice;
         notice = notice->next) {
        if (!is_idle(notice) && !is_delivered(control, notice)) {
            return false;
        }
    }
    return true;
}

void wefti_notices_lost(wefti_control *control, int rank)
{
    for (wefti_notice *notice = control->notices; notice;
         notice = notice->next) {
        if (notice->at < notice->count && notice->ranks[notice->at] == rank) {
            notice->sent = false;
        }
    }
}

void wefti_notices_acknowledge(wefti_control *control, const wefti_note *ack)
{
    for (wefti_notice **link = &control->notices; *link;
         link = &(*link)->next) {
        wefti_notice *notice = *link;
        if (notice->note.serial != ack->serial) {
            continue;
        }
        if (ack->known) {
            *link = notice->next;
            free(notice);
        } else {
            go_to_next(notice, wefti_clock_ns());
        }
        return;
    }
}
