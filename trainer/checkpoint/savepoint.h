/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/savepoint.h - a replica's state on disk and back, by all
 * ranks together: each rank its own shares of parameters and moments.
 *
 * A resumed run goes on bit by bit as the run that saved would have, where it
 * has as many ranks. Only the same model and data may go on from a savepoint;
 * others are refused by name. How ranks, pipelines and buckets were and are
 * does not matter: state is saved by tensor (trainer/checkpoint/state.h).
 *
 *   dir/step_00000050     between steps
 *   dir/inside/step_...   inside the step after: at most one
 *                         (trainer/checkpoint/pause.h)
 *   dir/run_00002/...     the same of a run that began anew
 *                         (trainer/checkpoint/run_folder.h)
 */
#ifndef TRAINER_CHECKPOINT_SAVEPOINT_H
#define TRAINER_CHECKPOINT_SAVEPOINT_H

#include "trainer/checkpoint/checkpoint_owner.h"
#include "trainer/checkpoint/state.h"

/*
 * digest   of the configuration, from wefti_config_digest
 * dir      that holds the steps
 * owner    of where this run saves; whose it is there is known once it has been
 *          claimed, and which run is gone on with once it has been read
 * number   of that folder (trainer/checkpoint/run_folder.h)
 * keep     how many complete steps stay
 */
typedef struct wefti_savepoint {
    const char *dir;
    wefti_checkpoint_owner *owner;
    uint32_t number;
    size_t keep;
    uint8_t digest[WEFTI_CONFIG_DIGEST_BYTES];
    bool complete; /* those inside a step do not count */
} wefti_savepoint;

/*
 * wefti_savepoint_locate - all ranks, before they have a replica: the folder of
 * the run that began last in dir, to resume from.
 *
 * path         WEFTI_CHECKPOINT_PATH_BYTES
 * failed_out   as in wefti_replica
 */
WEFT_NODISCARD weft_status wefti_savepoint_locate(weft_comm *comm,
                                                  const char *dir, char *path,
                                                  int *failed_out);

/*
 * wefti_savepoint_claim - all ranks, before the first write: takes a folder in
 * dir for this run, made where missing, and finds out whether it takes every
 * rank's file, so that a run fails at its start, not after hours of training.
 * point->dir is that folder from then on.
 *
 * resumed     the folder that the replica's state comes from; NULL: it is new
 *
 * Returns     OK | this rank's error | ERR_SYSTEM where only others failed |
 *             the communicator's fault.
 */
WEFT_NODISCARD weft_status wefti_savepoint_claim(wefti_savepoint *point,
                                                 wefti_replica *replica,
                                                 const char *dir,
                                                 const char *resumed);

/*
 * wefti_savepoint_claim_again - all ranks that are left, after others were
 * lost: what those still write there counts no more. Returns as claim.
 */
WEFT_NODISCARD weft_status wefti_savepoint_claim_again(wefti_savepoint *point,
                                                       wefti_replica *replica);

/* The folder is free for others. Nothing where it has not been claimed. */
void wefti_savepoint_release(wefti_savepoint *point);

/*
 * wefti_savepoint_write - all ranks after the same step. Where the replica has
 * a saver that writes, the state has been copied when it returns OK, and is
 * complete and durable once that has settled (trainer/checkpoint/saver.h);
 * without one when it returns.
 *
 * point       borrowed until then
 *
 * Returns     OK | this rank's error, or that of the savepoint before |
 *             ERR_SYSTEM where only others failed | the communicator's fault.
 *             The savepoints before are intact.
 */
WEFT_NODISCARD weft_status wefti_savepoint_write(const wefti_savepoint *point,
                                                 wefti_replica *replica);

/*
 * wefti_savepoint_read - go on from the newest complete step in dir, or from
 * inside the one after it where there is such a snapshot.
 *
 * Returns     OK | ERR_INVALID (there is none, or it is another
 *             configuration's or text's, or damaged; of a snapshot inside a
 *             step: another schedule's, batch's or number of ranks') |
 *             ERR_SYSTEM | the communicator's fault. The replica is unchanged
 *             unless all that the ranks need has proved sound.
 */
WEFT_NODISCARD weft_status wefti_savepoint_read(const wefti_savepoint *point,
                                                wefti_replica *replica);

/* As read, but where dir holds no complete step, nothing changes. */
WEFT_NODISCARD weft_status wefti_savepoint_read_if_any(
    const wefti_savepoint *point, wefti_replica *replica);

/*
 * wefti_savepoint_read_choices - all ranks, before they have a replica: which
 * schedule the savepoint was made with that read would go on from, and what a
 * trial of overlap had found.
 *
 * failed_out   as in wefti_replica
 *
 * Returns      as read.
 */
typedef struct wefti_savepoint_choices {
    int64_t step;
    int64_t inside; /* 1: of the step after */
    int64_t chunks; /* V */
    char name[sizeof(((weft_schedule_info *)NULL)->name)]; /* "": no pipeline */
    wefti_overlap_verdict overlap;
} wefti_savepoint_choices;
WEFT_NODISCARD weft_status wefti_savepoint_read_choices(
    const wefti_savepoint *point, weft_comm *comm, const wefti_data *data,
    int *failed_out, wefti_savepoint_choices *choices_out);

/*
 * For pause*.c and saver.c: the folder of snapshots inside steps (path:
 * WEFTI_CHECKPOINT_PATH_BYTES); what every rank's verdict comes to, which is
 * also a barrier (failed_out: as in wefti_replica, set where a rank failed).
 */
weft_status wefti_savepoint_inside(const char *dir, char *path);
weft_status wefti_savepoint_agree(weft_comm *comm, int *failed_out,
                                  weft_status own, const char *what);

/*
 * wefti_savepoint_save_run - all ranks of comm: each its file, then the commit.
 * Reads of replica only what no step changes, where there is a copy.
 *
 * step, next_sequence   of the state
 * inside                it stands in the step after: there is one such, in a
 *                       folder of its own, which the next after a step removes
 * list                  this rank's pieces
 * finite                so many of its first have to be finite numbers
 * copy                  of the pieces; NULL: as the replica has them now
 * failed                as in wefti_replica, set where a rank failed
 */
typedef struct wefti_savepoint_save wefti_savepoint_save;
struct wefti_savepoint_save {
    const wefti_savepoint *point;
    wefti_replica *replica;
    weft_comm *comm;
    uint64_t step, next_sequence;
    bool inside;
    wefti_state_list list; /* borrowed */
    size_t finite;
    const unsigned char *copy;
    int *failed;
};

WEFT_NODISCARD weft_status
wefti_savepoint_save_run(const wefti_savepoint_save *save);

#endif
