/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: say what gates and streams cost on this machine.
 * Method: median of rounds, printed; the counts are checked, the times are
 * not, for a busy machine must not make a test fail.
 */
#include "base/clock.h"
#include "device/holds.h"
#include "device_test.h"

enum {
    ROUNDS = 9,
    SIGNALS = 200000,
    TURNS = 2000,
    HOPS = 2000,
    WAITS = 10000,
    LOOKS = 100
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_median(const char *what, double *values)
{
    qsort(values, ROUNDS, sizeof(*values), compare);
    print_message("%-52s %8.1f ns (%.1f .. %.1f, %d rounds)\n", what,
                  values[ROUNDS / 2], values[0], values[ROUNDS - 1], ROUNDS);
}

static void test_cost_of_signal_nobody_waits_for(void **state)
{
    weft_gate *gate = make_gate(*state, 1);
    double each[ROUNDS];
    uint64_t epoch = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start_ns = wefti_clock_ns();
        for (int i = 0; i < SIGNALS; i++) {
            ok(weft_gate_signal(gate, 0, ++epoch, NULL));
        }
        each[round] = (double)(wefti_clock_ns() - start_ns) / SIGNALS;
    }
    assert_int_equal(wefti_gate_get(gate, 0), (uint64_t)ROUNDS * SIGNALS);
    print_median("signal, nobody waits", each);
    weft_gate_destroy(gate);
}

static void *pong_main(void *arg)
{
    weft_gate *gate = arg;
    for (uint64_t turn = 1; turn <= (uint64_t)ROUNDS * TURNS; turn++) {
        ok(weft_gate_wait(gate, 0, turn, NULL));
        ok(weft_gate_signal(gate, 1, turn, NULL));
    }
    return NULL;
}

static void test_cost_of_ping_pong_between_threads(void **state)
{
    weft_gate *gate = make_gate(*state, 2);
    double each[ROUNDS];
    uint64_t turn = 0;
    pthread_t thread;
    start(&thread, pong_main, gate);
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start_ns = wefti_clock_ns();
        for (int i = 0; i < TURNS; i++) {
            ok(weft_gate_signal(gate, 0, ++turn, NULL));
            ok(weft_gate_wait(gate, 1, turn, NULL));
        }
        each[round] = (double)(wefti_clock_ns() - start_ns) / TURNS;
    }
    join(thread);
    print_median("ping-pong of two host threads, there and back", each);
    weft_gate_destroy(gate);
}

static void test_cost_of_a_wake_through_a_stream(void **state)
{
    weft_gate *gate = make_gate(*state, 2);
    weft_stream *stream = make_stream(*state);
    double each[ROUNDS];
    uint64_t hop = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start_ns = wefti_clock_ns();
        for (int i = 0; i < HOPS; i++) {
            ok(weft_gate_wait(gate, 0, ++hop, stream));
            ok(weft_gate_signal(gate, 1, hop, stream));
            ok(weft_gate_signal(gate, 0, hop, NULL));
            assert_int_equal(wefti_gate_get(gate, 1), hop);
        }
        each[round] = (double)(wefti_clock_ns() - start_ns) / HOPS;
    }
    print_median("wait and signal posted, then woken by the host", each);
    weft_stream_destroy(stream);
    weft_gate_destroy(gate);
}

/* What a host thread that waits for the device pays each time it looks. */
static void print_looks(weft_device *device, const char *what)
{
    double each[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start_ns = wefti_clock_ns();
        for (int i = 0; i < LOOKS; i++) {
            wefti_device_tend(device);
        }
        each[round] = (double)(wefti_clock_ns() - start_ns) / LOOKS;
    }
    print_median(what, each);
}

static void test_cost_of_a_look_with_waits_queued(void **state)
{
    weft_gate *gate = make_gate(*state, 1), *failed = make_gate(*state, 1);
    weft_stream *stream = make_stream(*state), *other = make_stream(*state);
    for (uint64_t wait = 1; wait <= WAITS; wait++) {
        ok(weft_gate_wait(gate, 0, wait, stream));
    }
    print_looks(*state, "look, 10000 waits queued");
    ok(weft_gate_wait(failed, 0, 1, other));
    wefti_gate_fail(failed, WEFT_ERR_PEER, "rank 3 has died");
    assert_int_equal(weft_stream_wait(other), WEFT_ERR_PEER);
    print_looks(*state, "look, and another gate has failed");
    weft_gate_destroy(failed);
    ok(weft_gate_signal(gate, 0, WAITS, NULL));
    weft_stream_destroy(stream);
    weft_stream_destroy(other);
    weft_gate_destroy(gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"test_cost_of_signal_nobody_waits_for",
         test_cost_of_signal_nobody_waits_for, open_host, close_device, NULL},
        {"test_cost_of_ping_pong_between_threads",
         test_cost_of_ping_pong_between_threads, open_host, close_device, NULL},
        {"test_cost_of_a_wake_through_a_stream",
         test_cost_of_a_wake_through_a_stream, open_host, close_device, NULL},
        {"test_cost_of_a_look_with_waits_queued",
         test_cost_of_a_look_with_waits_queued, open_shadow, close_device,
         NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
