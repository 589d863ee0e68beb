/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/peer_probe.c - connecting, proving, and knowing a dead process
 * from a host that is cut off.
 *
 * A process that is gone leaves a kernel that refuses its port. A host that is
 * gone leaves bytes that are not acknowledged; a process that only stands still
 * does not, since its kernel acknowledges for it.
 */
#include "comm/control/peer_probe.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>

enum { RETRY_NS = 50000000, ACK_POLL_NS = 50000000 };

/* One try to connect; a host that cannot be reached now is tried again. */
static void try_to_connect(wefti_peer_probe *probe,
                           const wefti_peer_probe_self *self, int64_t now_ns)
{
    wefti_endpoint where;
    probe->retry_ns = now_ns + RETRY_NS;
    if (wefti_endpoint_unpack(probe->to, &where) &&
        wefti_oob_connection_open(&probe->connection, &where, &self->secret,
                                  WEFTI_OOB_CLIENT_MOST) != WEFT_OK) {
        probe->connection.fd = -1; /* and again later */
    }
}

void wefti_peer_probe_open(wefti_peer_probe *probe, int peer,
                           const unsigned char to[WEFTI_ADDRESS_BYTES],
                           const wefti_peer_probe_self *self, int64_t at_ns,
                           int64_t now_ns)
{
    *probe = (wefti_peer_probe){.state = WEFTI_PEER_CONNECTING,
                                .peer = peer,
                                .connection.fd = -1,
                                .since_ns = at_ns,
                                .retry_ns = at_ns};
    memcpy(probe->to, to, sizeof(probe->to));
    if (at_ns <= now_ns) {
        try_to_connect(probe, self, now_ns);
    }
}

void wefti_peer_probe_close(wefti_peer_probe *probe)
{
    if (probe->state != WEFTI_PEER_NONE) {
        wefti_oob_connection_fini(&probe->connection);
        probe->state = WEFTI_PEER_NONE;
    }
}

void wefti_peer_probe_send(wefti_peer_probe *probe, const wefti_note *note)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_NOTE};
    wefti_note_encode(note, &message);
    if (wefti_oob_connection_post(&probe->connection, &message) != WEFT_OK) {
        probe->connection.ended = true; /* no memory: as if it had broken */
    }
}

static void present(wefti_peer_probe *probe, const wefti_peer_probe_self *self)
{
    const wefti_note note = {.kind = WEFTI_NOTE_PRESENT, .rank = self->rank};
    wefti_peer_probe_send(probe, &note);
}

bool wefti_peer_probe_accept(wefti_peer_probe *free_place,
                             wefti_oob_connection *peer,
                             const wefti_peer_probe_self *self)
{
    wefti_oob_message message;
    wefti_note note;
    const wefti_oob_arrival arrival = wefti_oob_connection_next(
        peer, WEFTI_KIND_BIT(WEFTI_OOB_NOTE), &message);
    if (arrival == WEFTI_OOB_ARRIVAL_NONE) {
        return false;
    }
    if (arrival != WEFTI_OOB_ARRIVAL_MESSAGE || !free_place ||
        !wefti_note_decode(&message, &note) ||
        note.kind != WEFTI_NOTE_PRESENT || note.rank >= self->nranks ||
        note.rank == self->rank) {
        wefti_oob_connection_fini(peer);
        return false;
    }
    *free_place = (wefti_peer_probe){
        .state = WEFTI_PEER_OPEN, .peer = note.rank, .connection = *peer};
    *peer = (wefti_oob_connection){.fd = -1};
    present(free_place, self);
    return true;
}

static bool is_unreachable(int failure)
{
    return failure == ETIMEDOUT || failure == EHOSTUNREACH ||
           failure == ENETUNREACH || failure == EHOSTDOWN ||
           failure == ENETDOWN;
}

static wefti_peer_probe_news check_connecting(wefti_peer_probe *probe,
                                              const wefti_peer_probe_self *self,
                                              int64_t now_ns)
{
    const int failure = probe->connection.failure;
    if (probe->connection.fd < 0 && failure == ECONNREFUSED) {
        return WEFTI_PEER_REFUSED;
    }
    if (now_ns - probe->since_ns > self->silent_ns) {
        /* Perhaps it was this process that stood still. */
        struct pollfd late = {.fd = probe->connection.fd, .events = POLLOUT};
        if (probe->connection.fd < 0 || poll(&late, 1, 0) != 1) {
            return WEFTI_PEER_SILENT;
        }
        wefti_oob_connection_serve(&probe->connection, late.revents);
        return WEFTI_PEER_QUIET;
    }
    if (probe->connection.fd < 0 && now_ns >= probe->retry_ns) {
        try_to_connect(probe, self, now_ns);
    }
    return WEFTI_PEER_QUIET;
}

