/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: who receives over a TCP connection asks to be woken for whole messages,
 * not for packets, and never for bytes that do not come.
 * Method: packets are kept back until there are as many bytes as the stream has
 * asked the kernel to wait for, which is a wake-up; then it reads them, through
 * a pair of sockets. No clock and no network: every run is the same. And what
 * cannot be a frame, or a piece of a message, is refused: each said once.
 */
#include "comm/net/tcp_stream.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    PACKET = 60 << 10, /* as an emulated link has them */
    PIECE = 32 << 10,  /* that a pair of sockets takes for sure */
    MOST_BYTES = 500 << 10
};

/* What stands before a message's data. */
typedef struct head {
    wefti_tcp_frame frame;
    uint64_t number;
} head;

typedef struct reader {
    unsigned char place[MOST_BYTES];
    uint64_t arrived;
    bool wrong;
} reader;

static unsigned char byte_at(uint64_t number, size_t at)
{
    return (unsigned char)(number * 31 + at * 7 + at / 251);
}

static void *place(void *context, const void *header, size_t header_bytes,
                   size_t data_bytes)
{
    (void)header;
    assert_int_equal(header_bytes, sizeof(uint64_t));
    assert_in_range(data_bytes, 0, MOST_BYTES);
    return ((reader *)context)->place;
}

static void arrived(void *context, const void *header, size_t header_bytes,
                    const void *data, size_t data_bytes)
{
    reader *self = context;
    const unsigned char *bytes = data;
    uint64_t number;
    assert_int_equal(header_bytes, sizeof(number));
    memcpy(&number, header, sizeof(number));
    self->wrong |= number != self->arrived++;
    for (size_t i = 0; i < data_bytes; i++) {
        self->wrong |= bytes[i] != byte_at(number, i);
    }
}

/* Messages that were all queued at once. */
static unsigned char *write_messages(size_t count, size_t bytes)
{
    const size_t whole_bytes = sizeof(head) + bytes;
    unsigned char *all = malloc(count * whole_bytes);
    assert_non_null(all);
    for (size_t i = 0; i < count; i++) {
        unsigned char *at = all + i * whole_bytes;
        const head before = {
            .frame = {.header_bytes = sizeof(before.number),
                      .data_bytes = (uint32_t)bytes,
                      .all_bytes = (uint32_t)bytes,
                      .behind_bytes = (count - 1 - i) * whole_bytes},
            .number = i};
        memcpy(at, &before, sizeof(before));
        for (size_t k = 0; k < bytes; k++) {
            at[sizeof(before) + k] = byte_at(i, k);
        }
    }
    return all;
}

static void hand_over(wefti_tcp_stream *stream, int fd,
                      const unsigned char *bytes, size_t count)
{
    for (size_t sent = 0; sent < count; sent += PIECE) {
        const size_t now = count - sent < PIECE ? count - sent : PIECE;
        assert_int_equal(send(fd, bytes + sent, now, MSG_NOSIGNAL), now);
        assert_int_equal(wefti_tcp_stream_read(stream), WEFTI_TCP_MOVED);
    }
}

/* How often the reader of these messages is woken. */
static int count_wakeups(size_t messages, size_t bytes)
{
    const size_t all_bytes = messages * (sizeof(head) + bytes);
    unsigned char *all = write_messages(messages, bytes);
    reader *self = calloc(1, sizeof(*self));
    wefti_tcp_stream *stream = malloc(sizeof(*stream));
    assert_true(self && stream);
    const wefti_port_config config = {
        .context = self, .place = place, .arrived = arrived};
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    wefti_tcp_stream_init(stream, &config, NULL);
    stream->fd = fds[0];
    int wakeups = 0;
    size_t read = 0;
    for (size_t come = 0; come < all_bytes;) {
        come += all_bytes - come < PACKET ? all_bytes - come : PACKET;
        if (come - read >= stream->lowat) {
            wakeups++;
            hand_over(stream, fds[1], all + read, come - read);
            read = come;
        }
    }
    assert_int_equal(read, all_bytes); /* it does not wait for more */
    assert_int_equal(self->arrived, messages);
    assert_false(self->wrong);
    assert_int_equal(stream->lowat, 1);
    wefti_tcp_stream_fini(stream);
    close(fds[1]);
    free(stream);
    free(self);
    free(all);
    return wakeups;
}

