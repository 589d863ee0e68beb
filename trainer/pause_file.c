/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pause_file.c - a copy to disk, by a thread beside the training, and
 * from disk.
 *
 * The thread has a communicator of its own, on which the ranks' writers agree
 * as for any savepoint. It reads of the replica only what no step changes.
 *
 * The copy belongs to the writer while busy is set, else to the trainer; both
 * change it under the lock.
 */
#include "trainer/pause.h"

#include "base/check.h"
#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Section "inside": where it stands, and what must be the same there. */
enum {
    PLACE,
    POSITION,
    STATE_BYTES,
    LISTS, /* the digest */
    MICROBATCHES,
    MICRO_BATCH,
    GLOBAL_BATCH,
    SLOTS,
    FIELDS,
    SAME = LISTS /* from here on */
};

/* Ranks come to a cut one after the other, and disks are slow. */
enum { WARN_MS = 300000 };

enum { NAME_BYTES = sizeof(((weft_schedule_info *)NULL)->name) };

static void describe(const wefti_pause *pause, int64_t fields[FIELDS])
{
    const wefti_replica *replica = pause->replica;
    fields[PLACE] = (int64_t)pause->mark.place;
    fields[POSITION] = (int64_t)pause->mark.position;
    fields[STATE_BYTES] = (int64_t)pause->mark.state_bytes;
    fields[LISTS] = (int64_t)(pause->digest >> 1);
    fields[MICROBATCHES] = replica->pipe.info.microbatches;
    fields[MICRO_BATCH] = (int64_t)replica->config.micro_batch;
    fields[GLOBAL_BATCH] = (int64_t)replica->config.global_batch;
    fields[SLOTS] = (int64_t)replica->pipe.slots;
}

/* ---- writing --------------------------------------------------------------
 */

static weft_status add_sections(wefti_checkpoint_writer *writer, void *context)
{
    const wefti_pause *pause = context;
    const wefti_pipe *pipe = &pause->replica->pipe;
    int64_t fields[FIELDS];
    describe(pause, fields);
    weft_status status = wefti_savepoint_add_head(
        writer, pause->replica, pause->mark.step, pause->mark.next_sequence);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_writer_add(writer, "inside", WEFT_DTYPE_I64,
                                             fields, FIELDS);
    }
    if (status == WEFT_OK) {
        status = wefti_checkpoint_writer_add(writer, "schedule", WEFT_DTYPE_U8,
                                             pipe->info.name, NAME_BYTES);
    }
    if (status == WEFT_OK) {
        status = wefti_checkpoint_writer_add(writer, "live", WEFT_DTYPE_U8,
                                             pause->live, pipe->slots);
    }
    for (size_t i = 0; i < pause->piece_count && status == WEFT_OK; i++) {
        const wefti_pause_piece *piece = &pause->pieces[i];
        status = wefti_checkpoint_writer_add(writer, piece->name, piece->dtype,
                                             pause->copy + piece->at_bytes,
                                             piece->elems);
    }
    return status;
}

static bool is_finite(const wefti_pause *pause, const wefti_pause_piece *piece)
{
    const unsigned char *copy = pause->copy + piece->at_bytes;
    bool f64 = piece->dtype == WEFT_DTYPE_F64;
    for (size_t i = 0; i < piece->elems; i++) {
        if (!isfinite(f64 ? ((const double *)(const void *)copy)[i]
                          : (double)((const float *)(const void *)copy)[i])) {
            return false;
        }
    }
    return true;
}

/*
 * As with any savepoint: nobody could go on from such a state, nor from inside
 * a step whose losses already show where it leads.
 */
static weft_status check_finite(const wefti_pause *pause)
{
    for (size_t i = 0; i <= pause->base_count; i++) {
        bool begun = i == pause->base_count; /* by now: "losses" */
        if (!is_finite(pause, &pause->pieces[i])) {
            return wefti_savepoint_not_finite(pause->mark.step + begun,
                                              begun ? "losses" : "values");
        }
    }
    return WEFT_OK;
}

static weft_status write_copy(wefti_pause *pause, int *failed)
{
    wefti_savepoint_save save = {
        .comm = pause->comm,
        .header = wefti_savepoint_header(&pause->point, pause->replica,
                                         pause->mark.step),
        .dir = pause->dir,
        .keep = 1,
        .stale_dir = pause->point.dir,
        .stale_keep = SIZE_MAX,
        .add = add_sections,
        .context = pause,
        .failed = failed};
    weft_status status = wefti_savepoint_agree(
        pause->comm, failed, check_finite(pause), "checkpoint.inside");
    return status == WEFT_OK ? wefti_savepoint_save_run(&save) : status;
}

/* ---- the thread -----------------------------------------------------------
 */

/* With the lock: after the copy has been written. */
static void note_end(wefti_pause *pause, weft_status status, int failed)
{
    if (status != WEFT_OK) {
        snprintf(pause->error, sizeof(pause->error), "%s", weft_error_text());
        pause->status = status;
        pause->failed = failed;
    }
    pause->busy = false;
    pthread_cond_broadcast(&pause->changed);
}

static void *run_writer(void *context)
{
    wefti_pause *pause = context;
    pthread_mutex_lock(&pause->lock);
    while (!pause->ending || pause->busy) {
        if (pause->busy) {
            int failed = 0;
            pthread_mutex_unlock(&pause->lock);
            weft_status status = write_copy(pause, &failed);
            pthread_mutex_lock(&pause->lock);
            note_end(pause, status, failed);
        } else {
            pthread_cond_wait(&pause->changed, &pause->lock);
        }
    }
    pthread_mutex_unlock(&pause->lock);
    return NULL;
}

