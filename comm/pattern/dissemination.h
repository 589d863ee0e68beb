/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/dissemination.h - what hosts' blocks are in
 * wefti_pattern_dissemination.
 */
#ifndef COMM_PATTERN_DISSEMINATION_H
#define COMM_PATTERN_DISSEMINATION_H

#include "comm/pattern/pattern.h"

/* Whether a host's block is the sum of its ranks' payloads, and not all of
 * them. */
bool wefti_dissemination_sums(const wefti_problem *problem);

/* Whether each round's message fits an entry, where ranks show so many bytes.
 */
bool wefti_dissemination_fits(const wefti_problem *problem, size_t shown_bytes);

#endif
