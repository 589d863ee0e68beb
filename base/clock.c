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
