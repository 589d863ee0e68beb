/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/savepoint.c - the steps that ranks take together around
 * the files.
 */
#include "trainer/checkpoint/savepoint.h"

#include "base/clock.h"
#include "base/error.h"
#include "trainer/checkpoint/saver.h"
#include "trainer/ema.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

weft_status wefti_savepoint_inside(const char *dir, char *path)
{
    int length = snprintf(path, WEFTI_CHECKPOINT_PATH_BYTES, "%s/inside", dir);
    return length > 0 && length < WEFTI_CHECKPOINT_PATH_BYTES
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "%.200s...: allowed are paths of up to %d bytes",
                             dir, WEFTI_CHECKPOINT_PATH_BYTES - 1);
}

/*
 * A rank that has failed keeps its own error, whatever happens to the others
 * meanwhile.
 */
weft_status wefti_savepoint_agree(weft_comm *comm, int *failed_out,
                                  weft_status own, const char *what)
{
    char why[512];
    snprintf(why, sizeof(why), "%s", weft_error_text());
    /* The first of those that failed has the most. */
    int nranks = weft_comm_get_nranks(comm);
    int32_t failed = own == WEFT_OK ? 0 : nranks - weft_comm_get_rank(comm);
    weft_status status = weft_allreduce(&failed, &failed, 1, WEFT_DTYPE_I32,
                                        WEFT_REDOP_MAX, comm, NULL);
    if (status == WEFT_OK && failed) {
        *failed_out = nranks - failed + 1;
    }
    if (own != WEFT_OK) {
        return wefti_error(own, "%s", why);
    }
    if (status != WEFT_OK || !failed) {
        return status;
    }
    return wefti_error(WEFT_ERR_SYSTEM,
                       "%s: rank %d has failed, see its message", what,
                       nranks - failed);
}

static wefti_checkpoint_header make_header(const wefti_savepoint_save *save)
{
    const wefti_replica *replica = save->replica;
    static const weft_schedule_info none; /* of a model that is not cut */
    const weft_schedule_info *own = &replica->pipe.info;
    const weft_schedule_info *info = own->ranks > 1 ? own : &none;
    wefti_checkpoint_header header = {.step = save->step,
                                      .nranks = replica->nranks,
                                      .origin = save->point->owner->origin,
                                      .next_sequence = save->next_sequence,
                                      .seed = replica->config.seed,
                                      .pipeline = (uint64_t)info->ranks,
                                      .stages = (uint64_t)info->stages,
                                      .chunks = (uint64_t)info->chunks};
    memcpy(header.config_digest, save->point->digest,
           sizeof(header.config_digest));
    memcpy(header.data_hash, replica->config.data->hash,
           sizeof(header.data_hash));
    snprintf(header.schedule, sizeof(header.schedule), "%s", info->name);
    wefti_overlap_verdict_pack(&replica->config.overlap, header.overlap);
    return header;
}

/*
 * A rank 0 that stood still while it wrote may have been left behind meanwhile:
 * those that have gone on need no step that they have done again.
 */
static weft_status check_whole(const wefti_savepoint_save *save)
{
    weft_comm *comms[] = {save->comm, save->replica->config.comm};
    for (int i = 0; i < 2; i++) {
        weft_fault fault = {.size_bytes = sizeof(fault)};
        weft_status status = weft_comm_get_fault(comms[i], &fault);
        if (status == WEFT_OK && fault.status != WEFT_OK) {
            status =
                wefti_error(fault.status, "step %" PRIu64 " is not saved: %s",
                            save->step, fault.text);
        }
        if (status != WEFT_OK) {
            return status;
        }
    }
    return WEFT_OK;
}

/* Then what it has made obsolete goes, in either folder. */
static weft_status commit(const wefti_savepoint_save *save, const char *dir,
                          const char *inside)
{
    const wefti_savepoint *point = save->point;
    weft_status status = wefti_checkpoint_seal(point->owner, dir, save->step,
                                               save->replica->nranks);
    if (status == WEFT_OK) {
        status = check_whole(save);
    }
    if (status == WEFT_OK) {
        status = wefti_checkpoint_commit(point->owner, dir, save->step,
                                         save->inside ? 1 : point->keep);
    }
    if (status == WEFT_OK && !save->inside) {
        wefti_checkpoint_prune(point->owner, inside, save->step);
    }
    return status;
}

/* From here on ranks that have nothing to write only agree. */
static weft_status save_in(const wefti_savepoint_save *save, const char *dir,
                           const char *inside, const char *what)
{
    const wefti_checkpoint_header header = make_header(save);
    bool leads = save->replica->rank == 0;
    weft_status status =
        leads ? wefti_checkpoint_begin(save->point->owner, dir, save->step)
              : WEFT_OK;
    status = wefti_savepoint_agree(save->comm, save->failed, status, what);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_write(
            dir, &header, (uint32_t)save->replica->rank, save->list.pieces,
            save->list.count, save->copy);
        status = wefti_savepoint_agree(save->comm, save->failed, status, what);
    }
    if (status != WEFT_OK) {
        return status;
    }
    status = leads ? commit(save, dir, inside) : WEFT_OK;
    return wefti_savepoint_agree(save->comm, save->failed, status, what);
}

