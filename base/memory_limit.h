/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/memory_limit.h - the memory cgroup that this process lives in: how much
 * it allows, and whether the kernel has killed for it. Containers are limited
 * so; exceeding the limit ends a process without a message.
 */
#ifndef BASE_MEMORY_LIMIT_H
#define BASE_MEMORY_LIMIT_H

#include "weft/status.h"

#include <stdint.h>

/*
 * bytes   the lowest limit from the process's own group to the root;
 *         UINT64_MAX: there is none.
 * kills   rises whenever the kernel ends a process of the group for want of
 *         memory.
 * file    where it stands, to be raised: ".../memory.max" (version 2) or
 *         ".../memory.limit_in_bytes" (version 1); "" if there is none.
 */
typedef struct wefti_memory_limit {
    uint64_t bytes;
    uint64_t kills;
    char file[256];
} wefti_memory_limit;

/*
 * wefti_memory_limit_read - as it is now. What cannot be read is no limit.
 *
 * root   in front of /proc and of the groups' folders; "" but in tests.
 *
 * Threads     any.  Blocks: no.  Allocates: no.
 * Source      Linux, Documentation/admin-guide/cgroup-v2.rst and
 *             cgroup-v1/memory.rst; cgroups(7).
 */
void wefti_memory_limit_read(const char *root, wefti_memory_limit *limit_out);

/*
 * wefti_memory_available - how many more bytes this process can use, as far as
 * the system says: its free memory (Linux: MemAvailable), the memory group's
 * limit and the process's own (RLIMIT_AS, RLIMIT_DATA), the least of them.
 *
 * root   as above.
 *
 * Returns     bytes; UINT64_MAX where nothing can be read.
 * Threads     any.  Blocks: no.  Allocates: no.
 */
uint64_t wefti_memory_available(const char *root);

/*
 * wefti_memory_check - refuses what needs more bytes than this process can have
 * by its predicted size, before any is taken. What is below 64 MiB passes.
 *
 * what   whose bytes, in the text.
 *
 * Returns     OK | ERR_NO_MEMORY (both sizes are in the text).
 * Threads     any.  Blocks: no.  Allocates: no.
 */
WEFT_NODISCARD weft_status wefti_memory_check(const char *what, uint64_t bytes);

#endif
