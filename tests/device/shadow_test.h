/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/device/shadow_test.h - what tests of the shadow device's order share:
 * devices of a seed, and kernels that write down their turn.
 */
#ifndef TESTS_DEVICE_SHADOW_TEST_H
#define TESTS_DEVICE_SHADOW_TEST_H

#include "device_test.h"

enum { SEEDS = 20 };

/* Of a seed; no other handle of the ordinal may be open. */
static inline weft_device *open_seeded(int index, int seed)
{
    char text[16];
    weft_device *device;
    snprintf(text, sizeof(text), "%d", seed);
    assert_int_equal(setenv("WEFT_SHADOW_SEED", text, 1), 0);
    ok(weft_device_open("shadow", index, &device));
    assert_int_equal(unsetenv("WEFT_SHADOW_SEED"), 0);
    return device;
}

/* Fails where something of the device is left. */
static inline void close_empty(weft_device *device)
{
    assert_int_equal(atomic_load(&device->objects), 0);
    weft_device_close(device);
}

static inline void count_turn(void *arg)
{
    ++*(int *)arg;
}

/* Lets the device take so many turns elsewhere: what could run would have. */
static inline void let_run(weft_device *device)
{
    enum { TURNS = 100 };
    weft_stream *stream = make_stream(device);
    int turns = 0;
    for (int t = 0; t < TURNS; t++) {
        ok(wefti_shadow_launch(stream, count_turn, &turns));
    }
    ok(weft_stream_wait(stream));
    assert_int_equal(turns, TURNS);
    weft_stream_destroy(stream);
}

static inline int start_clock(void **state)
{
    (void)state;
    alarm(DEADLINE_S);
    return 0;
}

#define ALONE(test) cmocka_unit_test_setup(test, start_clock)

#endif
