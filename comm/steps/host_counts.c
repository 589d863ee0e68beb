/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/host_counts.c - see host_counts.h. A peer's row is read after its
 * entry's number was loaded (comm/steps/agree.c), and stands until every rank
 * has completed the operation.
 */
#include "comm/steps/host_counts.h"

#include "base/check.h"
#include "comm/pattern/parts.h"
#include "comm/pattern/relay.h"
#include "comm/steps/agree.h"

static void *row_of(weft_comm *comm, const wefti_op *op, int rank)
{
    return wefti_entry_payload(
        wefti_shared_get_entry(&comm->fabric.shared, rank, op->number),
        (size_t)comm->nranks * sizeof(uint16_t));
}

void wefti_host_counts_declare(weft_comm *comm, wefti_op *op)
{
    uint16_t *row = row_of(comm, op, comm->rank);
    WEFTI_ASSERT(comm->nranks <= WEFTI_RELAY_RANKS);
    for (int to = 0; to < comm->nranks; to++) {
        const size_t elems = wefti_part_to(&op->problem, to).elems;
        row[to] = elems <= WEFTI_RELAY_ELEMS ? (uint16_t)elems : UINT16_MAX;
    }
    for (int t = 0; t < WEFTI_STEP_LISTS; t++) { /* until they are open */
        op->lists[t].at = (wefti_step_place){0};
        op->lists[t].offered = 0;
    }
}

bool wefti_host_counts_find(weft_comm *comm, wefti_op *op)
{
    const wefti_grouping *grouping = comm->grouping;
    const int host = grouping->hosts[comm->rank];
    const void **rows = op->lists[0].sources; /* it has no REDUCE */
    for (int place = 0; place < wefti_grouping_ranks(grouping, host); place++) {
        const int rank = grouping->members[grouping->begins[host] + place];
        if (rank != comm->rank && !wefti_op_check_peer(comm, op, rank)) {
            return false;
        }
        rows[place] = row_of(comm, op, rank);
    }
    op->problem.host_counts = rows;
    return true;
}
