/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/ranks.c - runs of four and more become a range.
 */
#include "comm/oob/ranks.h"

#include <stdio.h>

enum { RUN_LEAST = 4, CHARACTERS_MOST = WEFTI_RANKS_TEXT_BYTES - 40 };

static int count(const bool *in, int nranks, bool wanted)
{
    int found = 0;
    for (int rank = 0; rank < nranks; rank++) {
        found += in[rank] == wanted;
    }
    return found;
}

int wefti_ranks_text(const bool *in, int nranks, bool wanted,
                     char text_out[WEFTI_RANKS_TEXT_BYTES])
{
    const int total = count(in, nranks, wanted);
    int written = 0;
    int used = snprintf(text_out, WEFTI_RANKS_TEXT_BYTES, "%s",
                        total == 0   ? "no rank"
                        : total == 1 ? "rank"
                                     : "ranks");
    for (int rank = 0; rank < nranks && written < total;) {
        int end = rank;
        while (end < nranks && in[end] == wanted) {
            end++;
        }
        int run = end - rank;
        if (run == 0) {
            rank++;
            continue;
        }
        if (used > CHARACTERS_MOST) {
            snprintf(text_out + used, WEFTI_RANKS_TEXT_BYTES - (size_t)used,
                     " and %d more", total - written);
            break;
        }
        if (run < RUN_LEAST) {
            run = 1;
        }
        used += snprintf(text_out + used, WEFTI_RANKS_TEXT_BYTES - (size_t)used,
                         run == 1 ? " %d" : " %d-%d", rank, rank + run - 1);
        written += run;
        rank += run;
    }
    return total;
}
