/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint.h - what a run can go on from: in one folder
 * per step one file per rank, in the safetensors format, and an index of all
 * tensors; complete exactly when the folder holds DONE.
 *
 *   DIR/step_00000050/rank_00000.safetensors   parts of tensors
 *                     rank_00001.safetensors
 *                     index.json               where the parts of each are
 *                     DONE                     written last
 *
 * A tensor may lie in any number of files, cut anywhere, and is read by its
 * name: any ranks may read what any others have written. No byte can change
 * unseen: DONE has the digest of the index, which has those of every part and
 * of every file's header (BLAKE2b-256).
 *
 * Saving, by all ranks (the barriers are the caller's, and so is agreeing
 * whether every rank's part went well):
 *
 *   rank 0      wefti_checkpoint_begin    makes DIR/.step_00000050.S.new
 *   barrier
 *   each rank   wefti_checkpoint_write    its file is durable
 *   barrier
 *   rank 0      wefti_checkpoint_seal     index, DONE
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

/* Longest name of a tensor, its end included. */
#define WEFTI_CHECKPOINT_NAME_BYTES   64
#define WEFTI_CHECKPOINT_DIGEST_BYTES 32
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

/*
 * Whose state a step is. What must agree to go on from it: config_digest,
 * data_hash. The rest of the state that is no tensor: next_sequence. What only
 * tells how it was made: seed, and the pipeline's schedule, "" and 0 without
 * one, and what a trial of overlap had found.
 */
typedef struct wefti_checkpoint_header {
    uint64_t step;
    uint64_t nranks; /* as many files */
    wefti_checkpoint_origin origin;
    uint8_t config_digest[WEFTI_CONFIG_DIGEST_BYTES];
    uint8_t data_hash[WEFTI_DATA_HASH_BYTES];
    uint64_t next_sequence; /* of the training data */
    uint64_t seed;
    uint64_t pipeline; /* ranks */
    uint64_t stages, chunks;
    char schedule[32];
    char overlap[256]; /* trainer/overlap_verdict.h; "": nothing was tried */
} wefti_checkpoint_header;

/* What DONE says of its step. */
typedef struct wefti_checkpoint_done {
    uint64_t step;
    uint64_t nranks;
    wefti_checkpoint_origin origin;
    uint8_t index_digest[WEFTI_CHECKPOINT_DIGEST_BYTES];
} wefti_checkpoint_done;

/*
 * A part of a tensor, in memory.
 *
 * rows, columns   the whole tensor's; rows 0: a vector
 * offset, elems   the part: in elements, row after row; 1 at least
 * live            its elements, where they are used
 * at_bytes        where they are in a copy
 */
typedef struct wefti_checkpoint_piece {
    char name[WEFTI_CHECKPOINT_NAME_BYTES]; /* printable, without @ */
    weft_dtype dtype;
    uint64_t rows, columns;
    uint64_t offset, elems;
    void *live;
    size_t at_bytes;
} wefti_checkpoint_piece;

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
 * Threads     rank 0, before any rank's write.  Blocks: on the disk.
 */
WEFT_NODISCARD weft_status wefti_checkpoint_begin(
    const wefti_checkpoint_owner *owner, const char *dir, uint64_t step);

/*
 * wefti_checkpoint_try - whether rank can write in dir. Leaves nothing there.
 */
WEFT_NODISCARD weft_status wefti_checkpoint_try(const char *dir, uint32_t rank);

/*
 * wefti_checkpoint_write - a rank's file, durable after OK.
 *
 * pieces   count of them, of different tensors
 * copy     where their elements are; NULL: where they live
 *
 * Returns     OK | ERR_INVALID | ERR_NO_MEMORY | ERR_SYSTEM (the file may stay
 *             behind in the temporary folder).
 */
WEFT_NODISCARD weft_status wefti_checkpoint_write(
    const char *dir, const wefti_checkpoint_header *header, uint32_t rank,
    const wefti_checkpoint_piece *pieces, size_t count, const void *copy);

/*
 * wefti_checkpoint_seal - writes the index and DONE into the temporary folder,
 * and makes it durable with all that is in it.
 *
 * Returns     OK | ERR_INVALID (the ranks' files are not of one step, or do not
 *             have every tensor once) | ERR_SYSTEM (a file is missing, the disk
 *             is full ...) | ERR_NO_MEMORY.
 * Threads     rank 0, after every rank's write.
 */
WEFT_NODISCARD weft_status
wefti_checkpoint_seal(const wefti_checkpoint_owner *owner, const char *dir,
                      uint64_t step, uint64_t nranks);

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

/* A complete step, opened and its index validated. */
typedef struct wefti_checkpoint_reader wefti_checkpoint_reader;

/*
 * wefti_checkpoint_reader_open - open the step that done is of. Files are
 * opened, and their headers checked, when something in them is read.
 *
 * Returns     OK | ERR_INVALID (the index is corrupt, or another's than done
 *             says: the text names file and field) | ERR_SYSTEM |
 *             ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status
wefti_checkpoint_reader_open(const char *dir, const wefti_checkpoint_done *done,
                             wefti_checkpoint_reader **reader_out);

/* Borrowed from reader. */
const wefti_checkpoint_header *
wefti_checkpoint_reader_header(const wefti_checkpoint_reader *reader);

/*
 * wefti_checkpoint_reader_match - refuses a step of another configuration or
 * text than expect's.
 */
WEFT_NODISCARD weft_status
wefti_checkpoint_reader_match(const wefti_checkpoint_reader *reader,
                              const wefti_checkpoint_header *expect);

/*
 * wefti_checkpoint_reader_check - read all files and compare every digest.
 */
WEFT_NODISCARD weft_status
wefti_checkpoint_reader_check(wefti_checkpoint_reader *reader);

/*
 * wefti_checkpoint_reader_get - a part of a tensor, out of whatever files have
 * it; their parts that overlap it are compared with their digests as a whole.
 *
 * value    room for piece->elems, undefined after an error; NULL: they are only
 *          checked. Call it so on all ranks before any state is changed.
 *
 * Returns     OK | ERR_INVALID (no such tensor, other dtype or shape, or a
 *             digest differs: the text names file and tensor) | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status
wefti_checkpoint_reader_get(wefti_checkpoint_reader *reader,
                            const wefti_checkpoint_piece *piece, void *value);

/* Whether the step has a tensor of that name, and of which type. */
bool wefti_checkpoint_reader_has(const wefti_checkpoint_reader *reader,
                                 const char *name, weft_dtype *dtype_out);

/* NULL is legal. */
void wefti_checkpoint_reader_close(wefti_checkpoint_reader *reader);

#endif
