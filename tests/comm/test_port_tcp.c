/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: two ports on weft's own sockets exchange messages whole and once, also
 * when both connect at once; large ones keep their order and small ones may
 * overtake; a message whose place goes while it comes is dropped, and those
 * behind it are not; who speaks nonsense is lost, and nobody else; what is
 * urgent goes before what is not, as long as that is not for ever. Over several
 * rails too, where large ones may overtake, what is to be the last is, and a
 * rail that the other end lacks is named and not used. Method:
 * tests/comm/port_ends.h; sizes drawn, with a printed seed.
 */
#include "tests/comm/port_ends.h"

#include "base/clock.h"
#include "tests/seed.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static size_t draw_bytes(uint64_t *seed)
{
    const uint64_t kind = random_next(seed) % 4;
    const uint64_t most = kind == 0 ? 1 : kind == 1 ? 5000 : MOST_BYTES;
    return (size_t)(random_next(seed) % most);
}

static void exchange(int rails, uint64_t *seed)
{
    port_end *ends = calloc(2, sizeof(*ends));
    port_address addresses[2][RAILS_MOST];
    unsigned char *data[2][MESSAGES];
    assert_non_null(ends);
    port_connect_rails(ends, rails, port_same_rails, addresses);
    for (uint32_t number = 0; number < MESSAGES; number++) {
        for (int i = 0; i < 2; i++) {
            const size_t bytes = draw_bytes(seed) / (rails == 1 ? 1 : 4);
            unsigned char *at = data[i][number] = malloc(bytes + 1);
            assert_non_null(at);
            for (size_t k = 0; k < bytes; k++) {
                at[k] = port_byte_at(number, k);
            }
            wefti_port_tcp.hold(ends[i].port, number % 16 != 15);
            port_send_one(&ends[i], 1 - i, number, at, bytes);
        }
        if (number % 64 == 40) { /* mostly far behind, at times caught up */
            const int most = (int)number + 1;
            wefti_port_tcp.hold(ends[0].port, false);
            wefti_port_tcp.hold(ends[1].port, false);
            port_push(ends, number % 128 == 40 ? (int[2]){most, most}
                                               : (int[2]){most / 2, most / 2});
        }
    }
    port_push(ends, (int[2]){MESSAGES, MESSAGES});
    for (int i = 0; i < 2; i++) {
        assert_false(ends[i].wrong || ends[i].lost || ends[i].unreached);
        assert_false(rails == 1 && ends[i].disorder);
        assert_int_equal(wefti_port_tcp.unsent(ends[i].port), 0);
        for (int number = 0; number < MESSAGES; number++) {
            assert_int_equal(ends[i].got[number], 1);
            free(data[i][number]);
        }
    }
    port_close_ends(ends);
}

static void test_messages_both_ways_come_whole_and_once(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int rails = 1; rails <= RAILS_MOST; rails++) {
        exchange(rails, &seed);
    }
}

static void lose_place(int rails)
{
    port_end *ends = calloc(2, sizeof(*ends));
    port_address addresses[2][RAILS_MOST];
    unsigned char *data = calloc(3, MOST_BYTES);
    assert_true(ends && data);
    port_connect_rails(ends, rails, port_same_rails, addresses);
    port_send_one(&ends[0], 1, 1, data, 1);
    port_reach_all(ends, rails);
    ends[1].withdrawn = 4;
    for (uint32_t number = 3; number < 6; number++) {
        unsigned char *at = data + (number - 3) * MOST_BYTES;
        for (size_t k = 0; k < MOST_BYTES; k++) {
            at[k] = port_byte_at(number, k);
        }
        port_send_one(&ends[0], 1, number, at, MOST_BYTES);
    }
    port_push(ends, (int[2]){0, 3});
    assert_int_equal(ends[1].got[3], 1);
    assert_int_equal(ends[1].got[4], 0);
    assert_int_equal(ends[1].got[5], 1);
    assert_false(ends[1].lost);
    free(data);
    port_close_ends(ends);
}

static void test_message_without_its_place_is_dropped(void **state)
{
    (void)state;
    lose_place(1);
    lose_place(2);
}
static void test_nonsense_loses_the_one_who_speaks_it(void **state)
{
    (void)state;
    port_words said = {.rank = 1, .header_bytes = 8, .data_bytes = UINT32_MAX};
    port_end *ends = calloc(2, sizeof(*ends));
    port_address addresses[2][RAILS_MOST];
    assert_non_null(ends);
    port_connect_ends(ends, addresses);
    said.magic = addresses[0][0].magic;
    memset(said.proof, 0x11, sizeof(said.proof)); /* not the job's */
    int stranger = port_speak(&addresses[0][0], &said, sizeof(said));
    const unsigned char data[] = {port_byte_at(1, 0)};
    port_send_one(&ends[1], 0, 1, data, 1);
    port_push(ends, (int[2]){1, 0});
    assert_int_equal(ends[0].lost + ends[1].lost, 0);
    close(stranger);
    port_close_ends(ends);

    ends = calloc(2, sizeof(*ends));
    assert_non_null(ends);
    port_connect_ends(ends, addresses);
    memset(said.proof, 0x5c, sizeof(said.proof));
    stranger = port_speak(&addresses[0][0], &said, sizeof(said));
    const int64_t until_ns = wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
    while (ends[0].lost == 0) {
        assert_true(wefti_clock_ns() < until_ns);
        struct pollfd news = {.fd = wefti_port_tcp.event_fd(ends[0].port),
                              .events = POLLIN};
        assert_true(poll(&news, 1, LIMIT_S * 1000) > 0);
        (void)wefti_port_tcp.progress(ends[0].port);
    }
    assert_int_equal(ends[0].arrived, 0);
    close(stranger);
    port_close_ends(ends);
}

