/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/tcp_stream.h - messages over one TCP connection.
 *
 *   frame | header | data | frame | header | frame | header | data ...
 *
 * Data go from the sender's memory to the kernel, and from there to where the
 * receiver wants them. Small messages and urgent ones overtake others that have
 * not begun, but none of these for ever.
 * A frame also says how many bytes are queued behind it, so that the receiver
 * can ask the kernel to be woken for many of them at once (SO_RCVLOWAT): for no
 * more than is sure to come, or than it needs before anything is of use to it.
 */
#ifndef COMM_NET_TCP_STREAM_H
#define COMM_NET_TCP_STREAM_H

#include "comm/net/tcp_pieces.h"

enum {
    WEFTI_TCP_AHEAD_BYTES = 8192,
    WEFTI_TCP_DATA_MOST = 8 << 20, /* of one message */
    WEFTI_TCP_BEGIN_LAST = -1      /* in the place of begin */
};

/*
 * data_bytes of a message's all_bytes, from begin on. number 0: all of them,
 * with nothing else to wait for; else as comm/net/tcp_pieces.h says. begin
 * LAST: a header that is delivered after `number` such messages.
 */
typedef struct wefti_tcp_frame {
    uint32_t header_bytes;
    uint32_t data_bytes;
    uint64_t behind_bytes;
    uint64_t number;
    uint32_t all_bytes;
    int32_t begin;
} wefti_tcp_frame;

/* Which part of a message's data a stream is to send. */
typedef struct wefti_tcp_part {
    uint64_t number;
    size_t begin, bytes;
} wefti_tcp_part;

typedef struct wefti_tcp_record wefti_tcp_record;

/*
 * unsent     messages not yet handed to the kernel, unsent_bytes theirs
 * full       the kernel takes no more for now
 * broken     why it takes nothing any more, an errno; 0: it does. What is
 *            queued then is dropped, and what has come is read yet
 * urgent     a message was: of others the kernel is given little at a time
 * overtakes  so does what was given to it last
 * drains     the kernel has enough to send, and is to say when not
 * bound_bytes  that it takes unsent, as set on the socket; 0: any number
 * ahead      [ahead_begin, ahead_end): received and not yet looked at
 * reading    a frame of which got_bytes of the data have come, of message
 *            `whole`: own, or one of pieces (NULL: none may come)
 * expected_bytes  that the kernel has yet to hand over before anything of them
 *            is of use; 0: not known
 * lowat      as it is set on the socket
 */
typedef struct wefti_tcp_stream {
    int fd;
    const wefti_port_config *config;
    wefti_tcp_record *first, *free;
    size_t unsent, unsent_bytes;
    bool full, urgent, overtakes, drains;
    int broken;
    size_t bound_bytes;
    bool reading;
    wefti_tcp_frame frame;
    unsigned char header[WEFTI_PORT_HEADER_BYTES];
    size_t got_bytes;
    wefti_tcp_whole *whole, own;
    wefti_tcp_pieces *pieces;
    size_t expected_bytes;
    size_t lowat;
    size_t ahead_begin, ahead_end;
    unsigned char ahead[WEFTI_TCP_AHEAD_BYTES];
} wefti_tcp_stream;

typedef enum wefti_tcp_result {
    WEFTI_TCP_NOTHING,
    WEFTI_TCP_MOVED,
    WEFTI_TCP_ENDED, /* by the peer, after a whole message */
    WEFTI_TCP_BROKEN /* errno says why; EPROTO: the peer sends nonsense */
} wefti_tcp_result;

/* fd -1: messages queue up until it is set. pieces: borrowed; may be NULL. */
void wefti_tcp_stream_init(wefti_tcp_stream *stream,
                           const wefti_port_config *config,
                           wefti_tcp_pieces *pieces);

/* Memory for a few small messages each way, so that these need none later;
 * false: there is none. */
bool wefti_tcp_stream_reserve(wefti_tcp_stream *stream);

/* Drops what is queued; closes fd. */
void wefti_tcp_stream_fini(wefti_tcp_stream *stream);

/* Queues a message, or a part of one; false: no memory. */
bool wefti_tcp_stream_put(wefti_tcp_stream *stream,
                          const wefti_port_message *message,
                          const wefti_tcp_part *part);

/* As give_back of comm/net/port.h, of one connection; false: no memory. */
bool wefti_tcp_stream_give_back(wefti_tcp_stream *stream, const size_t *lent);

/* Hands to the kernel what it takes: NOTHING or MOVED. */
wefti_tcp_result wefti_tcp_stream_flush(wefti_tcp_stream *stream);

/* Receives what has come, within reason; arrived() is called from here. */
wefti_tcp_result wefti_tcp_stream_read(wefti_tcp_stream *stream);

/* As expect and hurry of comm/net/port.h, of one connection
 * (comm/net/tcp_marks.c, as the next). */
void wefti_tcp_stream_expect(wefti_tcp_stream *stream,
                             const wefti_port_expected *expected);
bool wefti_tcp_stream_hurry(wefti_tcp_stream *stream);

/* Whether so much has come of what is expected that it is better read now, by
 * a thread that something else has woken, than with a wake-up of its own. */
bool wefti_tcp_stream_hides_much(const wefti_tcp_stream *stream);

#endif
