/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_job.h - making a communicator, which waits for other ranks:
 * by the caller, or by a thread where the caller does not block, or has several
 * to make in one group.
 */
#ifndef DOORS_NCCL_DOOR_JOB_H
#define DOORS_NCCL_DOOR_JOB_H

#include "doors/nccl/door_comm.h"

typedef enum wefti_door_making {
    WEFTI_DOOR_INIT,
    WEFTI_DOOR_SPLIT,
    WEFTI_DOOR_SHRINK,
    WEFTI_DOOR_DESTROY, /* no making: it stands behind a group's operations */
    WEFTI_DOOR_FINALIZE
} wefti_door_making;

/*
 * comm      what is made; NULL: this rank has no part in it
 * parent    what it is made of; of DESTROY and FINALIZE, what they are called
 *           on. The job is inside of both.
 * place     where the program wants the handle, NULL once it failed
 * next      of the same parent, to be run after it: weft makes one at a time
 */
typedef struct wefti_door_job {
    struct wefti_door_job *next;
    wefti_door_making kind;
    wefti_door_comm *comm, *parent;
    struct ncclComm **place;
    bool blocking;
    weft_unique_id id;
    int color, key;
    int *ranks;
    int rank_count;
    bool abort;
    int result;
    char text[512];
} wefti_door_job;

/*
 * wefti_door_submit - run it now, or with the group that is open.
 *
 * job    copied; what it has is taken, also where that fails.
 *
 * Returns     SUCCESS | IN_PROGRESS (it does not block) | the error.
 */
int wefti_door_submit(const wefti_door_job *job);

/*
 * wefti_door_run - make what count jobs of malloc say beside each other; takes
 * the jobs. Those that do not block go on behind the caller's back.
 *
 * Returns     as wefti_door_submit; the last error of several.
 */
int wefti_door_run(wefti_door_job **jobs, size_t count);

/* What was submitted is not to be done; takes the job. */
void wefti_door_cancel(wefti_door_job *job);

#endif