/* The first finds out what comes. */
static void test_wakeups_are_few(void **state)
{
    (void)state;
    static const struct {
        size_t messages, bytes;
        int wakeups;
    } cases[] = {{1, 64 << 10, 2},  {1, 128 << 10, 2}, {4, 128 << 10, 3},
                 {8, 128 << 10, 5}, {4, 64 << 10, 3},  {16, 64 << 10, 6},
                 {2, 500 << 10, 5}, {3, 10 << 10, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int wakeups = count_wakeups(cases[i].messages, cases[i].bytes);
        print_message("%zu of %zu bytes: %d wake-ups\n", cases[i].messages,
                      cases[i].bytes, wakeups);
        assert_int_equal(wakeups, cases[i].wakeups);
    }
}

/* Any number of messages of any size is read to its end. */
static void test_nothing_is_waited_for_that_does_not_come(void **state)
{
    (void)state;
    for (size_t messages = 1; messages <= 5; messages++) {
        for (size_t bytes = 1; bytes <= MOST_BYTES; bytes = bytes * 5 + 3) {
            assert_in_range(count_wakeups(messages, bytes), 1,
                            messages * (sizeof(head) + bytes) / PACKET + 1);
        }
    }
}

/* What a stream makes of one frame, with room for pieces or without. */
static wefti_tcp_result read_frame(const wefti_tcp_frame *frame, bool cuts)
{
    reader *self = calloc(1, sizeof(*self));
    wefti_tcp_stream *stream = malloc(sizeof(*stream));
    wefti_tcp_pieces pieces = {.count = 0};
    unsigned char words[sizeof(*frame) + sizeof(uint64_t)] = {0};
    int fds[2];
    assert_true(self && stream);
    const wefti_port_config config = {
        .context = self, .place = place, .arrived = arrived};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    wefti_tcp_stream_init(stream, &config, cuts ? &pieces : NULL);
    stream->fd = fds[0];
    memcpy(words, frame, sizeof(*frame));
    assert_int_equal(send(fds[1], words, sizeof(words), MSG_NOSIGNAL),
                     sizeof(words));
    const wefti_tcp_result result = wefti_tcp_stream_read(stream);
    assert_true(result != WEFTI_TCP_BROKEN || errno == EPROTO);
    wefti_tcp_stream_fini(stream);
    wefti_tcp_pieces_fini(&pieces);
    close(fds[1]);
    free(stream);
    free(self);
    return result;
}

static void test_frames_that_cannot_be_are_refused(void **state)
{
    (void)state;
    enum { HEAD = sizeof(uint64_t), MOST = WEFTI_TCP_DATA_MOST };
    static const struct {
        wefti_tcp_frame frame;
        bool cuts, good;
    } cases[] = {
        {{HEAD, 100, 0, 0, 100, 0}, false, true},
        {{HEAD, 100, 0, 1, 200, 0}, true, true},
        {{HEAD, 100, 0, 1, 200, 100}, true, true},
        {{HEAD, 0, 0, 5, 0, WEFTI_TCP_BEGIN_LAST}, true, true},
        {{HEAD, 100, 0, 1, 200, 0}, false, false}, /* nobody cuts here */
        {{HEAD, 0, 0, 5, 0, WEFTI_TCP_BEGIN_LAST}, false, false},
        {{HEAD, 100, 0, 0, 200, 0}, true, false}, /* no number */
        {{HEAD, 100, 0, 1, 200, 101}, true, false},
        {{HEAD, 100, 0, 1, 99, 0}, true, false},
        {{HEAD, 100, 0, 1, 200, -2}, true, false},
        {{HEAD, 1, 0, 5, 1, WEFTI_TCP_BEGIN_LAST}, true, false},
        {{HEAD, 100, 0, 1, MOST + 1, 0}, true, false},
        {{HEAD, 100, 0, 1, 200, INT32_MAX}, true, false},
        {{200, 100, 0, 0, 100, 0}, true, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        print_message("frame %zu\n", i);
        assert_int_equal(read_frame(&cases[i].frame, cases[i].cuts),
                         cases[i].good ? WEFTI_TCP_MOVED : WEFTI_TCP_BROKEN);
    }
}

/* The numbered message of 200 bytes: what is said of it must agree. */
static void test_pieces_of_one_message_must_agree(void **state)
{
    (void)state;
    wefti_tcp_pieces pieces = {.count = 0};
    const wefti_port_config config = {.arrived = arrived};
    wefti_tcp_whole *whole = wefti_tcp_pieces_find(&pieces, 1, 200);
    assert_non_null(whole);
    assert_ptr_equal(wefti_tcp_pieces_find(&pieces, 1, 200), whole);
    assert_null(wefti_tcp_pieces_find(&pieces, 1, 201));
    assert_int_equal(errno, EPROTO);
    wefti_tcp_whole *other = wefti_tcp_pieces_find(&pieces, 2, 300);
    assert_non_null(other);
    wefti_tcp_pieces_end(&pieces, whole, &config);
    assert_ptr_equal(wefti_tcp_pieces_find(&pieces, 2, 300), other);
    wefti_tcp_pieces_end(&pieces, other, &config);
    assert_int_equal(pieces.done, 2);
    assert_int_equal(pieces.count, 0);
    wefti_tcp_pieces_fini(&pieces);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wakeups_are_few),
        cmocka_unit_test(test_nothing_is_waited_for_that_does_not_come),
        cmocka_unit_test(test_frames_that_cannot_be_are_refused),
        cmocka_unit_test(test_pieces_of_one_message_must_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
