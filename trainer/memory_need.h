/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/memory_need.h - whether the ranks of a host can have the memory that
 * their model takes, found out before any of it is.
 *
 * Nothing is refused that could run: what ranks need is counted low (the arrays
 * of trainer/footprint.h, all of which are written to), and what a host has is
 * counted high: all of its memory and all of its swap, however much others use
 * of them now. A memory cgroup's limit counts likewise, with all of the host's
 * swap, for the ranks in that group. How the kernel overcommits does not
 * matter: what is written to must be somewhere.
 */
#ifndef TRAINER_MEMORY_NEED_H
#define TRAINER_MEMORY_NEED_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What one rank needs, and where it is. */
typedef struct wefti_memory_need {
    double bytes;
    uint64_t host;      /* the same on all ranks of a machine */
    uint64_t group;     /* of a memory cgroup that has a limit; 0: none */
    double host_bytes;  /* memory of the machine; 0: it does not say */
    double swap_bytes;  /* of the machine */
    double group_bytes; /* the cgroup's limit */
} wefti_memory_need;

/* The ranks that cannot have what they need. */
typedef struct wefti_memory_lack {
    size_t first, count; /* the first of them, and how many they are */
    double need_bytes, have_bytes;
    bool of_group; /* have_bytes is a cgroup's limit, else a machine's memory */
} wefti_memory_lack;

/* Where this rank is, bytes apart. root: in front of /proc; "" but in tests. */
void wefti_memory_need_locate(const char *root, wefti_memory_need *need_out);

/* Whether any ranks lack memory, of count ranks: the first that do. */
bool wefti_memory_need_check(const wefti_memory_need *needs, size_t count,
                             wefti_memory_lack *lack_out);

#endif
