/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/savepoint.h - a replica's state on disk and back, by all ranks
 * together: each rank its own shares of parameters and moments.
 *
 * A resumed run goes on bit by bit as the run that saved would have. Only the
 * same number of ranks, model and data may go on from a savepoint; others are
 * refused by name.
 */
#ifndef TRAINER_SAVEPOINT_H
#define TRAINER_SAVEPOINT_H

#include "trainer/checkpoint.h"
#include "trainer/replica.h"

/*
 * digest   of the configuration, from wefti_config_digest
 * dir      that holds the steps
 * keep     how many complete steps stay
 */
typedef struct wefti_savepoint {
    const char *dir;
    size_t keep;
    uint8_t digest[WEFTI_CONFIG_DIGEST_BYTES];
} wefti_savepoint;

/*
 * wefti_savepoint_write - all ranks after the same step; when it returns OK
 * the step is complete and durable.
 *
 * Returns     OK | this rank's error | ERR_SYSTEM where only others failed |
 *             the communicator's fault. The savepoints before are intact.
 */
WEFT_NODISCARD weft_status wefti_savepoint_write(const wefti_savepoint *point,
                                                 wefti_replica *replica);

/*
 * wefti_savepoint_read - go on from the newest complete step in dir.
 *
 * Returns     OK | ERR_INVALID (there is none, or it is another layout's,
 *             configuration's or text's, or damaged) | ERR_SYSTEM | the
 *             communicator's fault. The replica is unchanged unless every
 *             rank's file has proved sound.
 */
WEFT_NODISCARD weft_status wefti_savepoint_read(const wefti_savepoint *point,
                                                wefti_replica *replica);

#endif
