/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/shrink_without.c - some ranks go on without others that are alive.
 *
 * On a healthy parent those that stay make it as create_from does, and the
 * parent stays healthy. A death ends their messages by the parent's fault, on
 * all of them; then, and where it had failed before, they agree as survivors
 * do (shrink.c), and those to be left out count as gone.
 */
#include "base/error.h"
#include "comm/control/fault.h"
#include "comm/make/group.h"

static weft_status check_list(const weft_comm *comm, const int *ranks,
                              int count)
{
    if (count < 0 || count >= comm->nranks || (count > 0 && !ranks)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "ranks %p and rank_count %d: allowed is a list of 0 "
                           "to %d ranks",
                           (const void *)ranks, count, comm->nranks - 1);
    }
    weft_status status = wefti_group_check_list(comm, ranks, count);
    for (int i = 0; i < count && status == WEFT_OK; i++) {
        if (ranks[i] == comm->rank) {
            status = wefti_error(WEFT_ERR_INVALID,
                                 "ranks[%d] is %d: allowed is any but the "
                                 "caller's own",
                                 i, ranks[i]);
        }
    }
    return status;
}

/* Those that are not on the list, in their order, into comm->group. */
static int list_others(weft_comm *comm, const int *ranks, int count)
{
    int members = 0;
    for (int rank = 0; rank < comm->nranks; rank++) {
        bool out = false;
        for (int i = 0; i < count; i++) {
            out |= ranks[i] == rank;
        }
        if (!out) {
            comm->group[members++] = rank;
        }
    }
    return members;
}

weft_status weft_comm_shrink_without(weft_comm *comm, const int *ranks,
                                     int rank_count,
                                     const weft_comm_config *config,
                                     weft_comm **comm_out)
{
    weft_comm_config full;
    weft_status status = wefti_group_check_place(comm, "comm", comm_out);
    if (status == WEFT_OK) {
        status = check_list(comm, ranks, rank_count);
    }
    if (status != WEFT_OK) {
        return status;
    }
    const wefti_group_list named = {'-', ranks, rank_count};
    const weft_status refused = wefti_group_read_config(comm, config, &full);
    if (full.cancel) {
        return wefti_error(WEFT_ERR_INVALID,
                           "cancel %p in weft_comm_shrink_without: allowed is "
                           "NULL, or weft_comm_abort of the parent",
                           (void *)full.cancel);
    }
    if (!wefti_fault_is_published(comm)) {
        const int members = list_others(comm, ranks, rank_count);
        status = wefti_group_make_apart(comm, comm->group, members, refused,
                                        &full, &named, comm_out);
        if (status == WEFT_OK || !wefti_fault_is_published(comm)) {
            return status;
        }
    }
    return wefti_shrink_agree(comm, ranks, rank_count, config, comm_out);
}
