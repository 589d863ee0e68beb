/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/simt/simt_block.h - what the threads of the running block call: where
 * they are, and how they wait for each other. simt.h gives CUDA's names to it.
 */
#ifndef TESTS_SIMT_SIMT_BLOCK_H
#define TESTS_SIMT_SIMT_BLOCK_H

#include <stdint.h>

/* A place in a source, for what a fault says. */
struct simt_place {
    const char *file;
    int line;
    const char *call;
};

/* Indices and sizes of the running thread, block and launch. */
struct simt_where {
    unsigned thread[3], block[3];
    unsigned block_size[3], grid_size[3];
};

const simt_where *simt_here();
unsigned simt_lane();
void *simt_dynamic_shared();

/* Waits for all threads of the block that have not ended; how many of them
 * came with a predicate that holds. */
unsigned simt_barrier(simt_place place, bool predicate);

/* What a lane gets from the others of its mask. */
struct simt_got {
    uint64_t value;   /* of lane `from`; all ones if that is not in the mask */
    unsigned ballots; /* one bit for each lane whose predicate holds */
};

/* Waits for the lanes of mask, which must name this lane and only lanes that
 * come here with the same mask. */
simt_got simt_exchange(simt_place place, unsigned mask, uint64_t value,
                       unsigned from, bool predicate);

/* Another thread may go on here, if the order is random. */
void simt_maybe_yield();

#endif
