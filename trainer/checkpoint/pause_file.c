/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/pause_file.c - a snapshot: from the copy to disk, by the
 * saver's thread beside the training, and from disk into the copy.
 */
#include "trainer/checkpoint/pause.h"

#include "base/error.h"

#include <inttypes.h>
#include <string.h>

/* From here on the fields must be the same. */
enum { SAME = WEFTI_PAUSE_LISTS, FIELDS = WEFTI_PAUSE_FIELDS };

void wefti_pause_describe(const wefti_pause *pause,
                          int64_t fields[WEFTI_PAUSE_FIELDS])
{
    const wefti_replica *replica = pause->replica;
    fields[WEFTI_PAUSE_PLACE] = (int64_t)pause->mark.place;
    fields[WEFTI_PAUSE_POSITION] = (int64_t)pause->mark.position;
    fields[WEFTI_PAUSE_STATE_BYTES] = (int64_t)pause->mark.state_bytes;
    fields[WEFTI_PAUSE_LISTS] = (int64_t)(pause->digest >> 1);
    fields[WEFTI_PAUSE_MICROBATCHES] = replica->pipe.info.microbatches;
    fields[WEFTI_PAUSE_MICRO_BATCH] = (int64_t)replica->config.micro_batch;
    fields[WEFTI_PAUSE_GLOBAL_BATCH] = (int64_t)replica->config.global_batch;
    fields[WEFTI_PAUSE_SLOTS] = (int64_t)replica->pipe.slots;
}

void wefti_pause_start(wefti_pause *pause)
{
    wefti_savepoint_save save = {.point = &pause->point,
                                 .replica = pause->replica,
                                 .step = pause->mark.step,
                                 .next_sequence = pause->mark.next_sequence,
                                 .inside = true,
                                 .list = pause->list,
                                 /* and the losses, which come next */
                                 .finite = pause->base_count + 1};
    wefti_saver_start(pause->replica->saver, &save);
}

/* ---- reading --------------------------------------------------------------
 */

static weft_status get_fields(const wefti_pause *pause,
                              wefti_checkpoint_reader *reader,
                              int64_t fields[FIELDS])
{
    wefti_checkpoint_piece piece;
    wefti_pause_own(pause, "fields", WEFT_DTYPE_I64, fields, FIELDS, &piece);
    return wefti_checkpoint_reader_get(reader, &piece, fields);
}

static const char *name_of(const char *schedule, size_t ranks)
{
    return ranks > 1 ? schedule : "no pipeline";
}

static weft_status check_fields(const wefti_pause *pause,
                                wefti_checkpoint_reader *reader)
{
    const wefti_checkpoint_header *header =
        wefti_checkpoint_reader_header(reader);
    int64_t saved[FIELDS], own[FIELDS];
    wefti_pause_describe(pause, own);
    weft_status status = get_fields(pause, reader, saved);
    if (status != WEFT_OK ||
        memcmp(saved + SAME, own + SAME, (FIELDS - SAME) * sizeof(*own)) == 0) {
        return status;
    }
    return wefti_error(
        WEFT_ERR_INVALID,
        "the snapshot was taken inside a step of %s, %" PRId64
        " micro-batches for a pipeline, %" PRId64 " sequences each, %" PRId64
        " a step; this run has %s, %" PRId64 ", %" PRId64 ", %" PRId64
        "%s: inside a step it goes on only with the same schedule and batch",
        name_of(header->schedule, header->pipeline),
        saved[WEFTI_PAUSE_MICROBATCHES], saved[WEFTI_PAUSE_MICRO_BATCH],
        saved[WEFTI_PAUSE_GLOBAL_BATCH],
        name_of(pause->replica->pipe.info.name,
                (size_t)pause->replica->pipe.info.ranks),
        own[WEFTI_PAUSE_MICROBATCHES], own[WEFTI_PAUSE_MICRO_BATCH],
        own[WEFTI_PAUSE_GLOBAL_BATCH],
        memcmp(saved + WEFTI_PAUSE_MICROBATCHES, own + WEFTI_PAUSE_MICROBATCHES,
               (FIELDS - WEFTI_PAUSE_MICROBATCHES) * sizeof(*own)) == 0
            ? ", and another list of actions, or other ranks that share "
              "layers, sequences or experts"
            : "");
}

/* What a damaged number would make of the copy is refused before. */
static weft_status read_mark(wefti_pause *pause,
                             wefti_checkpoint_reader *reader)
{
    const wefti_pipe *pipe = &pause->replica->pipe;
    int64_t fields[FIELDS];
    wefti_checkpoint_piece live;
    size_t most = weft_pipeline_get_state_bytes_most(pipe->pipeline);
    wefti_pause_own(pause, "live", WEFT_DTYPE_U8, pause->live, pipe->slots,
                    &live);
    weft_status status = get_fields(pause, reader, fields);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_get(reader, &live, pause->live);
    }
    if (status != WEFT_OK) {
        return status;
    }
    const int64_t position = fields[WEFTI_PAUSE_POSITION];
    const int64_t state_bytes = fields[WEFTI_PAUSE_STATE_BYTES];
    bool ended = position == (int64_t)pause->actions;
    if (position < 0 || position > (int64_t)pause->actions || state_bytes < 0 ||
        (uint64_t)state_bytes > most || ended != (state_bytes == 0) ||
        fields[WEFTI_PAUSE_PLACE] <= 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "the snapshot stands at action %" PRId64
                           " of %zu, with %" PRId64 " bytes of %zu",
                           position, pause->actions, state_bytes, most);
    }
    pause->mark = (wefti_pause_mark){.place = (size_t)fields[WEFTI_PAUSE_PLACE],
                                     .position = (size_t)position,
                                     .state_bytes = (size_t)state_bytes};
    return WEFT_OK;
}

/* Into copy; NULL: it is only checked. */
static weft_status read_pieces(const wefti_pause *pause,
                               wefti_checkpoint_reader *reader,
                               unsigned char *copy)
{
    weft_status status = WEFT_OK;
    for (size_t i = pause->base_count;
         status == WEFT_OK && i < pause->list.count; i++) {
        const wefti_checkpoint_piece *piece = &pause->list.pieces[i];
        status = wefti_checkpoint_reader_get(
            reader, piece, copy ? copy + piece->at_bytes : NULL);
    }
    return status;
}

weft_status wefti_pause_check(wefti_pause *pause,
                              wefti_checkpoint_reader *reader)
{
    uint64_t saved = wefti_checkpoint_reader_header(reader)->nranks;
    weft_status status =
        saved == pause->replica->nranks
            ? check_fields(pause, reader)
            : wefti_error(WEFT_ERR_INVALID,
                          "the snapshot was taken inside a step of %" PRIu64
                          " ranks, this run has %zu: inside a step it goes on "
                          "only on as many",
                          saved, pause->replica->nranks);
    if (status == WEFT_OK) {
        status = read_mark(pause, reader);
    }
    if (status == WEFT_OK) {
        wefti_pause_list(pause);
        status = read_pieces(pause, reader, NULL);
    }
    return status;
}

weft_status wefti_pause_get(wefti_pause *pause, wefti_checkpoint_reader *reader)
{
    wefti_saver *saver = pause->replica->saver;
    weft_status status =
        wefti_saver_reserve(saver, wefti_state_count_bytes(&pause->list));
    if (status == WEFT_OK) {
        status = read_pieces(pause, reader, saver->copy);
    }
    pause->pending = status == WEFT_OK;
    return status;
}
