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
#define WEFTI_CHECKPOINT_DONE_BYTES 256
/* Room for ".step_18446744073709551615.0123456789abcdef.new". */
#define WEFTI_CHECKPOINT_FOLDER_BYTES 64

/* What the folder of a step is, by its name. */
typedef enum wefti_checkpoint_state {
    WEFTI_CHECKPOINT_NEW,   /* .step_00000050.S.new: session S writes it */
    WEFTI_CHECKPOINT_SAVED, /* step_00000050: complete if it has DONE */
    WEFTI_CHECKPOINT_OLD    /* .step_00000050.old: being removed */
} wefti_checkpoint_state;

typedef struct wefti_checkpoint_folder {
    uint64_t step;
    wefti_checkpoint_state state;
    uint64_t session;           /* NEW */
    bool plain;                 /* a folder itself, not a link or a file */
    bool complete;              /* SAVED, with DONE */
    bool damaged;               /* SAVED, with a DONE that says other things */
    wefti_checkpoint_done done; /* of a complete one */
} wefti_checkpoint_folder;

/* session: of a NEW one */
void wefti_checkpoint_folder_name(uint64_t step, wefti_checkpoint_state state,
                                  uint64_t session,
                                  char name[WEFTI_CHECKPOINT_FOLDER_BYTES]);

/*
 * wefti_checkpoint_path - DIR/FOLDER of a step, or DIR/FOLDER/name.
 *
 * session     of a NEW one
 * name        "": the folder
 * path_out    WEFTI_CHECKPOINT_PATH_BYTES of room.
 *
 * Returns     OK | ERR_INVALID (too long).
 */
WEFT_NODISCARD weft_status wefti_checkpoint_path(const char *dir, uint64_t step,
                                                 wefti_checkpoint_state state,
                                                 uint64_t session,
                                                 const char *name,
                                                 char *path_out);

/*
 * wefti_checkpoint_done_pack - what DONE of a complete step says, with its
 * newline.
 *
 * text      WEFTI_CHECKPOINT_DONE_BYTES of room.
 *
 * Returns   how many bytes.
 */
int wefti_checkpoint_done_pack(const wefti_checkpoint_done *done, char *text);

/*
 * wefti_checkpoint_folder_scan - all of our folders in DIR, newest step first.
 *
 * folders_out   to be freed by the caller; NULL where there are none.
 */
WEFT_NODISCARD weft_status wefti_checkpoint_folder_scan(
    int dir_fd, const char *dir, wefti_checkpoint_folder **folders_out,
    size_t *count_out);

/*
 * Removes a folder and our files in it; it stays if it holds anything else. A
 * link is not followed, and stays.
 */
WEFT_NODISCARD weft_status wefti_checkpoint_folder_remove(int dir_fd,
                                                          const char *name);

#endif
