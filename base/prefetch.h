/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/prefetch.h - lines that this core will write, fetched ahead: a store to
 * a line that another core has read waits until that core has given it up.
 */
#ifndef BASE_PREFETCH_H
#define BASE_PREFETCH_H

#include <stddef.h>

/* A hint: changes nothing, and needs no memory to be there. */
static inline void wefti_prefetch_write(const void *begin, size_t bytes)
{
#if defined(__x86_64__)
    /* The compiler's own hint is one for reading, unless it may assume the
     * instruction; processors that lack it do nothing. */
    for (size_t at = 0; at < bytes; at += 64) {
        __asm__ volatile("prefetchw %0" : : "m"(((const char *)begin)[at]));
    }
#else
    for (size_t at = 0; at < bytes; at += 64) {
        __builtin_prefetch((const char *)begin + at, 1);
    }
#endif
}

#endif
