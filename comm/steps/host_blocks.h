/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/host_blocks.h - what each host has for an operation that the
 * pattern dissemination carries, one block after another in an area of its
 * leader's (comm/steps/payload.h): its own first, then the hosts before it.
 *
 *      host 2 of 4   | 2 | 1 | 0 | 3 |
 *                      `---' round 1 sends these two to host 0
 *
 * So what a round sends, and what it brings, is one run of bytes.
 */
#ifndef COMM_STEPS_HOST_BLOCKS_H
#define COMM_STEPS_HOST_BLOCKS_H

#include "comm/core/core.h"

/* Whether op goes so. */
static inline bool wefti_host_blocks_carry(const wefti_op *op)
{
    return op->choice.pattern == &wefti_pattern_dissemination;
}

/* Whether it does, and blocks are sums. */
bool wefti_host_blocks_are_sums(const wefti_op *op);

/*
 * The leader's, in this order: gather its own host's block from its ranks'
 * payloads into an area of WEFTI_AREA_BYTES in its region; then, round by round
 * (comm/net/rounds.h), offer what goes to the next leader, valid until all have
 * completed, and take what has come.
 */
void wefti_host_blocks_gather(weft_comm *comm, const wefti_op *op,
                              const void *const *payloads, unsigned char *area);
const void *wefti_host_blocks_offer(const weft_comm *comm, const wefti_op *op,
                                    int round, size_t *bytes_out);
void wefti_host_blocks_take(weft_comm *comm, const wefti_op *op, int round);

/*
 * Any rank's, once its leader has all blocks: where the payload of a rank
 * stands, or the sum of all blocks from a byte of each on.
 */
const unsigned char *wefti_host_blocks_find(const weft_comm *comm,
                                            const wefti_op *op, int rank);
void wefti_host_blocks_sum(const weft_comm *comm, wefti_op *op, void *result,
                           size_t first_byte);

#endif
