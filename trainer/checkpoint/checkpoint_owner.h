/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint_owner.h - which run writes into a folder of
 * checkpoints: one at a time.
 *
 *   DIR/.owner   "run R, session S, host H, process P": whose folder it is,
 *                locked with flock(2) by rank 0 as long as it lives
 *
 * A lock alone would not do: a rank 0 that stands still, and is left behind by
 * the other ranks of an elastic run, holds its own. So those that go on replace
 * the file by one of a new session, at one stroke, and a rank reads it right
 * before it makes or removes a step: a rank that finds another session there
 * has been left behind, and changes nothing any more.
 *
 * A kernel drops the locks of a process that ends, however it ends, so that
 * nothing has to be cleared away by hand; flock also holds between the hosts of
 * an NFS, where locks are served. Where a file system has none, a warning says
 * so, and a second run is found only by what the file says.
 */
#ifndef TRAINER_CHECKPOINT_CHECKPOINT_OWNER_H
#define TRAINER_CHECKPOINT_CHECKPOINT_OWNER_H

#include "trainer/checkpoint/checkpoint.h"

struct wefti_checkpoint_owner {
    char dir[WEFTI_CHECKPOINT_PATH_BYTES]; /* "": none */
    wefti_checkpoint_origin origin;        /* of what this run writes */
    bool holds; /* this rank has the file open, and locked */
    int fd;
};

/*
 * wefti_checkpoint_owner_open - take DIR, with a session of its own, for the
 * run in owner->origin; 0: for a new one. On all other ranks owner is a copy
 * that holds nothing.
 *
 * Returns     OK | ERR_INVALID (another run has it: the text says which) |
 *             ERR_SYSTEM.
 * Threads     rank 0.
 */
WEFT_NODISCARD weft_status
wefti_checkpoint_owner_open(wefti_checkpoint_owner *owner, const char *dir);

/*
 * wefti_checkpoint_owner_renew - after ranks were lost: a new session of the
 * same run takes DIR over, also from a former rank 0 that still stands still.
 *
 * Returns     OK | ERR_INVALID (it is another run's by now) | ERR_SYSTEM.
 * Threads     rank 0 of those that go on.
 */
WEFT_NODISCARD weft_status
wefti_checkpoint_owner_renew(wefti_checkpoint_owner *owner);

/*
 * wefti_checkpoint_owner_check - whether DIR is still this session's.
 *
 * Returns     OK | ERR_INVALID (it is not: the text says whose) | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status
wefti_checkpoint_owner_check(const wefti_checkpoint_owner *owner);

/* Releases DIR, if this rank holds it. */
void wefti_checkpoint_owner_close(wefti_checkpoint_owner *owner);

#endif
