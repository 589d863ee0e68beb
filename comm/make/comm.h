/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/comm.h - building a communicator on memory that its ranks share.
 */
#ifndef COMM_MAKE_COMM_H
#define COMM_MAKE_COMM_H

#include "comm/core/core.h"

/*
 * What a communicator is made of. members: of the job. world_ranks[nranks]: who
 * its members are in the job. memory_fd -1: one rank, private memory. Borrowed
 * during the call.
 */
typedef struct wefti_comm_parts {
    wefti_engine *engine;
    int rank, nranks;
    const wefti_membership *members;
    const int *world_ranks;
    int memory_fd;
    uint64_t memory_offset;
    uint64_t id; /* of no other communicator of the job; the world's: 1 */
    const weft_comm_config *config; /* read, see below */
    wefti_tuning tuning;
    wefti_known_rates rates;
    int ranks_per_core;
    weft_comm *parent;       /* NULL: this is the world */
    const int *parent_ranks; /* [nranks] who the members are in the parent */
} wefti_comm_parts;

/*
 * wefti_comm_build - everything but the meeting of the ranks.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM | ERR_INVALID (sm_budget); on
 *             failure nothing is left.
 */
WEFT_NODISCARD weft_status wefti_comm_build(const wefti_comm_parts *parts,
                                            weft_comm **comm_out);

/*
 * Address space that one rank's end of a communicator maps, with local_ranks of
 * its members in the rank's domain; what it receives from ranks of others comes
 * to that as it is used, and more lists of steps where hosts have levels
 * inside.
 */
size_t wefti_comm_map_bytes(const wefti_tuning *tuning, int nranks,
                            int local_ranks, const wefti_grouping *grouping);

/*
 * wefti_comm_read_config - config (NULL: all zeros) with every zero replaced by
 * what the parent's is, or without one by the environment's value or the
 * default. Whether the device can part its sm_budget is seen when streams are
 * made.
 *
 * Returns     OK | ERR_INVALID, ERR_UNSUPPORTED: *config_out serves to meet the
 * other ranks and tell them all the same; its size_bytes is 0 where it does
 * not, because not even this rank's number is known.
 */
WEFT_NODISCARD weft_status wefti_comm_read_config(
    const weft_comm_config *config, const weft_comm_config *parent,
    weft_comm_config *config_out);

#endif
