/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/snapshot.h - a replica's state in memory, to return to.
 */
#ifndef TRAINER_CHECKPOINT_SNAPSHOT_H
#define TRAINER_CHECKPOINT_SNAPSHOT_H

#include "trainer/replica.h"

enum { WEFTI_SNAPSHOT_PARTS = 4 }; /* of a group */

typedef struct wefti_snapshot {
    /* Of each group the values and both moments. */
    real *arrays[WEFTI_SNAPSHOT_PARTS * WEFTI_TENSOR_GROUPS_MOST];
    uint64_t step;
    uint64_t next_sequence;
} wefti_snapshot;

/* Both only while the replica is settled. Returns OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_snapshot_init(wefti_snapshot *snapshot,
                                               const wefti_replica *replica);
WEFT_NODISCARD weft_status
wefti_snapshot_restore(const wefti_snapshot *snapshot, wefti_replica *replica);
void wefti_snapshot_fini(wefti_snapshot *snapshot);

#endif
