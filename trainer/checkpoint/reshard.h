/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/reshard.h - a rank's shares of a state that another number
 * of ranks has saved.
 */
#ifndef TRAINER_CHECKPOINT_RESHARD_H
#define TRAINER_CHECKPOINT_RESHARD_H

#include "trainer/checkpoint/savepoint.h"

/*
 * saved    how many ranks wrote step
 * origin   of what run and session they were
 *
 * Everything is borrowed.
 */
typedef struct wefti_reshard {
    const wefti_savepoint *point;
    wefti_replica *replica;
    uint64_t step;
    uint32_t saved;
    wefti_checkpoint_origin origin;
} wefti_reshard;

/*
 * wefti_reshard_check - that all files are there, sound, and of this model and
 * text; changes nothing.
 *
 * Returns     OK | ERR_INVALID | ERR_SYSTEM | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_reshard_check(const wefti_reshard *job);

/* Takes this rank's shares and the counters out of them. Returns the same. */
WEFT_NODISCARD weft_status wefti_reshard_read(const wefti_reshard *job);

#endif
