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

#include "base/error.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RETRY_NS = 50000000, ACK_LOOK_NS = 50000000 };

/* One try to connect; a host that cannot be reached now is tried again. */
static void try_to_call(wefti_contact *contact, int64_t now_ns)
{
    struct sockaddr_in where = {.sin_family = AF_INET,
                                .sin_port = contact->to.port,
                                .sin_addr.s_addr = contact->to.address};
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    contact->retry_ns = now_ns + RETRY_NS;
    if (fd < 0) {
        return;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, (struct sockaddr *)&where, sizeof(where)) != 0 &&
        errno != EINPROGRESS) {
        contact->connection.failure = errno;
        close(fd);
        return;
    }
    if (wefti_oob_connection_init(&contact->connection, fd,
                                  WEFTI_OOB_CLIENT_MOST) != WEFT_OK) {
        contact->connection.fd = -1; /* and again later */
    }
}

void wefti_contact_call(wefti_contact *contact, int peer, wefti_endpoint4 to,
                        int64_t at_ns, int64_t now_ns)
{
    *contact = (wefti_contact){.state = WEFTI_CONTACT_CALLING,
                               .peer = peer,
                               .to = to,
                               .connection.fd = -1,
                               .since_ns = at_ns,
                               .retry_ns = at_ns};
    if (at_ns <= now_ns) {
        try_to_call(contact, now_ns);
    }
}

void wefti_contact_close(wefti_contact *contact)
{
    if (contact->state != WEFTI_CONTACT_NONE) {
        wefti_oob_connection_fini(&contact->connection);
        wefti_oob_session_fini(&contact->session);
        contact->state = WEFTI_CONTACT_NONE;
    }
}

void wefti_contact_say(wefti_contact *contact, const wefti_note *note)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_NOTE};
    wefti_note_encode(note, &message);
    if (wefti_oob_connection_post(&contact->connection, &contact->session,
                                  &message) != WEFT_OK) {
        contact->connection.ended = true; /* no memory: as if it had broken */
    }
}

static void present(wefti_contact *contact, const wefti_contact_self *self)
{
    const wefti_note note = {.kind = WEFTI_NOTE_PRESENT, .rank = self->rank};
    wefti_contact_say(contact, &note);
}

static void answer_hello(wefti_unauthenticated_peer *peer,
                         const wefti_oob_message_hello *hello)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_CHALLENGE,
                                 .as.hello.version = wefti_version_own()};
    randombytes_buf(message.as.hello.nonce, WEFTI_NONCE_BYTES);
    peer->hello = *hello;
    peer->challenge = message.as.hello;
    peer->challenged = true;
    if (!wefti_version_is_own(hello->version) ||
        wefti_oob_connection_post(&peer->connection, NULL, &message) !=
            WEFT_OK) {
        wefti_oob_connection_fini(&peer->connection);
    }
}

/* Whether an unauthenticated peer's first note shows a rank of this job. */
static bool prove(wefti_contact *out, const wefti_unauthenticated_peer *peer,
                  const wefti_contact_self *self, const unsigned char *frame,
                  size_t frame_bytes, const wefti_oob_message *message)
{
    wefti_note note;
    *out = (wefti_contact){.state = WEFTI_CONTACT_NONE, .connection.fd = -1};
    wefti_oob_session_init(&out->session, WEFTI_SIDE_SERVER, &self->secret,
                           &peer->hello, &peer->challenge);
    if (!wefti_oob_session_verify(&out->session, frame, frame_bytes) ||
        !wefti_note_decode(message, &note) || note.kind != WEFTI_NOTE_PRESENT ||
        note.rank >= self->nranks || note.rank == self->rank) {
        wefti_oob_session_fini(&out->session);
        return false;
    }
    out->peer = note.rank;
    return true;
}

bool wefti_contact_admit(wefti_contact *free_place,
                         wefti_unauthenticated_peer *peer,
                         const wefti_contact_self *self)
{
    const unsigned char *frame;
    size_t frame_bytes;
    wefti_oob_message message;
    wefti_oob_connection_receive(&peer->connection);
    while (peer->connection.fd >= 0) {
        const unsigned allowed =
            WEFTI_KIND_BIT(peer->challenged ? WEFTI_OOB_NOTE : WEFTI_OOB_HELLO);
        wefti_oob_arrival arrival = wefti_oob_connection_next(
            &peer->connection, allowed, &frame, &frame_bytes);
        if (arrival == WEFTI_OOB_ARRIVAL_NONE) {
            return false;
        }
        if (arrival != WEFTI_OOB_ARRIVAL_FRAME ||
            !wefti_oob_message_decode(frame, frame_bytes, &message)) {
            break;
        }
        if (message.kind == WEFTI_OOB_HELLO) {
            answer_hello(peer, &message.as.hello);
            continue;
        }
        if (!free_place ||
            !prove(free_place, peer, self, frame, frame_bytes, &message)) {
            break;
        }
        free_place->state = WEFTI_CONTACT_OPEN;
        free_place->since_ns = INT64_MAX;
        free_place->connection = peer->connection;
        peer->connection = (wefti_oob_connection){.fd = -1};
        present(free_place, self);
        return true;
    }
    wefti_oob_connection_fini(&peer->connection);
    return false;
}

