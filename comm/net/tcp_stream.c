/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/tcp_stream.c - queueing, and receiving without a copy.
 *
 * The queue: [the message that has begun] [small and urgent ones] [others].
 * Nothing overtakes what the kernel has: once a message was urgent, it is given
 * of others only as much as the link takes in a few milliseconds. A read
 * goes straight to the place of the message under way, and what comes behind it
 * into `ahead`, where the next frames are looked for.
 */
#include "comm/net/tcp_stream.h"

#include "comm/net/tcp_marks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    RESERVED = 4,       /* messages */
    SMALL_BYTES = 8192, /* that overtake */
    PASSED_MOST = 64,   /* by as many, then it is its turn */
    RUN = 16,           /* messages in one call */
    READ_MOST = 2 << 20 /* bytes in a row, then others have a turn */
};

struct wefti_tcp_record {
    wefti_tcp_record *next;
    const unsigned char *data;
    size_t head_bytes, data_bytes; /* head: frame and header */
    size_t sent_bytes;             /* of both */
    bool overtakes;
    int passed;   /* by how many */
    size_t *lent; /* counts it while data is not its own; may be NULL */
    void *own;    /* what data points to then; else NULL */
    struct {
        wefti_tcp_frame frame;
        unsigned char header[WEFTI_PORT_HEADER_BYTES];
    } head;
};

_Static_assert(sizeof(wefti_tcp_frame) == 32, "what goes over the wire");

void wefti_tcp_stream_init(wefti_tcp_stream *stream,
                           const wefti_port_config *config,
                           wefti_tcp_pieces *pieces)
{
    memset(stream, 0, sizeof(*stream));
    stream->fd = -1;
    stream->config = config;
    stream->pieces = pieces;
    stream->lowat = 1;
}

bool wefti_tcp_stream_reserve(wefti_tcp_stream *stream)
{
    for (int i = 0; i < RESERVED; i++) {
        wefti_tcp_record *record = malloc(sizeof(*record));
        if (!record) {
            return false;
        }
        record->lent = NULL;
        record->own = NULL;
        record->next = stream->free;
        stream->free = record;
    }
    stream->own.spill = malloc(SMALL_BYTES);
    stream->own.spill_bytes = stream->own.spill ? SMALL_BYTES : 0;
    return stream->own.spill != NULL;
}

/* Its data are not read any more. */
static void let_go(wefti_tcp_record *record)
{
    if (record->lent) {
        --*record->lent;
    }
    free(record->own);
    record->lent = NULL;
    record->own = NULL;
}

static void free_list(wefti_tcp_record *first)
{
    while (first) {
        wefti_tcp_record *next = first->next;
        let_go(first);
        free(first);
        first = next;
    }
}

void wefti_tcp_stream_fini(wefti_tcp_stream *stream)
{
    free_list(stream->first);
    free_list(stream->free);
    free(stream->own.spill);
    if (stream->fd >= 0) {
        close(stream->fd);
    }
    wefti_tcp_stream_init(stream, stream->config, stream->pieces);
}

/* ---- sending ---------------------------------------------------------------
 */

/* Whether record may go before another that was there first. */
static bool may_pass(const wefti_tcp_record *record,
                     const wefti_tcp_record *other)
{
    return record->overtakes && !other->overtakes && other->sent_bytes == 0 &&
           other->passed < PASSED_MOST;
}

static void enqueue(wefti_tcp_stream *stream, wefti_tcp_record *record)
{
    wefti_tcp_record **at = &stream->first;
    for (wefti_tcp_record **link = at; *link; link = &(*link)->next) {
        if (!may_pass(record, *link)) {
            at = &(*link)->next;
        }
    }
    for (wefti_tcp_record *other = *at; other; other = other->next) {
        other->passed++;
    }
    record->next = *at;
    *at = record;
}

