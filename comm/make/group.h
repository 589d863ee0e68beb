/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/group.h - a new communicator of some ranks of an old one, once they
 * have agreed who belongs to it.
 *
 * split.c, create_from.c and shrink_without.c agree by comm/post/consensus.h;
 * shrink.c through shared memory, since the parent has failed.
 */
#ifndef COMM_MAKE_GROUP_H
#define COMM_MAKE_GROUP_H

#include "comm/make/comm.h"
#include "comm/post/consensus.h"

/*
 * wefti_group_check_place - what every call that makes one checks first: name,
 * of the argument parent, and comm_out, which is NULL from then on.
 *
 * Returns     OK | ERR_INVALID.
 */
WEFT_NODISCARD weft_status wefti_group_check_place(const weft_comm *parent,
                                                   const char *name,
                                                   weft_comm **comm_out);

/* Whether each of ranks is one of parent's, and there once. */
WEFT_NODISCARD weft_status wefti_group_check_list(const weft_comm *parent,
                                                  const int *ranks, int count);

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
 * after_fault    parent has failed.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_group_build(
    weft_comm *parent, const int *parent_ranks, int nranks, uint64_t offset,
    bool after_fault, const weft_comm_config *config, weft_comm **comm_out);

/* Bytes that a communicator of these ranks of parent takes of the memory of
 * this rank's domain; count 0: none. */
size_t wefti_group_count_memory(const weft_comm *parent, const int *ranks,
                                int count);

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

/* What a new communicator without a name of its own is called after. */
typedef struct wefti_group_list {
    char mark; /* '/': its members; '-': who was left out */
    const int *ranks;
    int count;
} wefti_group_list;

/*
 * wefti_group_make_apart - as wefti_group_make, of members that alone call, by
 * messages of parent. refused: what this rank's config got.
 *
 * Returns     as wefti_group_make | ERR_INVALID: lists or configs differ.
 */
WEFT_NODISCARD weft_status wefti_group_make_apart(weft_comm *parent,
                                                  const int *members, int count,
                                                  weft_status refused,
                                                  weft_comm_config *config,
                                                  const wefti_group_list *named,
                                                  weft_comm **comm_out);

/*
 * wefti_shrink_agree - the survivors of parent, which fails if it has not yet,
 * agree who they are and build; called by all that are not in without. config
 * as it was given to them.
 *
 * Returns     as weft_comm_shrink.
 */
WEFT_NODISCARD weft_status wefti_shrink_agree(weft_comm *parent,
                                              const int *without,
                                              int without_count,
                                              const weft_comm_config *config,
                                              weft_comm **comm_out);

/* Faults must tell it from its parent: "world/0,2,5", "world/0,1..(12)", and a
 * number behind it where the parent has had this very list before. */
void wefti_group_name_list(const weft_comm *parent,
                           const wefti_group_list *named, char *name_out,
                           size_t name_bytes);

/* parent's name and suffix, cut before it; "#3" for the third time. */
void wefti_group_name(const weft_comm *parent, const char *suffix,
                      uint64_t times, char *name_out, size_t name_bytes);

#endif
