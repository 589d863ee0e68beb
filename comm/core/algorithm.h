/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/algorithm.h - sets of algorithms, by the names that WEFT_ALGO and
 * weft-perf --algo take.
 */
#ifndef COMM_CORE_ALGORITHM_H
#define COMM_CORE_ALGORITHM_H

#include "comm/pattern/pattern.h"
#include "weft/status.h"

/* Bit i is wefti_patterns[i]. */
typedef uint16_t wefti_algorithms;

/* The name of the algorithm of that bit; NULL: there is none. */
const char *wefti_algorithm_name(int bit);

/* The bit of a pattern of the table. */
int wefti_algorithm_bit(const wefti_pattern *pattern);

/* Those that carry out the collective on some communicator; 0: it has but one
 * way, which is no algorithm's. */
wefti_algorithms wefti_algorithms_of(weft_collective collective);

/* Those that support the problem. */
wefti_algorithms wefti_algorithms_supporting(const wefti_problem *problem);

/* "oneshot|direct|tree"; cut off where there is no room. */
enum { WEFTI_ALGORITHMS_ROOM = 96 };
void wefti_algorithms_list(wefti_algorithms set, char separator, char *text_out,
                           size_t text_bytes);

/*
 * wefti_algorithms_read - the set of names such as "tree" or "oneshot/tree".
 *
 * length   bytes of names
 *
 * Returns     0: one of them is no algorithm of the collective, is there twice,
 *             or there is none.
 */
wefti_algorithms wefti_algorithms_read(weft_collective collective,
                                       const char *names, size_t length);

#endif
