/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/contact.c - calling, proving, and telling a dead process from a
 * host that is cut off.
 *
 * A process that is gone leaves a kernel that refuses its port. A host that is
 * gone leaves bytes that nobody acknowledges; a process that only stands still
 * does not, since its kernel acknowledges for it.
 */
#include "comm/control/contact.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>

enum { RETRY_NS = 50000000, ACK_LOOK_NS = 50000000 };

/* One try to connect; a host that cannot be reached now is tried again. */
static void try_to_call(wefti_contact *contact, const wefti_contact_self *self,
                        int64_t now_ns)
{
    wefti_endpoint where;
    contact->retry_ns = now_ns + RETRY_NS;
    if (wefti_endpoint_unpack(contact->to, &where) &&
        wefti_oob_connection_open(&contact->connection, &where, &self->secret,
                                  WEFTI_OOB_CLIENT_MOST) != WEFT_OK) {
        contact->connection.fd = -1; /* and again later */
    }
}

void wefti_contact_call(wefti_contact *contact, int peer,
                        const unsigned char to[WEFTI_ADDRESS_BYTES],
                        const wefti_contact_self *self, int64_t at_ns,
                        int64_t now_ns)
{
    *contact = (wefti_contact){.state = WEFTI_CONTACT_CALLING,
                               .peer = peer,
                               .connection.fd = -1,
                               .since_ns = at_ns,
                               .retry_ns = at_ns};
    memcpy(contact->to, to, sizeof(contact->to));
    if (at_ns <= now_ns) {
        try_to_call(contact, self, now_ns);
    }
}

void wefti_contact_close(wefti_contact *contact)
{
    if (contact->state != WEFTI_CONTACT_NONE) {
        wefti_oob_connection_fini(&contact->connection);
        contact->state = WEFTI_CONTACT_NONE;
    }
}

void wefti_contact_say(wefti_contact *contact, const wefti_note *note)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_NOTE};
    wefti_note_encode(note, &message);
    if (wefti_oob_connection_post(&contact->connection, &message) != WEFT_OK) {
        contact->connection.ended = true; /* no memory: as if it had broken */
    }
}

static void present(wefti_contact *contact, const wefti_contact_self *self)
{
    const wefti_note note = {.kind = WEFTI_NOTE_PRESENT, .rank = self->rank};
    wefti_contact_say(contact, &note);
}

bool wefti_contact_admit(wefti_contact *free_place, wefti_oob_connection *peer,
                         const wefti_contact_self *self)
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
    *free_place = (wefti_contact){
        .state = WEFTI_CONTACT_OPEN, .peer = note.rank, .connection = *peer};
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

static wefti_contact_news look_at_call(wefti_contact *contact,
                                       const wefti_contact_self *self,
                                       int64_t now_ns)
{
    const int failure = contact->connection.failure;
    if (contact->connection.fd < 0 && failure == ECONNREFUSED) {
        return WEFTI_CONTACT_REFUSED;
    }
    if (now_ns - contact->since_ns > self->silent_ns) {
        /* Perhaps it was this process that stood still. */
        struct pollfd late = {.fd = contact->connection.fd, .events = POLLOUT};
        if (contact->connection.fd < 0 || poll(&late, 1, 0) != 1) {
            return WEFTI_CONTACT_SILENT;
        }
        wefti_oob_connection_serve(&contact->connection, late.revents);
        return WEFTI_CONTACT_QUIET;
    }
    if (contact->connection.fd < 0 && now_ns >= contact->retry_ns) {
        try_to_call(contact, self, now_ns);
    }
    return WEFTI_CONTACT_QUIET;
}

/* Whether the peer's kernel has owed an acknowledgement for too long. */
static bool is_silent(wefti_contact *contact, const wefti_contact_self *self,
                      int64_t now_ns)
{
    int unsent = 0;
    if (ioctl(contact->connection.fd, SIOCOUTQ, &unsent) != 0 || unsent == 0) {
        contact->unheard_ns = 0;
        return false;
    }
    const uint64_t acked_bytes =
        contact->connection.sent_bytes - (uint64_t)unsent;
    if (contact->unheard_ns == 0 || acked_bytes != contact->acked_bytes) {
        contact->unheard_ns = now_ns;
        contact->acked_bytes = acked_bytes;
    }
    return now_ns - contact->unheard_ns > self->silent_ns;
}

/* Whether a note names ranks that the job has; those of a communicator are
 * looked at where it is known. */
static bool fits(const wefti_note *note, const wefti_contact_self *self)
{
    return note->kind != WEFTI_NOTE_FATE || note->rank < self->nranks;
}

/* A note that this state allows. */
static wefti_contact_news take_note(wefti_contact *contact,
                                    const wefti_contact_self *self,
                                    const wefti_oob_message *message,
                                    wefti_note *note_out)
{
    if (!wefti_note_decode(message, note_out) || !fits(note_out, self)) {
        return WEFTI_CONTACT_LOST;
    }
    if (contact->state == WEFTI_CONTACT_OPEN) {
        return WEFTI_CONTACT_SAID;
    }
    if (note_out->kind != WEFTI_NOTE_PRESENT ||
        note_out->rank != contact->peer) {
        return WEFTI_CONTACT_LOST;
    }
    contact->state = WEFTI_CONTACT_OPEN;
    return WEFTI_CONTACT_READY;
}

static bool is_connecting(const wefti_contact *contact)
{
    return contact->state == WEFTI_CONTACT_CALLING &&
           contact->connection.stage == WEFTI_OOB_STAGE_CONNECTING;
}

wefti_contact_news wefti_contact_look(wefti_contact *contact,
                                      const wefti_contact_self *self,
                                      int64_t now_ns, wefti_note *note_out)
{
    wefti_oob_message message;
    if (is_connecting(contact)) {
        return look_at_call(contact, self, now_ns);
    }
    for (;;) {
        switch (wefti_oob_connection_next(
            &contact->connection, WEFTI_KIND_BIT(WEFTI_OOB_NOTE), &message)) {
        case WEFTI_OOB_ARRIVAL_NONE:
            return is_silent(contact, self, now_ns) ? WEFTI_CONTACT_SILENT
                                                    : WEFTI_CONTACT_QUIET;
        case WEFTI_OOB_ARRIVAL_READY:
            contact->state = WEFTI_CONTACT_PROVING;
            present(contact, self);
            break;
        case WEFTI_OOB_ARRIVAL_MESSAGE:
            return take_note(contact, self, &message, note_out);
        case WEFTI_OOB_ARRIVAL_ENDED:
            return is_unreachable(contact->connection.failure)
                       ? WEFTI_CONTACT_SILENT
                       : WEFTI_CONTACT_LOST;
        case WEFTI_OOB_ARRIVAL_VERSION:
        case WEFTI_OOB_ARRIVAL_UNPROVEN:
        case WEFTI_OOB_ARRIVAL_BAD:
            return WEFTI_CONTACT_LOST;
        }
    }
}

int64_t wefti_contact_next_ns(const wefti_contact *contact,
                              const wefti_contact_self *self, int64_t now_ns)
{
    if (is_connecting(contact)) {
        int64_t limit_ns = contact->since_ns + self->silent_ns + 1;
        return contact->connection.fd < 0 && contact->retry_ns < limit_ns
                   ? contact->retry_ns
                   : limit_ns;
    }
    return contact->unheard_ns ? now_ns + ACK_LOOK_NS : INT64_MAX;
}