bool wefti_tcp_stream_put(wefti_tcp_stream *stream,
                          const wefti_port_message *message,
                          const wefti_tcp_part *part)
{
    wefti_tcp_record *record = stream->free;
    if (record) {
        stream->free = record->next;
    } else if (!(record = malloc(sizeof(*record)))) {
        return false;
    }
    record->data = (const unsigned char *)message->data + part->begin;
    record->data_bytes = part->bytes;
    record->head_bytes = sizeof(record->head.frame) + message->header_bytes;
    record->sent_bytes = 0;
    record->overtakes = message->urgent ||
                        (message->data_bytes <= SMALL_BYTES && !message->last);
    record->passed = 0;
    record->own = NULL;
    record->lent = message->lent;
    if (record->lent) {
        ++*record->lent;
    }
    record->head.frame = (wefti_tcp_frame){
        .header_bytes = (uint32_t)message->header_bytes,
        .data_bytes = (uint32_t)part->bytes,
        .number = part->number,
        .all_bytes = (uint32_t)message->data_bytes,
        .begin = message->last ? WEFTI_TCP_BEGIN_LAST : (int32_t)part->begin};
    memcpy(record->head.header, message->header, message->header_bytes);
    enqueue(stream, record);
    stream->urgent |= message->urgent;
    stream->unsent++;
    stream->unsent_bytes += record->head_bytes + record->data_bytes;
    return true;
}

bool wefti_tcp_stream_give_back(wefti_tcp_stream *stream, const size_t *lent)
{
    for (wefti_tcp_record *record = stream->first; record;
         record = record->next) {
        if (record->lent != lent) {
            continue;
        }
        void *own = malloc(record->data_bytes);
        if (!own) {
            return false;
        }
        memcpy(own, record->data, record->data_bytes);
        let_go(record);
        record->data = record->own = own;
    }
    return true;
}

/* What is left of a message, as up to 2 parts. */
static int list_parts(wefti_tcp_record *record, struct iovec parts[2])
{
    int count = 0;
    size_t sent = record->sent_bytes;
    if (sent < record->head_bytes) {
        parts[count++] = (struct iovec){(unsigned char *)&record->head + sent,
                                        record->head_bytes - sent};
        sent = 0;
    } else {
        sent -= record->head_bytes;
    }
    if (sent < record->data_bytes) {
        /* sendmsg only reads it. */
        parts[count++] =
            (struct iovec){(unsigned char *)(uintptr_t)record->data + sent,
                           record->data_bytes - sent};
    }
    return count;
}

/* The next messages, in order; each says what is queued behind it. Once one was
 * urgent, the kernel is given little at a time of those that do not overtake,
 * so these go in runs of their own. */
static int gather(wefti_tcp_stream *stream, struct iovec parts[2 * RUN])
{
    int count = 0;
    size_t behind_bytes = stream->unsent_bytes;
    wefti_tcp_record *record = stream->first;
    for (int i = 0; i < RUN && record &&
                    (!stream->urgent || record->overtakes == stream->overtakes);
         i++, record = record->next) {
        behind_bytes -=
            record->head_bytes + record->data_bytes - record->sent_bytes;
        if (record->sent_bytes == 0) {
            record->head.frame.behind_bytes = behind_bytes;
        }
        count += list_parts(record, parts + count);
    }
    return count;
}

/* The kernel has taken so many bytes off the queue. */
static void retire(wefti_tcp_stream *stream, size_t bytes)
{
    stream->unsent_bytes -= bytes;
    while (bytes > 0) {
        wefti_tcp_record *record = stream->first;
        const size_t left =
            record->head_bytes + record->data_bytes - record->sent_bytes;
        if (bytes < left) {
            record->sent_bytes += bytes;
            return;
        }
        bytes -= left;
        stream->first = record->next;
        let_go(record);
        record->next = stream->free;
        stream->free = record;
        stream->unsent--;
    }
}

/* It may wait for more than the peer's next word only while it is told when the
 * kernel has sent what it had. */
static void stop_draining(wefti_tcp_stream *stream)
{
    if (stream->drains) {
        stream->drains = false;
        stream->expected_bytes = 0;
        wefti_tcp_marks_update(stream);
    }
}

/* The other end has closed, or is cut off. What it had sent before may be here,
 * unread by a rank that is slow: the stream ends behind that. */
static void stop_sending(wefti_tcp_stream *stream, int why)
{
    stream->broken = why;
    (void)shutdown(stream->fd, SHUT_RDWR);
}

wefti_tcp_result wefti_tcp_stream_flush(wefti_tcp_stream *stream)
{
    wefti_tcp_result result = WEFTI_TCP_NOTHING;
    stop_draining(stream);
    while (stream->first && !stream->broken) {
        stream->overtakes = stream->first->overtakes;
        wefti_tcp_marks_bound(stream);
        struct iovec parts[2 * RUN];
        struct msghdr run = {.msg_iov = parts,
                             .msg_iovlen = (size_t)gather(stream, parts)};
        ssize_t sent = sendmsg(stream->fd, &run, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent >= 0) {
            retire(stream, (size_t)sent);
            result = WEFTI_TCP_MOVED;
        } else if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {
            stream->full = true; /* also this host is short for a moment */
            return result;
        } else {
            stop_sending(stream, errno);
        }
    }
    if (stream->first) {
        retire(stream, stream->unsent_bytes);
        result = WEFTI_TCP_MOVED;
    }
    stream->full = false;
    wefti_tcp_marks_bound(stream);
    return result;
}

