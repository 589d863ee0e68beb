/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/snapshot.c - copies of a replica's parameters, moments and
 * counters.
 */
#include "trainer/checkpoint/snapshot.h"

#include "trainer/model/storage.h"

#include <string.h>

weft_status wefti_snapshot_init(wefti_snapshot *snapshot,
                                const wefti_replica *replica)
{
    size_t flat = replica->plan.flat_elems, own = replica->plan.own_elems;
    *snapshot = (wefti_snapshot){.step = replica->step,
                                 .next_sequence = replica->next_sequence};
    weft_status status = wefti_storage_alloc(flat, &snapshot->values);
    if (status == WEFT_OK) {
        status = wefti_storage_alloc(own, &snapshot->first);
    }
    if (status == WEFT_OK) {
        status = wefti_storage_alloc(own, &snapshot->second);
    }
    if (status != WEFT_OK) {
        wefti_snapshot_fini(snapshot);
        return status;
    }
    memcpy(snapshot->values, replica->values, flat * sizeof(real));
    memcpy(snapshot->first, replica->optimizer.first, own * sizeof(real));
    memcpy(snapshot->second, replica->optimizer.second, own * sizeof(real));
    return WEFT_OK;
}

void wefti_snapshot_restore(const wefti_snapshot *snapshot,
                            wefti_replica *replica)
{
    size_t flat = replica->plan.flat_elems, own = replica->plan.own_elems;
    memcpy(replica->values, snapshot->values, flat * sizeof(real));
    memcpy(replica->optimizer.first, snapshot->first, own * sizeof(real));
    memcpy(replica->optimizer.second, snapshot->second, own * sizeof(real));
    replica->step = snapshot->step;
    replica->next_sequence = snapshot->next_sequence;
}

void wefti_snapshot_fini(wefti_snapshot *snapshot)
{
    wefti_storage_free(snapshot->values);
    wefti_storage_free(snapshot->first);
    wefti_storage_free(snapshot->second);
    *snapshot = (wefti_snapshot){0};
}
