/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/repeat.h - long buffers that hold the same again and again: a sanitizer
 * takes as long for an element that is written or read by itself as for a long
 * copy.
 */
#ifndef TESTS_REPEAT_H
#define TESTS_REPEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Writes so many bytes, each as the one a period before it; the first period
 * is there. */
static inline void repeat(void *to, size_t period, size_t bytes)
{
    unsigned char *at = to;
    size_t done = period;
    while (done < bytes) {
        size_t more = done < bytes - done ? done : bytes - done;
        memcpy(at + done, at, more);
        done += more;
    }
}

/* Whether each of so many bytes is as the one a period before it. */
static inline bool repeats(const void *from, size_t period, size_t bytes)
{
    const unsigned char *at = from;
    return bytes <= period || memcmp(at, at + period, bytes - period) == 0;
}

#endif
