/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/collective_forms.h - what test_collectives.c tries.
 */
#ifndef TESTS_COMM_COLLECTIVE_FORMS_H
#define TESTS_COMM_COLLECTIVE_FORMS_H

#include "weft/types.h"

#include <stdbool.h>

enum { FIRST_ROOTED = 4 }; /* of the forms */

/* What one collective has for whom. */
struct form {
    weft_collective collective;
    bool send_parts, recv_parts, varied, reduces;
    bool root_sends, root_receives; /* and nobody else does */
};

static const struct form forms[] = {
    {WEFT_COLLECTIVE_ALLTOALL, 1, 1, 0, 0, 0, 0},
    {WEFT_COLLECTIVE_ALLTOALLV, 1, 1, 1, 0, 0, 0},
    {WEFT_COLLECTIVE_ALLGATHERV, 0, 1, 1, 0, 0, 0},
    {WEFT_COLLECTIVE_REDUCESCATTERV, 1, 0, 1, 1, 0, 0},
    {WEFT_COLLECTIVE_GATHER, 0, 1, 0, 0, 0, 1},
    {WEFT_COLLECTIVE_GATHERV, 0, 1, 1, 0, 0, 1},
    {WEFT_COLLECTIVE_SCATTER, 1, 0, 0, 0, 1, 0},
    {WEFT_COLLECTIVE_SCATTERV, 1, 0, 1, 0, 1, 0},
};

#endif
