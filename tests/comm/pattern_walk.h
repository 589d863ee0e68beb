/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/pattern_walk.h - the lists of worlds too large to simulate: every
 * message sent must be one that a rank reads, at the same place among those of
 * the two ranks and the channel, and of the same length.
 */
#ifndef TESTS_COMM_PATTERN_WALK_H
#define TESTS_COMM_PATTERN_WALK_H

#include "comm/pattern/pattern.h"

/* Goes through all steps of all ranks and fails the running test if messages do
 * not match. Returns the elements that go from one host to another. */
size_t pattern_walk(const wefti_pattern *pattern, wefti_problem problem);

#endif
