/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/partitions.h - ways to put ranks in groups. Of a way firsts[rank]
 * is the lowest rank of rank's group.
 */
#ifndef TESTS_COMM_PARTITIONS_H
#define TESTS_COMM_PARTITIONS_H

#include <stdbool.h>
#include <stdint.h>

/* The next way, in the order of firsts[1], firsts[2], ..; the first one is all
 * zeros. false: that was the last. */
bool partition_next(int *firsts, int nranks);

/* Up to `most` groups, of any ranks. */
void partition_draw(int *firsts, int nranks, int most, uint64_t *seed);

/* The groups that both ways have ranks in. */
void partition_cross(const int *a, const int *b, int nranks, int *firsts_out);

#endif
