/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/group.h - a new communicator of some ranks of an old one, once they
 * have agreed who belongs to it.
 *
 * One member of each domain sets memory aside and tells the domain's others
 * where; each then builds
 * its end; then they tell each other whether all have. How they talk is the
 * caller's: split.c by collectives of the parent, create_from.c by messages
 * between members, shrink.c through shared memory, since the parent has failed.
 */
#ifndef COMM_MAKE_GROUP_H
#define COMM_MAKE_GROUP_H

#include "comm/comm.h"

/* How one rank's building ended, as it travels. */
typedef struct wefti_verdict {
    int32_t status;
    char text[124];
} wefti_verdict;

/* From status and, unless it is OK, the thread's error text. */
wefti_verdict wefti_verdict_of(weft_status status);

/*
 * wefti_group_read_config - config with what it leaves open taken from parent.
 *
 * Returns     as wefti_comm_read_config.
 */
WEFT_NODISCARD weft_status
wefti_group_read_config(const weft_comm *parent, const weft_comm_config *config,
                        weft_comm_config *config_out);

/*
 * wefti_group_prepare - make room for what is remembered of communicators that
 * come of those there are. With each communicator, so that it cannot lack when
 * ranks count together.
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_group_prepare(wefti_engine *engine);

/*
 * wefti_group_count - how often this rank's engine has seen key, this time
 * included; 0: no memory to know it.
 */
uint64_t wefti_group_count(wefti_engine *engine, uint64_t key);

/* One word more in a key, or in an id. */
uint64_t wefti_group_mix(uint64_t digest, uint64_t word);

/*
 * wefti_group_placer - of parent's ranks[count], the first one that shares
 * memory with rank: it sets memory aside for all of them.
 */
int wefti_group_placer(const weft_comm *parent, const int *ranks, int count,
                       int rank);

/*
 * wefti_group_reserve - set bytes aside in this rank's domain; returns where.
 * wefti_group_release gives them back, when nobody uses them any more.
 *
 * Threads     any.
 */
uint64_t wefti_group_reserve(weft_comm *parent, uint64_t bytes);
void wefti_group_release(weft_comm *parent, uint64_t offset, uint64_t bytes);

/* The same for a communicator of nranks ranks. */
uint64_t wefti_group_place(weft_comm *parent, int nranks);

/*
 * wefti_group_build - this rank's end of the new communicator.
 *
 * parent_ranks   [nranks] the members as ranks of parent, this one among them.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_group_build(weft_comm *parent,
                                             const int *parent_ranks,
                                             int nranks, uint64_t offset,
                                             const weft_comm_config *config,
                                             weft_comm **comm_out);

#endif
