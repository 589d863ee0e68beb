/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/staging_job.h - one case of the list as one rank posts it: counts,
 * sizes of its two buffers, where they overlap, and what is in them.
 */
#ifndef TESTS_COMM_STAGING_JOB_H
#define TESTS_COMM_STAGING_JOB_H

#include "tests/comm/staging_list.h"
#include "weft/weft.h"

typedef struct staging_job {
    weft_op op; /* no buffers and no gates yet */
    size_t send_bytes, recv_bytes;
    bool in_place;
    size_t in_place_at; /* byte of the longer buffer where the other begins */
    size_t counts[STAGING_RANKS], from[STAGING_RANKS];
    unsigned char scale[8];
} staging_job;

/* count elements, of v forms a few more or not. job stays where it is: its op
 * points into it. */
void staging_job_init(staging_job *job, const staging_case *one, size_t count,
                      int root, int rank, int nranks);

/* Points the op into rooms, of which one is used if it is in place. */
void staging_job_point(staging_job *job, unsigned char *const rooms[2]);

/*
 * Any bits; of floats those of 0.5 to 2 of either sign, so that neither sums
 * nor products of the ranks leave the type.
 */
void staging_fill(weft_dtype dtype, uint64_t seed, unsigned char *at,
                  size_t bytes);

#endif