/* The two ends, one of which has been sent something urgent before. */
static port_end *open_urgent(unsigned char **data_out)
{
    port_end *ends = calloc(2, sizeof(*ends));
    port_address addresses[2][RAILS_MOST];
    *data_out = calloc(1, MOST_BYTES);
    assert_true(ends && *data_out);
    port_connect_ends(ends, addresses);
    ends[1].any = true;
    port_send_with(&ends[0], 1, (port_note){0, 1}, *data_out, true);
    port_push(ends, (int[2]){0, 1});
    return ends;
}

/*
 * 50 MB of gradients are queued, as far as the kernel takes them, before the
 * activations, which are not small.
 */
static void test_urgent_message_passes_gradients(void **state)
{
    (void)state;
    enum { GRADIENT = 128 << 10, ACTIVATION = 64 << 10, PASSED = 12 };
    unsigned char *data;
    port_end *ends = open_urgent(&data);
    const uint32_t last = MESSAGES - 1;
    for (uint32_t number = 1; number < last; number++) {
        port_send_one(&ends[0], 1, number, data, GRADIENT);
    }
    while (wefti_port_tcp.progress(ends[0].port)) {
    }
    port_send_with(&ends[0], 1, (port_note){last, ACTIVATION}, data, true);
    port_push(ends, (int[2]){0, MESSAGES});
    print_message("after %d gradients\n", ends[1].before[last] - 1);
    assert_in_range(ends[1].before[last], 1, PASSED);
    for (uint32_t number = 2; number < last; number++) {
        assert_true(ends[1].before[number] > ends[1].before[number - 1]);
    }
    free(data);
    port_close_ends(ends);
}

static void test_urgent_messages_do_not_starve_others(void **state)
{
    (void)state;
    enum { GRADIENT = 128 << 10, ACTIVATION = 10 << 10, PASSED = 64 };
    unsigned char *data;
    port_end *ends = open_urgent(&data);
    wefti_port_tcp.hold(ends[0].port, true);
    port_send_one(&ends[0], 1, 1, data, GRADIENT);
    port_send_one(&ends[0], 1, 2, data, GRADIENT);
    for (uint32_t number = 3; number < MESSAGES; number++) {
        port_send_with(&ends[0], 1, (port_note){number, ACTIVATION}, data,
                       true);
    }
    wefti_port_tcp.hold(ends[0].port, false);
    port_push(ends, (int[2]){0, MESSAGES});
    assert_int_equal(ends[1].before[1], 1 + PASSED);
    assert_int_equal(ends[1].before[2], 1 + PASSED + 1);
    for (uint32_t number = 4; number < MESSAGES; number++) {
        assert_true(ends[1].before[number] > ends[1].before[number - 1]);
    }
    free(data);
    port_close_ends(ends);
}

/* The last is said to the first rail, which has the least to send. */
static void test_last_message_comes_last_over_all_rails(void **state)
{
    (void)state;
    enum { LARGE = 20 };
    port_end *ends = calloc(2, sizeof(*ends));
    port_address addresses[2][RAILS_MOST];
    unsigned char *data = calloc(1, MOST_BYTES);
    port_note last = {LARGE, 0};
    assert_true(ends && data);
    port_connect_rails(ends, 2, port_same_rails, addresses);
    port_reach_all(ends, 2);
    wefti_port_tcp.use(ends[0].port,
                       &(wefti_port_rails){.byte_ps = {0, 8000}, .small = 1});
    ends[1].any = true;
    for (uint32_t number = 0; number < LARGE; number++) {
        port_send_one(&ends[0], 1, number, data, number % 2 ? MOST_BYTES : 100);
    }
    wefti_port_tcp.send(ends[0].port,
                        &(wefti_port_message){.peer = 1,
                                              .header = &last,
                                              .header_bytes = sizeof(last),
                                              .last = true});
    port_push(ends, (int[2]){0, LARGE + 1});
    assert_int_equal(ends[1].before[LARGE], LARGE);
    free(data);
    port_close_ends(ends);
}

static void test_rail_that_the_other_end_lacks_is_not_used(void **state)
{
    (void)state;
    static const uint32_t numbers[2][RAILS_MOST] = {{7, 8, 9}, {5, 8, 6}};
    port_end *ends = calloc(2, sizeof(*ends));
    port_address addresses[2][RAILS_MOST];
    unsigned char *data = calloc(1, MOST_BYTES);
    assert_true(ends && data);
    port_connect_rails(ends, 3, numbers, addresses);
    ends[0].any = ends[1].any = true;
    for (uint32_t number = 0; number < 10; number++) {
        port_send_one(&ends[0], 1, number, data, MOST_BYTES);
        port_send_one(&ends[1], 0, number, data, MOST_BYTES);
        port_push(ends, (int[2]){(int)number + 1, (int)number + 1});
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ends[i].unreached, 1);
        assert_int_equal(ends[i].lost, 0);
        assert_int_equal(wefti_port_tcp.reach(ends[i].port, 1 - i, 1),
                         WEFTI_PORT_REACH_UP);
        assert_int_equal(wefti_port_tcp.reach(ends[i].port, 1 - i, 2),
                         WEFTI_PORT_REACH_NOT);
    }
    free(data);
    port_close_ends(ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_both_ways_come_whole_and_once),
        cmocka_unit_test(test_message_without_its_place_is_dropped),
        cmocka_unit_test(test_nonsense_loses_the_one_who_speaks_it),
        cmocka_unit_test(test_urgent_message_passes_gradients),
        cmocka_unit_test(test_urgent_messages_do_not_starve_others),
        cmocka_unit_test(test_last_message_comes_last_over_all_rails),
        cmocka_unit_test(test_rail_that_the_other_end_lacks_is_not_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