/* Whether the peer's kernel has owed an acknowledgement for too long. */
static bool is_silent(wefti_peer_probe *probe,
                      const wefti_peer_probe_self *self, int64_t now_ns)
{
    int unsent = 0;
    if (ioctl(probe->connection.fd, SIOCOUTQ, &unsent) != 0 || unsent == 0) {
        probe->unacked_ns = 0;
        return false;
    }
    const uint64_t acked_bytes =
        probe->connection.sent_bytes - (uint64_t)unsent;
    if (probe->unacked_ns == 0 || acked_bytes != probe->acked_bytes) {
        probe->unacked_ns = now_ns;
        probe->acked_bytes = acked_bytes;
    }
    return now_ns - probe->unacked_ns > self->silent_ns;
}

/* Whether a note names ranks that the job has; those of a communicator are
 * checked where it is known. */
static bool fits(const wefti_note *note, const wefti_peer_probe_self *self)
{
    return note->kind != WEFTI_NOTE_RANK_OUTCOME || note->rank < self->nranks;
}

/* A note that this state allows. */
static wefti_peer_probe_news take_note(wefti_peer_probe *probe,
                                       const wefti_peer_probe_self *self,
                                       const wefti_oob_message *message,
                                       wefti_note *note_out)
{
    if (!wefti_note_decode(message, note_out) || !fits(note_out, self)) {
        return WEFTI_PEER_LOST;
    }
    if (probe->state == WEFTI_PEER_OPEN) {
        return WEFTI_PEER_NOTE;
    }
    if (note_out->kind != WEFTI_NOTE_PRESENT || note_out->rank != probe->peer) {
        return WEFTI_PEER_LOST;
    }
    probe->state = WEFTI_PEER_OPEN;
    return WEFTI_PEER_READY;
}

static bool is_connecting(const wefti_peer_probe *probe)
{
    return probe->state == WEFTI_PEER_CONNECTING &&
           probe->connection.stage == WEFTI_OOB_STAGE_CONNECTING;
}

wefti_peer_probe_news wefti_peer_probe_next(wefti_peer_probe *probe,
                                            const wefti_peer_probe_self *self,
                                            int64_t now_ns,
                                            wefti_note *note_out)
{
    wefti_oob_message message;
    if (is_connecting(probe)) {
        return check_connecting(probe, self, now_ns);
    }
    for (;;) {
        switch (wefti_oob_connection_next(
            &probe->connection, WEFTI_KIND_BIT(WEFTI_OOB_NOTE), &message)) {
        case WEFTI_OOB_ARRIVAL_NONE:
            return is_silent(probe, self, now_ns) ? WEFTI_PEER_SILENT
                                                  : WEFTI_PEER_QUIET;
        case WEFTI_OOB_ARRIVAL_READY:
            probe->state = WEFTI_PEER_PROVING;
            present(probe, self);
            break;
        case WEFTI_OOB_ARRIVAL_MESSAGE:
            return take_note(probe, self, &message, note_out);
        case WEFTI_OOB_ARRIVAL_ENDED:
            return is_unreachable(probe->connection.failure) ? WEFTI_PEER_SILENT
                                                             : WEFTI_PEER_LOST;
        case WEFTI_OOB_ARRIVAL_VERSION:
        case WEFTI_OOB_ARRIVAL_UNPROVEN:
        case WEFTI_OOB_ARRIVAL_BAD:
            return WEFTI_PEER_LOST;
        }
    }
}

int64_t wefti_peer_probe_next_ns(const wefti_peer_probe *probe,
                                 const wefti_peer_probe_self *self,
                                 int64_t now_ns)
{
    if (is_connecting(probe)) {
        int64_t limit_ns = probe->since_ns + self->silent_ns + 1;
        return probe->connection.fd < 0 && probe->retry_ns < limit_ns
                   ? probe->retry_ns
                   : limit_ns;
    }
    return probe->unacked_ns ? now_ns + ACK_POLL_NS : INT64_MAX;
}