weft_status wefti_pause_open_writer(wefti_pause *pause)
{
    weft_comm *job = pause->replica->config.comm;
    weft_comm_config config = {
        .size_bytes = sizeof(config), .name = "pause", .warn_ms = WARN_MS};
    weft_status status =
        weft_comm_split(job, 0, weft_comm_get_rank(job), &config, &pause->comm);
    if (status != WEFT_OK) {
        return status;
    }
    int failed = pthread_create(&pause->thread, NULL, run_writer, pause);
    pause->has_thread = failed == 0;
    return failed == 0
               ? WEFT_OK
               : wefti_error(WEFT_ERR_SYSTEM,
                             "no thread for snapshots inside a step: %s",
                             strerror(failed));
}

void wefti_pause_start_writer(wefti_pause *pause)
{
    pthread_mutex_lock(&pause->lock);
    WEFTI_ASSERT(!pause->busy);
    pause->busy = true;
    pthread_cond_broadcast(&pause->changed);
    pthread_mutex_unlock(&pause->lock);
}

weft_status wefti_pause_settle(wefti_pause *pause)
{
    if (!pause) {
        return WEFT_OK;
    }
    pthread_mutex_lock(&pause->lock);
    while (pause->busy) {
        pthread_cond_wait(&pause->changed, &pause->lock);
    }
    weft_status status = pause->status;
    if (status != WEFT_OK) {
        pause->replica->failed = pause->failed;
        wefti_error_keep("%s", pause->error);
    }
    pthread_mutex_unlock(&pause->lock);
    return status;
}

void wefti_pause_abort(wefti_pause *pause)
{
    if (pause && pause->comm) {
        (void)!weft_comm_abort(pause->comm);
    }
}

void wefti_pause_close_writer(wefti_pause *pause)
{
    if (pause->has_thread) {
        pthread_mutex_lock(&pause->lock);
        pause->ending = true;
        pthread_cond_broadcast(&pause->changed);
        pthread_mutex_unlock(&pause->lock);
        pthread_join(pause->thread, NULL);
        pause->has_thread = false;
    }
    weft_comm_destroy(pause->comm);
    pause->comm = NULL;
}

/* ---- reading --------------------------------------------------------------
 */

weft_status wefti_pause_check(const wefti_pause *pause,
                              wefti_checkpoint_reader *reader)
{
    int64_t saved[FIELDS], own[FIELDS];
    char name[NAME_BYTES + 1] = "";
    describe(pause, own);
    weft_status status = wefti_checkpoint_reader_get(
        reader, "inside", WEFT_DTYPE_I64, saved, FIELDS);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_get(reader, "schedule", WEFT_DTYPE_U8,
                                             name, NAME_BYTES);
    }
    if (status != WEFT_OK ||
        memcmp(saved + SAME, own + SAME, (FIELDS - SAME) * sizeof(*own)) == 0) {
        return status;
    }
    return wefti_error(
        WEFT_ERR_INVALID,
        "the snapshot was taken inside a step of schedule %s, %" PRId64
        " micro-batches for a pipeline, %" PRId64 " sequences each, %" PRId64
        " a step; this run has %s, %" PRId64 ", %" PRId64 ", %" PRId64
        "%s: inside a step it goes on only with the same schedule and batch",
        name, saved[MICROBATCHES], saved[MICRO_BATCH], saved[GLOBAL_BATCH],
        pause->replica->pipe.info.name, own[MICROBATCHES], own[MICRO_BATCH],
        own[GLOBAL_BATCH],
        memcmp(saved + MICROBATCHES, own + MICROBATCHES,
               (FIELDS - MICROBATCHES) * sizeof(*own)) == 0
            ? ", and another list of actions"
            : "");
}

/* What a damaged number would make of the copy is refused before. */
static weft_status read_mark(wefti_pause *pause,
                             wefti_checkpoint_reader *reader)
{
    const wefti_pipe *pipe = &pause->replica->pipe;
    int64_t fields[FIELDS];
    size_t most = wefti_pipeline_get_state_bytes_most(pipe->pipeline);
    weft_status status = wefti_checkpoint_reader_get(
        reader, "inside", WEFT_DTYPE_I64, fields, FIELDS);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_get(reader, "live", WEFT_DTYPE_U8,
                                             pause->live, pipe->slots);
    }
    if (status != WEFT_OK) {
        return status;
    }
    bool ended = fields[POSITION] == (int64_t)pause->actions;
    if (fields[POSITION] < 0 || fields[POSITION] > (int64_t)pause->actions ||
        fields[STATE_BYTES] < 0 || (uint64_t)fields[STATE_BYTES] > most ||
        ended != (fields[STATE_BYTES] == 0) || fields[PLACE] <= 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "the snapshot stands at action %" PRId64
                           " of %zu, with %" PRId64 " bytes of %zu",
                           fields[POSITION], pause->actions,
                           fields[STATE_BYTES], most);
    }
    pause->mark =
        (wefti_pause_mark){.place = (size_t)fields[PLACE],
                           .position = (size_t)fields[POSITION],
                           .state_bytes = (size_t)fields[STATE_BYTES]};
    return WEFT_OK;
}

weft_status wefti_pause_get(wefti_pause *pause, wefti_checkpoint_reader *reader)
{
    weft_status status = read_mark(pause, reader);
    if (status == WEFT_OK) {
        wefti_pause_list(pause);
        status = wefti_pause_reserve(pause, wefti_pause_count_bytes(pause));
    }
    for (size_t i = pause->base_count;
         status == WEFT_OK && i < pause->piece_count; i++) {
        const wefti_pause_piece *piece = &pause->pieces[i];
        status = wefti_checkpoint_reader_get(reader, piece->name, piece->dtype,
                                             pause->copy + piece->at_bytes,
                                             piece->elems);
    }
    pause->pending = status == WEFT_OK;
    return status;
}
