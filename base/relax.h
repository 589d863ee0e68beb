/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/relax.h - what a thread does between two looks at what nothing wakes it
 * for.
 */
#ifndef BASE_RELAX_H
#define BASE_RELAX_H

#include <stdint.h>
#include <time.h>

/* Leaves the core's resources to its twin for a moment. */
static inline void wefti_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Sleeps for 50 us, and each time an eighth longer, to 1 ms. last_ns: 0 at
 * first. */
static inline void wefti_relax_longer(int64_t *last_ns)
{
    const int64_t first_ns = 50000, most_ns = 1000000;
    if (*last_ns < most_ns) {
        *last_ns = *last_ns == 0 ? first_ns : *last_ns + *last_ns / 8;
    }
    const struct timespec pause = {.tv_nsec = *last_ns};
    (void)nanosleep(&pause, NULL);
}

#endif
