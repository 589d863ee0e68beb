/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/pause_file.c - the sections of a snapshot: from the copy
 * to disk, by the saver's thread beside the training, and from disk into the
 * copy.
 */
#include "trainer/checkpoint/pause.h"

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

static weft_status add_sections(const wefti_savepoint_save *save,
                                wefti_checkpoint_writer *writer)
{
    const wefti_pause *pause = save->replica->pause;
    const wefti_pipe *pipe = &save->replica->pipe;
    int64_t fields[FIELDS];
    describe(pause, fields);
    weft_status status = wefti_checkpoint_writer_add(
        writer, "inside", WEFT_DTYPE_I64, fields, FIELDS);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_writer_add(writer, "live", WEFT_DTYPE_U8,
                                             pause->live, pipe->slots);
    }
    for (size_t i = 0; i < pause->piece_count && status == WEFT_OK; i++) {
        const wefti_pause_piece *piece = &pause->pieces[i];
        status = wefti_checkpoint_writer_add(writer, piece->name, piece->dtype,
                                             save->copy + piece->at_bytes,
                                             piece->elems);
    }
    return status;
}

static bool is_finite(const wefti_savepoint_save *save,
                      const wefti_pause_piece *piece)
{
    const unsigned char *copy = save->copy + piece->at_bytes;
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
 * As with any savepoint: no run could go on from such a state, nor from inside
 * a step whose losses already show where it leads.
 */
static weft_status check_finite(const wefti_savepoint_save *save)
{
    const wefti_pause *pause = save->replica->pause;
    for (size_t i = 0; i <= pause->base_count; i++) {
        bool begun = i == pause->base_count; /* by now: "losses" */
        if (!is_finite(save, &pause->pieces[i])) {
            return wefti_savepoint_not_finite(save->step + begun,
                                              begun ? "losses" : "values");
        }
    }
    return WEFT_OK;
}

void wefti_pause_start(wefti_pause *pause)
{
    wefti_savepoint_save save = {.point = &pause->point,
                                 .replica = pause->replica,
                                 .step = pause->mark.step,
                                 .next_sequence = pause->mark.next_sequence,
                                 .inside = true,
                                 .check = check_finite,
                                 .add = add_sections};
    wefti_saver_start(pause->replica->saver, &save);
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

weft_status wefti_pause_find_place(wefti_checkpoint_reader *reader,
                                   int64_t *place_out)
{
    int64_t fields[FIELDS] = {0};
    weft_status status = wefti_checkpoint_reader_get(
        reader, "inside", WEFT_DTYPE_I64, fields, FIELDS);
    *place_out = fields[PLACE];
    return status;
}

/* What a damaged number would make of the copy is refused before. */
static weft_status read_mark(wefti_pause *pause,
                             wefti_checkpoint_reader *reader)
{
    const wefti_pipe *pipe = &pause->replica->pipe;
    int64_t fields[FIELDS];
    size_t most = weft_pipeline_get_state_bytes_most(pipe->pipeline);
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
    wefti_saver *saver = pause->replica->saver;
    weft_status status = read_mark(pause, reader);
    if (status == WEFT_OK) {
        wefti_pause_list(pause);
        status = wefti_saver_reserve(saver, wefti_pause_count_bytes(pause));
    }
    for (size_t i = pause->base_count;
         status == WEFT_OK && i < pause->piece_count; i++) {
        const wefti_pause_piece *piece = &pause->pieces[i];
        status = wefti_checkpoint_reader_get(reader, piece->name, piece->dtype,
                                             saver->copy + piece->at_bytes,
                                             piece->elems);
    }
    pause->pending = status == WEFT_OK;
    return status;
}
