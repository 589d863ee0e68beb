/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/sums.c - numbers the spread's domains as hosts.
 */
#include "tests/comm/sums.h"

#include "tests/comm/spread.h"
#include "tests/kernels/reduce_reference.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 64 };

/* Each rank's host, in the order of their lowest ranks; how many. */
static int number_hosts(int *hosts, int nranks)
{
    int count = 0;
    for (int rank = 0; rank < nranks; rank++) {
        int other = 0;
        while (spread_parts(rank, other)) {
            other++;
        }
        hosts[rank] = other == rank ? count++ : hosts[other];
    }
    return count;
}

void sums_reference(unsigned char *dst, const unsigned char *const *sources,
                    int nranks, size_t elems, weft_dtype dtype,
                    weft_redop redop)
{
    int hosts[MOST_RANKS];
    int count = number_hosts(hosts, nranks);
    const char *flat = getenv("WEFT_SUM_FLAT");
    if (count == 1 || count == nranks || (flat && strcmp(flat, "on") == 0)) {
        reference_reduce(dst, sources, (size_t)nranks, elems, dtype, redop);
    } else {
        reference_reduce_hosts(dst, sources, hosts, (size_t)nranks, elems,
                               dtype, redop);
    }
}
