/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/measure_cost.h - what a class' transfers cost compute at least: the
 * CPU time that plain sockets take for as many bytes in as many messages, alone
 * and over the same links, measured. Nothing of weft is in it, and no sum, no
 * cast and no copy from place to place.
 */
#ifndef TRAINER_MEASURE_COST_H
#define TRAINER_MEASURE_COST_H

#include "trainer/replica.h"

/*
 * cpu_ms   of a step and rank, the ranks' mean; 0 where why says so
 * why      NULL: it was measured
 */
typedef struct wefti_measure_cost {
    double cpu_ms;
    const char *why;
} wefti_measure_cost;

/*
 * wefti_cost_find - of one class; all its ranks together. The ranks of its
 * communicator send to each other round a ring.
 *
 * bytes      that a rank sends in a step, in so many messages
 *
 * Returns     OK | as wefti_bare_open and _wait | comm's fault.
 */
WEFT_NODISCARD weft_status wefti_cost_find(const wefti_replica *replica,
                                           weft_class class_id, size_t bytes,
                                           size_t messages,
                                           wefti_measure_cost *cost_out);

#endif
