/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/run_folder.h - where in checkpoint.dir a run has its
 * steps, so that none takes the place of another's.
 *
 *   DIR/step_00000050             the first run that saved there
 *   DIR/run_00002/step_00000020   one that began anew when there were steps
 *   DIR/run_00003/...             and so on: the highest began last
 *
 * Folders are numbered so: DIR itself is 1.
 */
#ifndef TRAINER_CHECKPOINT_RUN_FOLDER_H
#define TRAINER_CHECKPOINT_RUN_FOLDER_H

#include "trainer/checkpoint/checkpoint_owner.h"

/* The folder of that number; path: WEFTI_CHECKPOINT_PATH_BYTES. */
WEFT_NODISCARD weft_status wefti_run_folder_path(const char *dir,
                                                 uint32_t number, char *path);

/* The number of the run that began last in DIR; 1 also where DIR is missing. */
WEFT_NODISCARD weft_status wefti_run_folder_newest(const char *dir,
                                                   uint32_t *number_out);

/*
 * wefti_run_folder_is_used - whether a folder holds anything to go on from, or
 * held it before it was damaged.
 */
WEFT_NODISCARD weft_status wefti_run_folder_is_used(const char *path,
                                                    bool *used_out);

/*
 * wefti_run_folder_take - by rank 0: owner of where a run is to save. One that
 * goes on from a folder of DIR saves there; any other where no run has complete
 * steps yet, which is a new folder if all have.
 *
 * resumed     the folder that the run goes on from; NULL: it begins anew
 *
 * Returns     OK | ERR_INVALID (a run that still goes on saves there) |
 *             ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_run_folder_take(wefti_checkpoint_owner *owner,
                                                 const char *dir,
                                                 const char *resumed,
                                                 uint32_t *number_out);

/* Releases it; a folder made for it is removed, if it is empty. */
void wefti_run_folder_leave(wefti_checkpoint_owner *owner, uint32_t number);

#endif
