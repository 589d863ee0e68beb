/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/one_op.h - one large operation, its buffers poisoned as soon as it
 * is over, its result compared to the bit.
 */
#ifndef TESTS_COMM_ONE_OP_H
#define TESTS_COMM_ONE_OP_H

#include "weft/weft.h"

#include <stdbool.h>
#include <stdint.h>

enum { ONE_OP_ROOT = 1, ONE_OP_COLLECTIVES = 8 };

extern const weft_collective one_op_collectives[ONE_OP_COLLECTIVES];

/*
 * Where the buffers lie: send in memory[0], recv in memory[1], each from a
 * first byte on that is another at each call; NULL: of the heap.
 */
typedef struct one_op_room {
    unsigned char *memory[2];
    size_t bytes[2];
    size_t calls;
} one_op_room;

/*
 * one_op_run - a collective of about so many bytes a rank. room NULL: both
 * buffers are of the heap.
 *
 * one_op_run_messages - 700,001 bytes to the next rank, and from the one
 * before.
 *
 * Return how many checks failed, which they print.
 */
int one_op_run(weft_comm *comm, weft_collective collective, weft_dtype dtype,
               size_t bytes, bool in_place, one_op_room *room);
int one_op_run_messages(weft_comm *comm, one_op_room *room);

/* How many bytes the rank has sent from its buffers as they were. */
uint64_t one_op_unstaged(weft_comm *comm);

int one_op_check(bool right, const char *what, int line);

#define CHECK(right) one_op_check(right, #right, __LINE__)

#endif