/* The connection stands: greet. */
static void greet(wefti_contact *contact)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_HELLO,
                                 .as.hello.version = wefti_version_own()};
    randombytes_buf(message.as.hello.nonce, WEFTI_NONCE_BYTES);
    contact->hello = message.as.hello;
    contact->state = WEFTI_CONTACT_GREETING;
    contact->since_ns = INT64_MAX;
    if (wefti_oob_connection_post(&contact->connection, NULL, &message) !=
        WEFT_OK) {
        contact->connection.ended = true;
    }
}

void wefti_contact_attend(wefti_contact *contact, short revents)
{
    if (contact->connection.fd < 0) {
        return;
    }
    if (contact->state == WEFTI_CONTACT_CALLING) {
        int failure = 0;
        socklen_t failure_bytes = sizeof(failure);
        (void)getsockopt(contact->connection.fd, SOL_SOCKET, SO_ERROR, &failure,
                         &failure_bytes);
        if (failure) {
            wefti_oob_connection_fini(&contact->connection);
            contact->connection.failure = failure;
        } else if (revents & POLLOUT) {
            greet(contact);
        }
        return;
    }
    if (revents & POLLOUT) {
        wefti_oob_connection_flush(&contact->connection);
    }
    if (revents & ~POLLOUT) {
        wefti_oob_connection_receive(&contact->connection);
    }
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
        wefti_contact_attend(contact, late.revents);
        return WEFTI_CONTACT_QUIET;
    }
    if (contact->connection.fd < 0 && now_ns >= contact->retry_ns) {
        try_to_call(contact, now_ns);
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

/* A frame of a kind that this state allows; false: it breaks the contact. */
static bool take_frame(wefti_contact *contact, const wefti_contact_self *self,
                       const unsigned char *frame, size_t frame_bytes,
                       wefti_note *note_out)
{
    wefti_oob_message message;
    if (contact->state == WEFTI_CONTACT_GREETING) {
        if (!wefti_oob_message_decode(frame, frame_bytes, &message) ||
            !wefti_version_is_own(message.as.hello.version)) {
            return false;
        }
        wefti_oob_session_init(&contact->session, WEFTI_SIDE_CLIENT,
                               &self->secret, &contact->hello,
                               &message.as.hello);
        contact->state = WEFTI_CONTACT_PROVING;
        present(contact, self);
        return true;
    }
    return wefti_oob_session_verify(&contact->session, frame, frame_bytes) &&
           wefti_oob_message_decode(frame, frame_bytes, &message) &&
           wefti_note_decode(&message, note_out) && fits(note_out, self);
}

wefti_contact_news wefti_contact_look(wefti_contact *contact,
                                      const wefti_contact_self *self,
                                      int64_t now_ns, wefti_note *note_out)
{
    const unsigned char *frame;
    size_t frame_bytes;
    if (contact->state == WEFTI_CONTACT_CALLING) {
        return look_at_call(contact, self, now_ns);
    }
    for (;;) {
        const wefti_contact_state before = contact->state;
        const unsigned allowed = WEFTI_KIND_BIT(before == WEFTI_CONTACT_GREETING
                                                    ? WEFTI_OOB_CHALLENGE
                                                    : WEFTI_OOB_NOTE);
        wefti_oob_arrival arrival = wefti_oob_connection_next(
            &contact->connection, allowed, &frame, &frame_bytes);
        if (arrival == WEFTI_OOB_ARRIVAL_NONE) {
            return is_silent(contact, self, now_ns) ? WEFTI_CONTACT_SILENT
                                                    : WEFTI_CONTACT_QUIET;
        }
        if (arrival == WEFTI_OOB_ARRIVAL_ENDED) {
            return is_unreachable(contact->connection.failure)
                       ? WEFTI_CONTACT_SILENT
                       : WEFTI_CONTACT_LOST;
        }
        if (arrival != WEFTI_OOB_ARRIVAL_FRAME ||
            !take_frame(contact, self, frame, frame_bytes, note_out)) {
            return WEFTI_CONTACT_LOST;
        }
        if (before == WEFTI_CONTACT_PROVING) {
            if (note_out->kind != WEFTI_NOTE_PRESENT ||
                note_out->rank != contact->peer) {
                return WEFTI_CONTACT_LOST;
            }
            contact->state = WEFTI_CONTACT_OPEN;
            return WEFTI_CONTACT_READY;
        }
        if (before == WEFTI_CONTACT_OPEN) {
            return WEFTI_CONTACT_SAID;
        }
    }
}

int64_t wefti_contact_next_ns(const wefti_contact *contact,
                              const wefti_contact_self *self, int64_t now_ns)
{
    if (contact->state == WEFTI_CONTACT_CALLING) {
        int64_t limit_ns = contact->since_ns + self->silent_ns + 1;
        return contact->connection.fd < 0 && contact->retry_ns < limit_ns
                   ? contact->retry_ns
                   : limit_ns;
    }
    return contact->unheard_ns ? now_ns + ACK_LOOK_NS : INT64_MAX;
}
