/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/ranks.h - a set of ranks in words.
 */
#ifndef COMM_OOB_RANKS_H
#define COMM_OOB_RANKS_H

#include <stdbool.h>
#include <stddef.h>

/* Room for every text that wefti_ranks_text writes. */
enum { WEFTI_RANKS_TEXT_BYTES = 120 };

/*
 * wefti_ranks_text - "rank 3", "ranks 0 1 2", "ranks 0-14 16", or, of a set
 * with many gaps, its beginning and how many more there are; "no rank".
 *
 * wanted       in[rank] == wanted: rank belongs to the set
 *
 * Returns     how many ranks the set has.
 */
int wefti_ranks_text(const bool *in, int nranks, bool wanted,
                     char text_out[WEFTI_RANKS_TEXT_BYTES]);

#endif