/* ---- receiving -------------------------------------------------------------
 */

/* Where the message's data go. What had a place and has lost it is dropped;
 * NULL: no memory. */
static unsigned char *base_of(wefti_tcp_stream *stream)
{
    const wefti_port_config *config = stream->config;
    wefti_tcp_whole *whole = stream->whole;
    unsigned char *place = NULL;
    if (!whole->dropped && (whole->placed || whole->got_bytes == 0)) {
        place = config->place(config->context, stream->header,
                              stream->frame.header_bytes, whole->bytes);
        whole->dropped = whole->placed && !place;
        whole->placed = place != NULL;
    }
    if (place) {
        return place;
    }
    if (whole->spill_bytes < whole->bytes) {
        free(whole->spill);
        whole->spill = malloc(whole->bytes);
        whole->spill_bytes = whole->spill ? whole->bytes : 0;
    }
    return whole->spill;
}

/* Where the rest of the frame's data goes. */
static unsigned char *place_of(wefti_tcp_stream *stream)
{
    unsigned char *base = base_of(stream);
    return base ? base + stream->frame.begin + stream->got_bytes : NULL;
}

/* All of it is there. */
static void deliver(wefti_tcp_stream *stream)
{
    const wefti_port_config *config = stream->config;
    wefti_tcp_whole *whole = stream->whole;
    const unsigned char *data = whole->bytes > 0 ? base_of(stream) : NULL;
    if (!whole->dropped && (data || whole->bytes == 0)) {
        config->arrived(config->context, stream->header,
                        stream->frame.header_bytes, data, whole->bytes);
    }
    if (whole != &stream->own) {
        wefti_tcp_pieces_end(stream->pieces, whole, config);
    }
}

static void note_data(wefti_tcp_stream *stream, size_t bytes)
{
    stream->got_bytes += bytes;
    stream->whole->got_bytes += bytes;
    stream->reading = stream->got_bytes < stream->frame.data_bytes;
    if (stream->whole->got_bytes == stream->whole->bytes) {
        deliver(stream);
    }
}

/* Whether a frame can be one; errno says why not. */
static bool check_frame(const wefti_tcp_stream *stream,
                        const wefti_tcp_frame *frame)
{
    const bool last = frame->begin == WEFTI_TCP_BEGIN_LAST;
    const bool cut = last || frame->number > 0;
    const bool fits = last ? frame->all_bytes == 0 && frame->data_bytes == 0
                           : frame->begin >= 0 &&
                                 frame->data_bytes <= frame->all_bytes &&
                                 (uint32_t)frame->begin <=
                                     frame->all_bytes - frame->data_bytes;
    const bool whole = frame->data_bytes == frame->all_bytes;
    errno = EPROTO;
    return frame->header_bytes <= WEFTI_PORT_HEADER_BYTES &&
           frame->all_bytes <= WEFTI_TCP_DATA_MOST && fits &&
           (cut ? stream->pieces != NULL : whole);
}

/* The message that the frame is of. A piece of none, or more of one than there
 * is of it, is no frame. */
static wefti_tcp_whole *whole_of(wefti_tcp_stream *stream)
{
    const wefti_tcp_frame *frame = &stream->frame;
    if (frame->number == 0) {
        stream->own = (wefti_tcp_whole){.bytes = frame->all_bytes,
                                        .spill = stream->own.spill,
                                        .spill_bytes = stream->own.spill_bytes};
        return &stream->own;
    }
    wefti_tcp_whole *whole =
        wefti_tcp_pieces_find(stream->pieces, frame->number, frame->all_bytes);
    if (whole && frame->data_bytes > whole->bytes - whole->got_bytes) {
        errno = EPROTO;
        return NULL;
    }
    return whole;
}

