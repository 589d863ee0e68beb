/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/savepoint_claim.c - where a run saves: chosen and held by
 * rank 0, known to all.
 */
#include "base/error.h"
#include "trainer/checkpoint/run_folder.h"
#include "trainer/checkpoint/savepoint.h"

#include <stdio.h>
#include <string.h>

static weft_status agree(wefti_replica *replica, weft_status own)
{
    return wefti_savepoint_agree(replica->config.comm, &replica->failed, own,
                                 "checkpoint.dir");
}

/* The run that began last, by rank 0; DIR alone may also hold nothing. */
static weft_status find_last(const char *dir, uint32_t *number_out)
{
    char path[WEFTI_CHECKPOINT_PATH_BYTES];
    bool used = true;
    weft_status status = wefti_run_folder_newest(dir, number_out);
    if (status != WEFT_OK || *number_out == 1) {
        return status;
    }
    status = wefti_run_folder_path(dir, *number_out, path);
    if (status == WEFT_OK) {
        status = wefti_run_folder_is_used(path, &used);
    }
    return status == WEFT_OK && !used
               ? wefti_error(WEFT_ERR_INVALID,
                             "--resume %s: the run that began last there holds "
                             "no complete checkpoint: remove %s to go on from "
                             "the one before",
                             dir, path)
               : status;
}

weft_status wefti_savepoint_locate(weft_comm *comm, const char *dir, char *path,
                                   int *failed_out)
{
    uint32_t number = 1;
    weft_status status =
        weft_comm_get_rank(comm) == 0 ? find_last(dir, &number) : WEFT_OK;
    status = wefti_savepoint_agree(comm, failed_out, status, "--resume");
    if (status == WEFT_OK) {
        status =
            weft_broadcast(&number, &number, 1, WEFT_DTYPE_U32, 0, comm, NULL);
    }
    return status == WEFT_OK ? wefti_run_folder_path(dir, number, path)
                             : status;
}

/* What rank 0 has taken, for all. */
typedef struct taken {
    wefti_checkpoint_origin origin;
    uint64_t number;
} taken;

static weft_status share(wefti_savepoint *point, wefti_replica *replica)
{
    wefti_checkpoint_owner *owner = point->owner;
    taken all = {owner->origin, point->number};
    weft_status status = weft_broadcast(&all, &all, sizeof(all), WEFT_DTYPE_U8,
                                        0, replica->config.comm, NULL);
    owner->origin = all.origin;
    point->number = (uint32_t)all.number;
    return status;
}

/* By rank 0: what killed runs left half written takes room that this one may
 * need. */
static void clear_up(const wefti_checkpoint_owner *owner)
{
    char inside[WEFTI_CHECKPOINT_PATH_BYTES];
    wefti_checkpoint_prune(owner, owner->dir, 0);
    if (wefti_savepoint_inside(owner->dir, inside) == WEFT_OK) {
        wefti_checkpoint_prune(owner, inside, 0);
    }
}

weft_status wefti_savepoint_claim(wefti_savepoint *point,
                                  wefti_replica *replica, const char *dir,
                                  const char *resumed)
{
    wefti_checkpoint_owner *owner = point->owner;
    weft_status status =
        replica->rank == 0
            ? wefti_run_folder_take(owner, dir, resumed, &point->number)
            : WEFT_OK;
    status = agree(replica, status);
    if (status == WEFT_OK) {
        status = share(point, replica);
    }
    if (status == WEFT_OK) {
        status = wefti_run_folder_path(dir, point->number, owner->dir);
        point->dir = owner->dir;
    }
    if (status == WEFT_OK && replica->rank == 0) {
        clear_up(owner);
    }
    if (status == WEFT_OK) {
        status = wefti_checkpoint_try(owner->dir, (uint32_t)replica->rank);
    }
    return agree(replica, status);
}

weft_status wefti_savepoint_claim_again(wefti_savepoint *point,
                                        wefti_replica *replica)
{
    weft_status status = replica->rank == 0
                             ? wefti_checkpoint_owner_renew(point->owner)
                             : WEFT_OK;
    status = agree(replica, status);
    if (status == WEFT_OK && replica->rank == 0) {
        clear_up(point->owner);
    }
    return status == WEFT_OK ? share(point, replica) : status;
}

void wefti_savepoint_release(wefti_savepoint *point)
{
    if (point->owner && point->owner->dir[0]) {
        wefti_run_folder_leave(point->owner, point->number);
    }
}
