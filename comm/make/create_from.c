/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/create_from.c - a new communicator from a list of ranks of an old
 * one, made by those on the list alone, by messages of the parent, in order
 * with the others between the same two ranks.
 */
#include "base/error.h"
#include "comm/make/cancel.h"
#include "comm/make/group.h"

static weft_status check_list(const weft_comm *parent, const int *ranks,
                              int count)
{
    bool own = false;
    if (!ranks) {
        return wefti_error(WEFT_ERR_INVALID,
                           "ranks is NULL: allowed is a list of ranks");
    }
    if (count < 1 || count > parent->nranks) {
        return wefti_error(WEFT_ERR_INVALID,
                           "rank_count %d: allowed is 1 to %d, the ranks of "
                           "the parent",
                           count, parent->nranks);
    }
    weft_status status = wefti_group_check_list(parent, ranks, count);
    if (status != WEFT_OK) {
        return status;
    }
    for (int i = 0; i < count; i++) {
        own |= ranks[i] == parent->rank;
    }
    return own ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "ranks lacks this rank, %d: only members call",
                             parent->rank);
}

weft_status weft_comm_create_from(weft_comm *parent, const int *ranks,
                                  int rank_count,
                                  const weft_comm_config *config,
                                  weft_comm **comm_out)
{
    weft_comm_config full;
    weft_status status = wefti_group_check_place(parent, "parent", comm_out);
    if (status == WEFT_OK) {
        status = check_list(parent, ranks, rank_count);
    }
    if (status != WEFT_OK) {
        return status;
    }
    const wefti_group_list list = {'/', ranks, rank_count};
    const weft_status refused = wefti_group_read_config(parent, config, &full);
    wefti_cancel_attach(full.cancel, parent);
    status = wefti_group_make_apart(parent, ranks, rank_count, refused, &full,
                                    &list, comm_out);
    wefti_cancel_detach(full.cancel);
    return status;
}
