/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint_folder.h - the folders of a run's checkpoints:
 * their names, finding them, removing one.
 *
 * Only what is named exactly as here is ever taken for ours, or removed.
 */
#ifndef TRAINER_CHECKPOINT_CHECKPOINT_FOLDER_H
#define TRAINER_CHECKPOINT_CHECKPOINT_FOLDER_H

#include "trainer/checkpoint/checkpoint.h"

#include <stdbool.h>

#define WEFTI_CHECKPOINT_DONE       "DONE"
#define WEFTI_CHECKPOINT_DONE_BYTES 64
/* Room for ".step_18446744073709551615.new". */
#define WEFTI_CHECKPOINT_FOLDER_BYTES 48

/* What the folder of a step is, by its name. */
typedef enum wefti_checkpoint_state {
    WEFTI_CHECKPOINT_NEW,   /* .step_00000050.new: being written */
    WEFTI_CHECKPOINT_SAVED, /* step_00000050: complete if it has DONE */
    WEFTI_CHECKPOINT_OLD    /* .step_00000050.old: being removed */
} wefti_checkpoint_state;

typedef struct wefti_checkpoint_folder {
    uint64_t step;
    wefti_checkpoint_state state;
    bool complete; /* SAVED, with DONE */
} wefti_checkpoint_folder;

void wefti_checkpoint_folder_name(uint64_t step, wefti_checkpoint_state state,
                                  char name[WEFTI_CHECKPOINT_FOLDER_BYTES]);

/*
 * wefti_checkpoint_path - DIR/FOLDER/rank_00002.weft.
 *
 * path_out    WEFTI_CHECKPOINT_PATH_BYTES of room.
 *
 * Returns     OK | ERR_INVALID (too long).
 */
WEFT_NODISCARD weft_status wefti_checkpoint_path(const char *dir, uint64_t step,
                                                 wefti_checkpoint_state state,
                                                 uint32_t rank, char *path_out);

/*
 * wefti_checkpoint_folder_done - what DONE of a complete step says, with its
 * newline.
 *
 * text      WEFTI_CHECKPOINT_DONE_BYTES of room.
 *
 * Returns   how many bytes.
 */
int wefti_checkpoint_folder_done(uint64_t step, uint32_t nranks, char *text);

/* Whether the folder name in dir_fd has a DONE that says what it should. */
bool wefti_checkpoint_folder_complete(int dir_fd, const char *name);

/*
 * wefti_checkpoint_folder_scan - all of our folders in DIR, newest step first.
 *
 * folders_out   to be freed by the caller; NULL where there are none.
 */
WEFT_NODISCARD weft_status wefti_checkpoint_folder_scan(
    int dir_fd, const char *dir, wefti_checkpoint_folder **folders_out,
    size_t *count_out);

/* Removes a folder and our files in it; it stays if it holds anything else. */
WEFT_NODISCARD weft_status wefti_checkpoint_folder_remove(int dir_fd,
                                                          const char *name);

#endif
