/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/staging_list.h - the list of all cases that must give the same
 * bits on device memory as on the host's: every collective, and messages, with
 * every element type, every reduction that applies, every kind of count, in
 * place and not. A reduction of a program's own is for host memory only.
 *
 * One world runs a share of it. The worlds of one seed are those of 1 to 9
 * ranks, and worlds are numbered through; with 79 shares, 20 seeds run each
 * case at least twice, at different numbers of ranks.
 */
#ifndef TESTS_COMM_STAGING_LIST_H
#define TESTS_COMM_STAGING_LIST_H

#include "weft/types.h"

#include <stdbool.h>

enum { STAGING_RANKS = 9, STAGING_SHARES = 79 };

/* X(name, text); of an odd count there are 3 to 601, of a large one thousands,
 * so that they are many chunks. */
#define STAGING_COUNT_LIST(X)                                                  \
    X(NONE, "0")                                                               \
    X(ONE, "1")                                                                \
    X(ODD, "odd")                                                              \
    X(LARGE, "large")

typedef enum staging_count {
#define STAGING_COUNT_ENUM(name, text) STAGING_COUNT_##name,
    STAGING_COUNT_LIST(STAGING_COUNT_ENUM)
#undef STAGING_COUNT_ENUM
        STAGING_COUNT_COUNT
} staging_count;

/* SEND stands for a list with a send and a receive; redop is SUM where nothing
 * is reduced. */
typedef struct staging_case {
    weft_collective collective;
    weft_dtype dtype;
    weft_redop redop;
    staging_count count;
    bool in_place;
} staging_case;

/* Whether it reduces, and whether each rank has a count of its own. */
bool staging_reduces(weft_collective collective);
bool staging_is_varied(weft_collective collective);

/* How many cases there are, and the one with that number. */
size_t staging_list_count(void);
staging_case staging_list_get(size_t number);

/* The first case of a world's share; behind it every shares-th is its own. */
size_t staging_list_first(unsigned seed, int nranks, size_t shares);

#endif