static bool is_finite(const wefti_checkpoint_piece *piece, const void *value)
{
    bool f64 = piece->dtype == WEFT_DTYPE_F64;
    for (size_t i = 0; i < piece->elems; i++) {
        if (!isfinite(f64 ? ((const double *)value)[i]
                          : (double)((const float *)value)[i])) {
            return false;
        }
    }
    return true;
}

/* A state that no run could go on from does not replace a good one, nor one
 * inside a step whose losses, the last of these, show where it leads. */
static weft_status check_finite(const wefti_savepoint_save *save)
{
    for (size_t i = 0; i < save->finite; i++) {
        const wefti_checkpoint_piece *piece = &save->list.pieces[i];
        bool begun = save->inside && i + 1 == save->finite;
        if (!is_finite(piece, save->copy ? save->copy + piece->at_bytes
                                         : piece->live)) {
            return wefti_error(
                WEFT_ERR_INVALID,
                "step %" PRIu64
                ": %s holds a value that is not finite: training has "
                "diverged, and this state is not saved; lower train.lr",
                save->step + begun, piece->name);
        }
    }
    return WEFT_OK;
}

weft_status wefti_savepoint_save_run(const wefti_savepoint_save *save)
{
    char inside[WEFTI_CHECKPOINT_PATH_BYTES];
    const char *what = save->inside ? "checkpoint.inside" : "checkpoint";
    const char *dir = save->point->owner->dir;
    weft_status status = wefti_savepoint_inside(dir, inside);
    if (status == WEFT_OK) {
        status = check_finite(save);
    }
    status = wefti_savepoint_agree(save->comm, save->failed, status, what);
    return status == WEFT_OK
               ? save_in(save, save->inside ? inside : dir, inside, what)
               : status;
}

/* ---- after a step ---------------------------------------------------------
 */

/*
 * Moments first: updated parameters are still on their way to the other ranks,
 * and may be put in their place here once more.
 */
static weft_status copy_state(wefti_replica *replica)
{
    const wefti_saver *saver = replica->saver;
    const wefti_checkpoint_piece *pieces = saver->list.pieces;
    /* Experts that move come with their moments. */
    weft_status status =
        replica->place ? wefti_replica_settle(replica) : WEFT_OK;
    for (int values = 0; values < 2 && status == WEFT_OK; values++) {
        status = values ? wefti_replica_settle(replica) : WEFT_OK;
        for (size_t i = 0; status == WEFT_OK && i < saver->list.shares; i++) {
            if ((i % WEFTI_STATE_PARTS == 0) == values) {
                status = wefti_replica_copy(
                    replica, saver->copy + pieces[i].at_bytes, pieces[i].live,
                    pieces[i].elems * sizeof(real));
            }
        }
    }
    return status;
}

/* What only the host has: the averages of the step, to which the thread that
 * averages has come first, and where experts are. */
static weft_status copy_host(wefti_replica *replica)
{
    const wefti_saver *saver = replica->saver;
    weft_status status = wefti_ema_settle(replica->ema);
    for (size_t i = saver->list.shares;
         status == WEFT_OK && i < saver->list.count; i++) {
        const wefti_checkpoint_piece *piece = &saver->list.pieces[i];
        memcpy(saver->copy + piece->at_bytes, piece->live,
               piece->elems * weft_dtype_bytes(piece->dtype));
    }
    return status;
}

static weft_status write_now(wefti_savepoint_save *save)
{
    wefti_replica *replica = save->replica;
    weft_status status = wefti_replica_settle(replica);
    if (status == WEFT_OK) {
        status = wefti_ema_settle(replica->ema);
    }
    save->comm = replica->config.comm;
    save->failed = &replica->failed;
    return status == WEFT_OK ? wefti_savepoint_save_run(save) : status;
}

weft_status wefti_savepoint_write(const wefti_savepoint *point,
                                  wefti_replica *replica)
{
    int64_t before_ns = wefti_clock_ns();
    weft_status status = wefti_saver_settle(replica->saver);
    if (status == WEFT_OK && replica->place) {
        status = wefti_saver_relist(replica->saver);
    }
    wefti_savepoint_save save = {.point = point,
                                 .replica = replica,
                                 .step = replica->step,
                                 .next_sequence = replica->next_sequence,
                                 .list = replica->saver->list,
                                 .finite = replica->saver->list.shares};
    if (status == WEFT_OK && wefti_saver_writes(replica->saver)) {
        status = copy_state(replica);
        if (status == WEFT_OK) {
            status = copy_host(replica);
        }
        if (status == WEFT_OK) {
            wefti_saver_start(replica->saver, &save);
        }
    } else if (status == WEFT_OK) {
        status = write_now(&save);
    }
    replica->save_ns += wefti_clock_ns() - before_ns;
    return status;
}
