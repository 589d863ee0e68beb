/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: who receives over a TCP connection asks to be woken for whole messages,
 * not for packets, and never for bytes that do not come.
 * Method: packets are kept back until there are as many bytes as the stream has
 * asked the kernel to wait for, which is a wake-up; then it reads them, through
 * a pair of sockets. No clock and no network: every run is the same.
 */
#include "comm/net/tcp_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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
    wefti_tcp_stream_init(stream, &config);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wakeups_are_few),
        cmocka_unit_test(test_nothing_is_waited_for_that_does_not_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
