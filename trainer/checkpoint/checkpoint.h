/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint.h - what a run can go on from: one file per
 * rank, in one folder per step, complete exactly when the folder holds DONE.
 *
 *   DIR/step_00000050/rank_00000.weft   sections: name, dtype, bytes, checksum
 *                     rank_00001.weft
 *                     DONE              written last
 *
 * Saving, by all ranks (the barriers are the caller's, and so is agreeing
 * whether every rank's part went well):
 *
 *   rank 0      wefti_checkpoint_begin    makes DIR/.step_00000050.S.new
 *   barrier
 *   each rank   writer_open, writer_add ..., writer_close    file is durable
 *   barrier
 *   rank 0      wefti_checkpoint_seal     DONE
 *               are all ranks still there?
 *               wefti_checkpoint_commit   rename, then remove what is over
 *
 * Invariants: whatever instant the processes die at, a step that was complete
 * before stays complete and readable until newer ones have taken its place (one
 * of its own number only where two folders can change places at one stroke). A
 * complete step is removed only where as many newer ones of the same run are
 * complete as are kept. What a killed run left behind (.new, .old, a step
 * without DONE) is never read, and removed by the next run or commit. A run
 * that does not own DIR (checkpoint_owner.h) changes nothing there.
 */
#ifndef TRAINER_CHECKPOINT_CHECKPOINT_H
#define TRAINER_CHECKPOINT_CHECKPOINT_H

#include "trainer/config/config.h"
#include "trainer/data/data.h"
#include "weft/status.h"
#include "weft/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest section name, its end included; most sections in a file. */
#define WEFTI_CHECKPOINT_NAME_BYTES    64
#define WEFTI_CHECKPOINT_SECTIONS_MOST 65536
/* Longest path of a file, its end included. */
#define WEFTI_CHECKPOINT_PATH_BYTES 4096

/*
 * The writer of a file. run is drawn when a training run begins, and kept when
 * it is resumed; session is drawn when a job begins or resumes, and whenever it
 * has lost ranks. All files of a step are of one session.
 */
typedef struct wefti_checkpoint_origin {
    uint64_t run, session;
} wefti_checkpoint_origin;

/* The run that may write in a folder: trainer/checkpoint/checkpoint_owner.h. */
typedef struct wefti_checkpoint_owner wefti_checkpoint_owner;

/* Whose state a file is; what must agree to go on from it. */
typedef struct wefti_checkpoint_header {
    uint64_t step;
    uint32_t nranks;
    uint32_t rank;
    uint8_t config_digest[WEFTI_CONFIG_DIGEST_BYTES];
    uint8_t data_hash[WEFTI_DATA_HASH_BYTES];
    wefti_checkpoint_origin origin;
} wefti_checkpoint_header;

/* What DONE says of its step. */
typedef struct wefti_checkpoint_done {
    uint64_t step;
    uint32_t nranks;
    wefti_checkpoint_origin origin;
} wefti_checkpoint_done;

/*
 * wefti_checkpoint_make_folders - makes dir and whichever of its parents are
 * missing, durably.
 */
WEFT_NODISCARD weft_status wefti_checkpoint_make_folders(const char *dir);

/*
 * wefti_checkpoint_begin - an empty temporary folder for a step, DIR made where
 * missing, an older attempt at the same step by the same session removed.
 *
 * owner       of DIR, or of the folder that DIR is in
 *
 * Threads     rank 0, before any rank's writer_open.  Blocks: on the disk.
 */
WEFT_NODISCARD weft_status wefti_checkpoint_begin(
    const wefti_checkpoint_owner *owner, const char *dir, uint64_t step);

/*
 * wefti_checkpoint_try - whether rank can write in dir. Leaves nothing there.
 */
WEFT_NODISCARD weft_status wefti_checkpoint_try(const char *dir, uint32_t rank);

/*
 * A rank's file being written. After an error of add only abort is legal.
 */
typedef struct wefti_checkpoint_writer wefti_checkpoint_writer;

WEFT_NODISCARD weft_status wefti_checkpoint_writer_open(
    const char *dir, const wefti_checkpoint_header *header,
    wefti_checkpoint_writer **writer_out);

/*
 * wefti_checkpoint_writer_add - append one section.
 *
 * name     1..63 printable characters, once per file.
 * value    elems elements of dtype, borrowed for the call; elems 0 is legal.
 */
WEFT_NODISCARD weft_status
wefti_checkpoint_writer_add(wefti_checkpoint_writer *writer, const char *name,
                            weft_dtype dtype, const void *value, size_t elems);

/* Completes the file and makes it durable; frees writer also on an error. */
WEFT_NODISCARD weft_status
wefti_checkpoint_writer_close(wefti_checkpoint_writer *writer);

/* Abandons the file (it stays behind in the temporary folder). NULL legal. */
void wefti_checkpoint_writer_abort(wefti_checkpoint_writer *writer);

/*
 * wefti_checkpoint_seal - writes DONE into the temporary folder, and makes it
 * durable with all that is in it.
 *
 * Returns     OK | ERR_SYSTEM (a rank's file is missing, the disk is full ...).
 * Threads     rank 0, after every rank's writer_close.
 */
WEFT_NODISCARD weft_status
wefti_checkpoint_seal(const wefti_checkpoint_owner *owner, const char *dir,
                      uint64_t step, uint32_t nranks);

/*
 * wefti_checkpoint_commit - make a sealed step a complete one, if DIR is still
 * this session's.
 *
 * Renames the temporary folder (in place of a step of the same number, at one
 * stroke where the file system can), makes that durable, and only then, if DIR
 * is this session's yet, removes what is over: of this run's complete steps
 * those older than step and than the newest keep, and leftovers. Steps of other
 * runs stay, and so do links and steps whose DONE is damaged.
 *
 * Returns     OK | ERR_INVALID (DIR is another session's, or has something in
 *             the way) | ERR_SYSTEM; what was complete before still is. Failing
 *             to remove is not an error: it is logged as a warning.
 * Threads     rank 0.
 */
WEFT_NODISCARD weft_status
wefti_checkpoint_commit(const wefti_checkpoint_owner *owner, const char *dir,
                        uint64_t step, size_t keep);

/*
 * wefti_checkpoint_prune - removes from DIR, if it is there, this run's
 * complete steps before step, and leftovers. Failing to is logged as a warning.
 *
 * Threads     rank 0, while no rank saves there.
 */
void wefti_checkpoint_prune(const wefti_checkpoint_owner *owner,
                            const char *dir, uint64_t step);

/*
 * wefti_checkpoint_list - numbers of the complete steps in DIR, newest first.
 * A DIR that does not exist has none.
 *
 * steps_out   to be freed by the caller; NULL where count is 0.
 */
WEFT_NODISCARD weft_status wefti_checkpoint_list(const char *dir,
                                                 uint64_t **steps_out,
                                                 size_t *count_out);

/*
 * wefti_checkpoint_find_newest - the newest step in DIR that has a DONE.
 *
 * any_out     false: there is none
 * done_out    after an error: its step alone
 *
 * Returns     OK | ERR_INVALID (its DONE is damaged: the text names it) |
 *             ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_checkpoint_find_newest(
    const char *dir, bool *any_out, wefti_checkpoint_done *done_out);

/*
 * wefti_checkpoint_read_done - what DONE of a step says.
 *
 * Returns     OK | ERR_INVALID (damaged) | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_checkpoint_read_done(
    const char *dir, uint64_t step, wefti_checkpoint_done *done_out);

/* A rank's file, opened and validated down to its table of sections. */
typedef struct wefti_checkpoint_reader wefti_checkpoint_reader;

/*
 * wefti_checkpoint_reader_open - open the file of expect->rank in the step
 * expect->step, and refuse one of another step, rank, number of ranks,
 * configuration or data, or that another run or session wrote.
 *
 * Every length is checked against the file's size before it is used. Header
 * and table have checksums; sections are checked when they are read.
 *
 * Returns     OK | ERR_INVALID (corrupt, or not what expect says: the text
 *             names file and field) | ERR_SYSTEM | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_checkpoint_reader_open(
    const char *dir, const wefti_checkpoint_header *expect,
    wefti_checkpoint_reader **reader_out);

/*
 * wefti_checkpoint_reader_check - read all of the file and compare every
 * checksum: call it on all ranks before any state is changed.
 */
WEFT_NODISCARD weft_status
wefti_checkpoint_reader_check(wefti_checkpoint_reader *reader);

/*
 * wefti_checkpoint_reader_get - copy one section out.
 *
 * value    room for elems elements of dtype; undefined after an error.
 *
 * Returns     OK | ERR_INVALID (no such section, other dtype or count, or its
 *             checksum differs: the text names file and section) | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status
wefti_checkpoint_reader_get(wefti_checkpoint_reader *reader, const char *name,
                            weft_dtype dtype, void *value, size_t elems);

void wefti_checkpoint_reader_close(wefti_checkpoint_reader *reader);

#endif
