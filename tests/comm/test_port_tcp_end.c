/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: an end that leaves is lost once, after all that it sent, whoever of the
 * two finds out, over whichever rail first, and with messages to it queued.
 * Method: tests/comm/port_ends.h, and ends whose bytes a test writes itself, to
 * close one rail while the others still have something to say.
 */
#include "tests/comm/port_ends.h"

#include "base/clock.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static void test_end_that_leaves_is_lost_once_after_its_messages(void **state)
{
    (void)state;
    enum { LARGE = 8 };
    port_end *ends = calloc(2, sizeof(*ends));
    port_address addresses[2][RAILS_MOST];
    unsigned char *data = calloc(1, MOST_BYTES);
    assert_true(ends && data);
    port_connect_rails(ends, 3, port_same_rails, addresses);
    port_reach_all(ends, 3);
    ends[1].any = true;
    for (uint32_t number = 0; number < LARGE; number++) {
        port_send_one(&ends[0], 1, number, data, 60000);
    }
    wefti_port_tcp.close(ends[0].port, LIMIT_S * 1000);
    ends[0].port = NULL;
    const int64_t until_ns = wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
    while (ends[1].lost == 0) {
        assert_true(wefti_clock_ns() < until_ns);
        (void)wefti_port_tcp.progress(ends[1].port);
    }
    while (wefti_port_tcp.progress(ends[1].port)) {
    }
    assert_int_equal(ends[1].lost, 1);
    assert_int_equal(ends[1].arrived, LARGE);
    free(data);
    port_close_ends(ends);
}

/* Who has not read yet is told by a message of its own that the other end has
 * closed. */
static void test_what_an_end_said_before_it_closed_is_read(void **state)
{
    (void)state;
    enum { SAID = 5, SAID_BYTES = 5000 };
    port_end *ends = calloc(2, sizeof(*ends));
    port_address addresses[2][RAILS_MOST];
    unsigned char *data = calloc(1, MOST_BYTES);
    assert_true(ends && data);
    port_connect_ends(ends, addresses);
    port_reach_all(ends, 1);
    ends[1].any = true;
    for (uint32_t number = 0; number < SAID; number++) {
        port_send_one(&ends[0], 1, number, data, SAID_BYTES);
    }
    wefti_port_tcp.close(ends[0].port, LIMIT_S * 1000);
    ends[0].port = NULL;
    for (uint32_t number = 0; number < 3; number++) {
        port_send_one(&ends[1], 0, number, data, SAID_BYTES);
        (void)poll(NULL, 0, 50); /* for the kernel's answer */
    }
    assert_int_equal(ends[1].arrived, 0);
    const int64_t until_ns = wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
    while (ends[1].lost == 0) {
        assert_true(wefti_clock_ns() < until_ns);
        (void)wefti_port_tcp.progress(ends[1].port);
    }
    assert_int_equal(ends[1].lost, 1);
    assert_int_equal(ends[1].arrived, SAID);
    assert_int_equal(wefti_port_tcp.unsent(ends[1].port), 0);
    free(data);
    port_close_ends(ends);
}

/* A peer's rail, once the end has welcomed it. */
static int join(port_end *self, const port_address *to, const void *said,
                size_t bytes)
{
    const int64_t until_ns = wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
    const int fd = port_speak(to, said, bytes);
    unsigned char answer = 0;
    while (recv(fd, &answer, 1, MSG_DONTWAIT) != 1) {
        assert_true(wefti_clock_ns() < until_ns);
        (void)wefti_port_tcp.progress(self->port);
    }
    assert_int_equal(answer, 'w');
    return fd;
}

/* Pushes the end until the peer's rail is known to be closed. */
static void push_until_closed(port_end *self, int rail)
{
    const int64_t until_ns = wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
    while (wefti_port_tcp.reach(self->port, 1, rail) != WEFTI_PORT_REACH_NOT) {
        assert_true(wefti_clock_ns() < until_ns);
        (void)wefti_port_tcp.progress(self->port);
    }
}

/* A peer says one half of a message over each of its rails; the first is cut
 * off, with messages to it queued, before the second half is said. */
static void test_closed_rail_waits_for_what_comes_over_others(void **state)
{
    (void)state;
    enum { HALF = 4000 };
    unsigned char data[2 * HALF];
    port_end *ends = calloc(2, sizeof(*ends));
    port_address addresses[2][RAILS_MOST];
    assert_non_null(ends);
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = port_byte_at(1, i);
    }
    port_connect_rails(ends, 2, port_same_rails, addresses);
    int fds[2];
    for (int rail = 0; rail < 2; rail++) {
        port_words said = {.magic = addresses[0][0].magic,
                           .rank = 1,
                           .rail = rail == 0 ? 0 : port_same_rails[0][rail],
                           .header_bytes = sizeof(port_note),
                           .data_bytes = HALF,
                           .number = {1},
                           .all_bytes = 2 * HALF,
                           .begin = rail * HALF,
                           .header = {1, 2 * HALF}};
        memset(said.proof, 0x5c, sizeof(said.proof));
        fds[rail] = join(&ends[0], &addresses[0][rail], &said, sizeof(said));
    }
    assert_int_equal(send(fds[0], data, HALF, MSG_NOSIGNAL), HALF);
    unsigned char *much = calloc(1, MOST_BYTES);
    assert_non_null(much);
    for (uint32_t number = 0; number < 100; number++) {
        port_send_one(&ends[0], 1, number, much, MOST_BYTES);
    }
    assert_true(wefti_port_tcp.unsent(ends[0].port) > 0);
    close(fds[0]); /* with messages unread: the kernel cuts it off */
    push_until_closed(&ends[0], 0);
    assert_int_equal(ends[0].lost, 0);
    assert_int_equal(send(fds[1], data + HALF, HALF, MSG_NOSIGNAL), HALF);
    port_push(ends, (int[2]){1, 0});
    assert_false(ends[0].wrong || ends[0].lost);
    close(fds[1]);
    push_until_closed(&ends[0], 1);
    assert_int_equal(ends[0].lost, 1);
    assert_int_equal(ends[0].arrived, 1);
    assert_int_equal(wefti_port_tcp.unsent(ends[0].port), 0);
    free(much);
    port_close_ends(ends);
}

/* The other stays open. */
static void test_peer_of_one_closed_rail_is_lost_in_the_end(void **state)
{
    (void)state;
    port_end *ends = calloc(2, sizeof(*ends));
    port_address addresses[2][RAILS_MOST];
    int fds[2];
    assert_non_null(ends);
    port_connect_rails(ends, 2, port_same_rails, addresses);
    for (int rail = 0; rail < 2; rail++) {
        port_words said = {.magic = addresses[0][0].magic,
                           .rank = 1,
                           .rail = rail == 0 ? 0 : port_same_rails[0][rail]};
        memset(said.proof, 0x5c, sizeof(said.proof));
        fds[rail] = join(&ends[0], &addresses[0][rail], &said,
                         offsetof(port_words, header_bytes));
    }
    close(fds[0]);
    push_until_closed(&ends[0], 0);
    assert_int_equal(ends[0].lost, 0);
    push_until_closed(&ends[0], 1);
    assert_int_equal(ends[0].lost, 1);
    close(fds[1]);
    port_close_ends(ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_end_that_leaves_is_lost_once_after_its_messages),
        cmocka_unit_test(test_what_an_end_said_before_it_closed_is_read),
        cmocka_unit_test(test_closed_rail_waits_for_what_comes_over_others),
        cmocka_unit_test(test_peer_of_one_closed_rail_is_lost_in_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
