/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/group.h - a new communicator of some ranks of an old one, once they
 * have agreed who belongs to it.
 *
 * split.c and create_from.c agree by comm/post/consensus.h; shrink.c through
 * shared memory, since the parent has failed.
 */
#ifndef COMM_MAKE_GROUP_H
#define COMM_MAKE_GROUP_H

#include "comm/make/comm.h"
#include "comm/post/consensus.h"

/*
 * wefti_group_read_config - config with what it leaves open taken from parent.
 *
 * Returns     as wefti_comm_read_config.
 */
WEFT_NODISCARD weft_status
wefti_group_read_config(const weft_comm *parent, const weft_comm_config *config,
                        weft_comm_config *config_out);

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

/*
 * wefti_group_make - the members of consensus agree on the memory, build, and
 * see whether all have; members of other groups take part, with count 0 those
 * that are in none. *comm_out is NULL before, and after a failure.
 *
 * Returns     OK | as wefti_group_build | as a collective.
 */
WEFT_NODISCARD weft_status wefti_group_make(wefti_consensus *consensus,
                                            const weft_comm_config *config,
                                            weft_comm **comm_out);

/* parent's name and suffix, cut before it; "#3" for the third time. */
void wefti_group_name(const weft_comm *parent, const char *suffix,
                      uint64_t times, char *name_out, size_t name_bytes);

#endif
