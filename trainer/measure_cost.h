/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/measure_cost.h - what a class' transfers cost compute at least: the
 * CPU time that plain sockets take for as many bytes in as many messages as
 * there are operations, alone and over the same links, measured. Nothing of
 * weft is in it, and no sum, no cast and no copy from place to place.
 */
#ifndef TRAINER_MEASURE_COST_H
#define TRAINER_MEASURE_COST_H

#include "trainer/replica.h"

/* Why there are no plain sockets. */
extern const char wefti_cost_no_memory[], wefti_cost_unconnected[];

/*
 * wefti_cost_find_way - over which communicator a class' sockets would go: of
 * several the first. All its ranks together.
 *
 * bytes, least   that this rank sends, and fewer are none; of ranks that differ
 *                the most, which bytes_out gets
 * why_out        why there is no such way, on all its ranks; NULL: there is
 * nothing_out    with why: as no byte crosses a socket
 */
WEFT_NODISCARD weft_status
wefti_cost_find_way(const wefti_replica *replica, weft_class class_id,
                    size_t bytes, size_t least, weft_comm **comm_out,
                    size_t *bytes_out, bool *nothing_out, const char **why_out);

/*
 * cpu_ms   of a step and rank, the ranks' mean; NAN where why says so
 * nothing  with why: no byte crosses a socket, so c is in no ceiling
 * why      a literal; NULL: it was measured
 */
typedef struct wefti_measure_cost {
    double cpu_ms;
    bool nothing;
    const char *why;
} wefti_measure_cost;

/*
 * wefti_cost_find - of one class; all its ranks together. The ranks of its
 * communicator, of several the first, send to each other round a ring, if no
 * two of them share memory: else most of that ring crosses no link. A round has
 * 64 MiB at most, of messages of the same size; its time counts by the byte.
 *
 * bytes        that a rank sends in a step, in so many operations; of ranks
 *              that differ the most
 *
 * Returns     OK, also where why says what failed, on all ranks | comm's fault.
 */
WEFT_NODISCARD weft_status wefti_cost_find(const wefti_replica *replica,
                                           weft_class class_id, size_t bytes,
                                           size_t operations,
                                           wefti_measure_cost *cost_out);

#endif
