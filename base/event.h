/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/event.h - an eventfd that tells a thread of something, once or more
 * often. Its count never comes near its limit, so that neither call fails.
 */
#ifndef BASE_EVENT_H
#define BASE_EVENT_H

#include <stdint.h>
#include <unistd.h>

/* From now on fd is readable. */
static inline void wefti_event_ring(int fd)
{
    const uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof(one));
    (void)written;
}

/* It is not any more. */
static inline void wefti_event_take(int fd)
{
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof(count));
    (void)got;
}

#endif
