/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/clock.c - monotonic time in nanoseconds.
 */
#include "base/clock.h"

#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t wefti_clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t wefti_clock_coarse_ns(void)
{
    return read_clock(CLOCK_MONOTONIC_COARSE);
}

int64_t wefti_clock_thread_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

int wefti_clock_poll_ms(int64_t until_ns)
{
    const int64_t most_ns = 3600 * INT64_C(1000000000);
    if (until_ns == INT64_MAX) {
        return -1;
    }
    const int64_t left_ns = until_ns - wefti_clock_ns();
    return left_ns <= 0        ? 0
           : left_ns > most_ns ? (int)(most_ns / 1000000)
                               : (int)(left_ns / 1000000) + 1;
}
