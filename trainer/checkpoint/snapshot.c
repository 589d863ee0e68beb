/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/snapshot.c - copies of a replica's parameters, moments and
 * counters.
 */
#include "trainer/checkpoint/snapshot.h"

#include "trainer/model/storage.h"

static size_t count_arrays(const wefti_replica *replica)
{
    return WEFTI_SNAPSHOT_PARTS * replica->plan.group_count;
}

/* The replica's own of an array; masters are none, or as long as moments. */
static void *find_live(const wefti_replica *replica, size_t array,
                       size_t *bytes_out)
{
    const wefti_parameter_group *group =
        &replica->groups[array / WEFTI_SNAPSHOT_PARTS];
    const wefti_optimizer *optimizer = &group->optimizer;
    const size_t part = array % WEFTI_SNAPSHOT_PARTS;
    void *const live[WEFTI_SNAPSHOT_PARTS] = {
        group->values, optimizer->first, optimizer->second, optimizer->masters};
    *bytes_out = part == 0
                     ? group->plan->flat_elems * weft_dtype_bytes(group->dtype)
                 : live[part] ? group->plan->own_elems * sizeof(real)
                              : 0;
    return live[part];
}

weft_status wefti_snapshot_init(wefti_snapshot *snapshot,
                                const wefti_replica *replica)
{
    *snapshot = (wefti_snapshot){.step = replica->step,
                                 .next_sequence = replica->next_sequence};
    for (size_t i = 0; i < count_arrays(replica); i++) {
        size_t bytes;
        const void *live = find_live(replica, i, &bytes);
        weft_status status = wefti_storage_alloc(
            (bytes + sizeof(real) - 1) / sizeof(real), &snapshot->arrays[i]);
        if (status == WEFT_OK && bytes > 0) {
            status =
                wefti_replica_copy(replica, snapshot->arrays[i], live, bytes);
        }
        if (status != WEFT_OK) {
            wefti_snapshot_fini(snapshot);
            return status;
        }
    }
    return WEFT_OK;
}

weft_status wefti_snapshot_restore(const wefti_snapshot *snapshot,
                                   wefti_replica *replica)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < count_arrays(replica) && status == WEFT_OK; i++) {
        size_t bytes;
        void *live = find_live(replica, i, &bytes);
        status = bytes > 0 ? wefti_replica_copy(replica, live,
                                                snapshot->arrays[i], bytes)
                           : WEFT_OK;
    }
    replica->step = snapshot->step;
    replica->next_sequence = snapshot->next_sequence;
    return status;
}

void wefti_snapshot_fini(wefti_snapshot *snapshot)
{
    for (size_t i = 0; i < WEFTI_SNAPSHOT_PARTS * WEFTI_TENSOR_GROUPS_MOST;
         i++) {
        wefti_storage_free(snapshot->arrays[i]);
    }
    *snapshot = (wefti_snapshot){0};
}
