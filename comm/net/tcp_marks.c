/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/tcp_marks.c - the low marks of a stream's socket, each way, and what
 * is expected of it (comm/net/tcp_stream.h).
 */
#include "comm/net/tcp_marks.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
    UNSENT_BYTES = 256 << 10, /* in the kernel, before what is urgent */
    DRAINED_BYTES = 24 << 10, /* there, to send until more is given to it */
    LOWAT_LEAST = 16 << 10,   /* below, waiting for more gains nothing */
    LOWAT_BYTES = 256 << 10,
    EXPECT_MOST = 2 * LOWAT_BYTES + (4 << 10), /* as many bytes, and heads */
    HIDDEN_MOST = 64 << 10,    /* that a thread leaves that is awake anyway */
    TOGETHER_BYTES = 136 << 10 /* a chunk, and what is said beside it */
};

void wefti_tcp_marks_bound(wefti_tcp_stream *stream)
{
    const bool waits = stream->urgent && !stream->overtakes;
    const size_t bytes = stream->drains ? DRAINED_BYTES
                         : waits        ? UNSENT_BYTES
                                        : 0; /* as much as it likes */
    const int value = (int)bytes;
    if (bytes != stream->bound_bytes &&
        setsockopt(stream->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &value,
                   sizeof(value)) == 0) {
        stream->bound_bytes = bytes;
    }
}

/*
 * For how many bytes to be woken, of those that are sure to come: all if they
 * are few, else half, because the sender may wait for these to be read before
 * it sends more; and then for whole messages, if the next are as long as the
 * last. left: of the one under way.
 */
static size_t choose_lowat(size_t left, size_t coming, size_t message)
{
    if (coming <= TOGETHER_BYTES) {
        return coming < LOWAT_LEAST ? 1 : coming;
    }
    const size_t half = coming / 2;
    const size_t wanted = half < LOWAT_BYTES ? half : LOWAT_BYTES;
    if (left >= wanted) {
        return left < LOWAT_BYTES ? left : LOWAT_BYTES;
    }
    const size_t messages = (wanted - left + message - 1) / message;
    const size_t whole = left + messages * message;
    if (whole <= coming && whole <= LOWAT_BYTES) {
        return whole;
    }
    return whole - message >= LOWAT_LEAST ? whole - message : wanted;
}

static void set_lowat(wefti_tcp_stream *stream, size_t wanted)
{
    const int value = (int)wanted;
    if (stream->fd >= 0 && wanted != stream->lowat &&
        setsockopt(stream->fd, SOL_SOCKET, SO_RCVLOWAT, &value,
                   sizeof(value)) == 0) {
        stream->lowat = wanted;
    }
}

/* Of what is announced and what is expected, whatever is more. */
void wefti_tcp_marks_update(wefti_tcp_stream *stream)
{
    const wefti_tcp_frame *frame = &stream->frame;
    size_t left = 0, coming = frame->behind_bytes;
    if (stream->reading) {
        left = frame->data_bytes - stream->got_bytes;
        coming += left;
    } else {
        coming -= coming < stream->ahead_end ? coming : stream->ahead_end;
    }
    const size_t announced = choose_lowat(
        left, coming, sizeof(*frame) + frame->header_bytes + frame->data_bytes);
    const size_t expected = stream->expected_bytes < EXPECT_MOST
                                ? stream->expected_bytes
                                : EXPECT_MOST;
    set_lowat(stream, expected > announced ? expected : announced);
}

/* Whether the kernel has enough to send until this rank has read the peer's
 * word. */
static bool has_enough(const wefti_tcp_stream *stream)
{
    int unsent_bytes = 0;
    return ioctl(stream->fd, SIOCOUTQNSD, &unsent_bytes) == 0 &&
           unsent_bytes >= 2 * DRAINED_BYTES;
}

/* What has been read of it already: of the message under way, and ahead. */
void wefti_tcp_stream_expect(wefti_tcp_stream *stream,
                             const wefti_port_expected *expected)
{
    const wefti_tcp_frame *frame = &stream->frame;
    const size_t whole = expected->messages * sizeof(*frame) + expected->bytes;
    size_t read = stream->ahead_end - stream->ahead_begin;
    if (stream->reading) {
        read += sizeof(*frame) + frame->header_bytes + stream->got_bytes;
    }
    stream->expected_bytes = whole > read ? whole - read : 0;
    stream->drains =
        expected->blocked && stream->expected_bytes > 0 && has_enough(stream);
    if (expected->blocked && !stream->drains) {
        stream->expected_bytes = 0;
    }
    wefti_tcp_marks_bound(stream);
    wefti_tcp_marks_update(stream);
}

bool wefti_tcp_stream_hurry(wefti_tcp_stream *stream)
{
    int unread_bytes = 0;
    const bool hid = stream->lowat > 1 &&
                     ioctl(stream->fd, FIONREAD, &unread_bytes) == 0 &&
                     unread_bytes > 0 && (size_t)unread_bytes < stream->lowat;
    stream->expected_bytes = 0;
    stream->drains = false;
    wefti_tcp_marks_bound(stream);
    set_lowat(stream, 1);
    return hid;
}

bool wefti_tcp_stream_hides_much(const wefti_tcp_stream *stream)
{
    int unread_bytes = 0;
    return stream->lowat > HIDDEN_MOST &&
           ioctl(stream->fd, FIONREAD, &unread_bytes) == 0 &&
           unread_bytes >= HIDDEN_MOST;
}