/* Begins the next message if its head lies ahead whole. */
static bool begin_message(wefti_tcp_stream *stream)
{
    const size_t there = stream->ahead_end - stream->ahead_begin;
    const unsigned char *at = stream->ahead + stream->ahead_begin;
    if (there < sizeof(stream->frame)) {
        return true;
    }
    wefti_tcp_frame frame;
    memcpy(&frame, at, sizeof(frame));
    if (!check_frame(stream, &frame)) {
        return false;
    }
    if (there < sizeof(frame) + frame.header_bytes) {
        return true;
    }
    stream->frame = frame;
    memcpy(stream->header, at + sizeof(frame), frame.header_bytes);
    stream->ahead_begin += sizeof(frame) + frame.header_bytes;
    stream->got_bytes = 0;
    if (frame.begin == WEFTI_TCP_BEGIN_LAST) {
        wefti_tcp_pieces_await(stream->pieces, frame.number, stream->header,
                               frame.header_bytes, stream->config);
        return true;
    }
    stream->whole = whole_of(stream);
    if (!stream->whole) {
        return false;
    }
    stream->reading = true;
    if (frame.data_bytes == 0) {
        note_data(stream, 0);
    }
    return true;
}

/* Copies what lies ahead of the message under way. */
static bool take_ahead(wefti_tcp_stream *stream)
{
    const size_t there = stream->ahead_end - stream->ahead_begin;
    const size_t left = stream->frame.data_bytes - stream->got_bytes;
    const size_t bytes = there < left ? there : left;
    unsigned char *place = place_of(stream);
    if (!place) {
        errno = ENOMEM;
        return false;
    }
    memcpy(place, stream->ahead + stream->ahead_begin, bytes);
    stream->ahead_begin += bytes;
    note_data(stream, bytes);
    return true;
}

/* Until nothing ahead is of use; the rest is moved to the front. */
static bool consume(wefti_tcp_stream *stream)
{
    for (;;) {
        const size_t before = stream->ahead_begin;
        if (stream->ahead_begin < stream->ahead_end &&
            !(stream->reading ? take_ahead(stream) : begin_message(stream))) {
            return false;
        }
        if (stream->ahead_begin == before) {
            break;
        }
    }
    const size_t rest = stream->ahead_end - stream->ahead_begin;
    memmove(stream->ahead, stream->ahead + stream->ahead_begin, rest);
    stream->ahead_begin = 0;
    stream->ahead_end = rest;
    return true;
}

/* One read; *asked_out: for how many bytes. */
static ssize_t read_once(wefti_tcp_stream *stream, size_t *asked_out)
{
    struct iovec parts[2];
    struct msghdr run = {.msg_iov = parts, .msg_iovlen = 0};
    size_t data_bytes = 0;
    if (stream->reading) {
        unsigned char *place = place_of(stream);
        if (!place) {
            errno = ENOMEM;
            return -1;
        }
        data_bytes = stream->frame.data_bytes - stream->got_bytes;
        parts[run.msg_iovlen++] = (struct iovec){place, data_bytes};
    }
    const size_t room = sizeof(stream->ahead) - stream->ahead_end;
    parts[run.msg_iovlen++] =
        (struct iovec){stream->ahead + stream->ahead_end, room};
    *asked_out = data_bytes + room;
    ssize_t got = recvmsg(stream->fd, &run, MSG_DONTWAIT);
    if (got > 0) {
        const size_t bytes = (size_t)got;
        const size_t data = bytes < data_bytes ? bytes : data_bytes;
        stream->expected_bytes -=
            bytes < stream->expected_bytes ? bytes : stream->expected_bytes;
        stream->ahead_end += bytes - data;
        if (data > 0) {
            note_data(stream, data);
        }
    }
    return got;
}

wefti_tcp_result wefti_tcp_stream_read(wefti_tcp_stream *stream)
{
    wefti_tcp_result result = WEFTI_TCP_NOTHING;
    for (size_t bytes = 0; bytes < READ_MOST;) {
        size_t asked = 0;
        ssize_t got = read_once(stream, &asked);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0 && errno == EAGAIN) {
            break;
        }
        if (got == 0) {
            errno = stream->broken ? stream->broken : ECONNRESET;
            return stream->broken || stream->reading || stream->ahead_end
                       ? WEFTI_TCP_BROKEN
                       : WEFTI_TCP_ENDED;
        }
        if (got <= 0 || !consume(stream)) {
            return WEFTI_TCP_BROKEN;
        }
        result = WEFTI_TCP_MOVED;
        bytes += (size_t)got;
        if ((size_t)got < asked) {
            break; /* there was no more */
        }
    }
    wefti_tcp_marks_update(stream);
    return result;
}
