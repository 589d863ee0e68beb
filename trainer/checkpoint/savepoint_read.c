/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/savepoint_read.c - the newest savepoint: found, checked by
 * all ranks, and only then taken over.
 */
#include "base/error.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/pause.h"
#include "trainer/checkpoint/placed_experts.h"
#include "trainer/ema.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static weft_status agree(wefti_replica *replica, weft_status own)
{
    return wefti_savepoint_agree(replica->config.comm, &replica->failed, own,
                                 "--resume");
}

/* What rank 0 has found, for all. */
typedef struct found {
    int64_t step;   /* -1: there is none */
    int64_t inside; /* 1: it stands inside the step after */
    wefti_checkpoint_done done;
} found;

/* After an error the step, and where it is, are still reported. */
static weft_status find_newest(const wefti_savepoint *point, found *found_out)
{
    const char *dir = point->dir;
    char inside[WEFTI_CHECKPOINT_PATH_BYTES];
    wefti_checkpoint_done between = {0}, within = {0};
    bool any_between = false, any_within = false;
    weft_status status = wefti_savepoint_inside(dir, inside);
    if (status != WEFT_OK) {
        return status;
    }
    weft_status inside_status =
        point->complete
            ? WEFT_OK
            : wefti_checkpoint_find_newest(inside, &any_within, &within);
    if (inside_status != WEFT_OK && !any_within) {
        return inside_status;
    }
    status = wefti_checkpoint_find_newest(dir, &any_between, &between);
    if (status != WEFT_OK && !any_between) {
        return status;
    }
    if (any_within && (!any_between || within.step >= between.step)) {
        /* Once more for the text of its error. */
        status = wefti_checkpoint_find_newest(inside, &any_within, &within);
        *found_out = (found){(int64_t)within.step, 1, within};
    } else if (any_between) {
        *found_out = (found){(int64_t)between.step, 0, between};
    }
    return status;
}

/* What must be the same, of a step of this run's model and text. */
static wefti_checkpoint_header make_expected(const wefti_savepoint *point,
                                             const wefti_data *data)
{
    wefti_checkpoint_header expect = {.step = 0};
    memcpy(expect.config_digest, point->digest, sizeof(expect.config_digest));
    memcpy(expect.data_hash, data->hash, sizeof(expect.data_hash));
    return expect;
}

/* A step, or a snapshot inside one, that a run like expect's may go on from. */
static weft_status open_step(const char *dir, const found *what,
                             const wefti_checkpoint_header *expect,
                             wefti_checkpoint_reader **reader_out)
{
    char inside[WEFTI_CHECKPOINT_PATH_BYTES];
    *reader_out = NULL;
    weft_status status = wefti_savepoint_inside(dir, inside);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_open(what->inside ? inside : dir,
                                              &what->done, reader_out);
    }
    return status == WEFT_OK
               ? wefti_checkpoint_reader_match(*reader_out, expect)
               : status;
}

/* Whether a run like expect's can go on from a step: all of it is there and
 * sound. */
static bool is_sound(const wefti_savepoint *point,
                     const wefti_checkpoint_header *expect, uint64_t step)
{
    found one = {.step = (int64_t)step};
    wefti_checkpoint_reader *reader = NULL;
    weft_status status =
        wefti_checkpoint_read_done(point->dir, step, &one.done);
    if (status == WEFT_OK) {
        status = open_step(point->dir, &one, expect, &reader);
    }
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_check(reader);
    }
    wefti_checkpoint_reader_close(reader);
    return status == WEFT_OK;
}

/* Adds to the error at hand which older step this run could go on from. */
static void name_older(const wefti_savepoint *point,
                       const wefti_checkpoint_header *expect,
                       const found *failed)
{
    char why[512], folder[WEFTI_CHECKPOINT_FOLDER_BYTES];
    uint64_t *steps = NULL;
    size_t count = 0;
    snprintf(why, sizeof(why), "%s", weft_error_text());
    weft_status status = wefti_checkpoint_list(point->dir, &steps, &count);
    int64_t good = -1;
    for (size_t i = 0; status == WEFT_OK && good < 0 && i < count; i++) {
        if ((int64_t)steps[i] < failed->step + failed->inside &&
            is_sound(point, expect, steps[i])) {
            good = (int64_t)steps[i];
        }
    }
    free(steps);
    wefti_error_keep("%s", why);
    if (good >= 0) {
        wefti_checkpoint_folder_name((uint64_t)failed->step,
                                     WEFTI_CHECKPOINT_SAVED, 0, folder);
        wefti_error_keep("%s; step %" PRId64 " there is complete: remove the "
                         "folder %s%s to go on from it",
                         why, good, failed->inside ? "inside/" : "", folder);
    }
}

/* A piece to where it lives, which the host may not reach. */
static weft_status get_piece(wefti_checkpoint_reader *reader,
                             const wefti_replica *replica,
                             const wefti_checkpoint_piece *piece)
{
    const size_t bytes = piece->elems * weft_dtype_bytes(piece->dtype);
    if (!replica->compute) {
        return wefti_checkpoint_reader_get(reader, piece, piece->live);
    }
    void *room = malloc(bytes);
    weft_status status =
        room ? wefti_checkpoint_reader_get(reader, piece, room)
             : wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes of %s",
                           bytes, piece->name);
    if (status == WEFT_OK) {
        status = wefti_replica_copy(replica, piece->live, room, bytes);
    }
    free(room);
    return status;
}

/* Of the step's average, if it has one. */
static bool find_average(const wefti_checkpoint_reader *reader,
                         const wefti_replica *replica,
                         const wefti_state_list *list, weft_dtype *dtype_out)
{
    return replica->ema && list->shares < list->count &&
           wefti_checkpoint_reader_has(reader, list->pieces[list->shares].name,
                                       dtype_out);
}

static const char *name_format(weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_F32    ? "fp32"
           : dtype == WEFT_DTYPE_BF16 ? "bf16"
                                      : "fp8";
}

/* Whether the step's average has the format that this run was asked for: no
 * step is damaged where it has another. */
static weft_status check_format(const wefti_checkpoint_reader *reader,
                                const wefti_replica *replica,
                                const wefti_state_list *list,
                                const wefti_savepoint *point,
                                const found *newest)
{
    weft_dtype saved;
    if (!find_average(reader, replica, list, &saved) ||
        saved == list->pieces[list->shares].dtype) {
        return WEFT_OK;
    }
    return wefti_error(
        WEFT_ERR_INVALID,
        "memory.ema: %s, but step %" PRId64 " in %s has an average of format "
        "%s; allowed is %s, or none, which goes on without that average",
        name_format(list->pieces[list->shares].dtype), newest->step, point->dir,
        name_format(saved), name_format(saved));
}

/* Of a step that was saved without an average it begins as its parameters. */
static weft_status get_averages(wefti_checkpoint_reader *reader,
                                const wefti_replica *replica,
                                const wefti_state_list *list, bool check)
{
    weft_status status = WEFT_OK;
    weft_dtype saved;
    if (!replica->ema || list->shares == list->count) {
        return WEFT_OK;
    }
    if (!find_average(reader, replica, list, &saved)) {
        return check ? WEFT_OK : wefti_ema_begin(replica->ema);
    }
    for (size_t i = list->shares; i < list->count && status == WEFT_OK; i++) {
        status = wefti_checkpoint_reader_get(
            reader, &list->pieces[i], check ? NULL : list->pieces[i].live);
    }
    return status;
}

/* Takes all that this rank needs, or only checks it. */
static weft_status get_all(wefti_checkpoint_reader *reader,
                           wefti_replica *replica, const wefti_state_list *list,
                           bool inside, bool check)
{
    const wefti_checkpoint_header *header =
        wefti_checkpoint_reader_header(reader);
    weft_status status = WEFT_OK;
    if (inside) {
        status = (check ? wefti_pause_check : wefti_pause_get)(replica->pause,
                                                               reader);
    }
    for (size_t i = 0; i < list->shares && status == WEFT_OK; i++) {
        status =
            check ? wefti_checkpoint_reader_get(reader, &list->pieces[i], NULL)
                  : get_piece(reader, replica, &list->pieces[i]);
    }
    if (status == WEFT_OK) {
        status = get_averages(reader, replica, list, check);
    }
    if (status == WEFT_OK && !check) {
        replica->step = header->step;
        replica->next_sequence = header->next_sequence;
    }
    return status;
}

/* What this rank needs, with experts where the step has them. */
static weft_status list_step(wefti_checkpoint_reader *reader,
                             wefti_replica *replica,
                             wefti_placed_experts *placed,
                             wefti_state_list *list)
{
    weft_status status = wefti_placed_experts_read(replica, reader, placed);
    if (status == WEFT_OK) {
        wefti_placed_experts_swap(replica, placed);
        status = wefti_state_list_shares(replica, true, list);
    }
    return status;
}

/* All ranks check what they need before any changes anything. */
static weft_status read_step(const wefti_savepoint *point,
                             wefti_replica *replica, const found *newest)
{
    const wefti_checkpoint_header expect =
        make_expected(point, replica->config.data);
    wefti_checkpoint_reader *reader = NULL;
    wefti_placed_experts placed = {0};
    wefti_state_list list = {0};
    bool asked = true; /* for what the step has */
    weft_status status = open_step(point->dir, newest, &expect, &reader);
    if (status == WEFT_OK) {
        status = list_step(reader, replica, &placed, &list);
    }
    if (status == WEFT_OK) {
        status = check_format(reader, replica, &list, point, newest);
        asked = status == WEFT_OK;
    }
    if (status == WEFT_OK) {
        status = get_all(reader, replica, &list, newest->inside, true);
    }
    if (status != WEFT_OK && asked) {
        name_older(point, &expect, newest);
    }
    status = agree(replica, status);
    if (status == WEFT_OK) {
        status = agree(replica,
                       get_all(reader, replica, &list, newest->inside, false));
    } else {
        wefti_placed_experts_swap(replica, &placed);
    }
    wefti_placed_experts_fini(&placed);
    wefti_state_list_fini(&list);
    wefti_checkpoint_reader_close(reader);
    return status;
}

/* There must be one. */
static weft_status find_some(const wefti_savepoint *point, found *found_out)
{
    const char *dir = point->dir;
    weft_status status = find_newest(point, found_out);
    return status == WEFT_OK && found_out->step < 0
               ? wefti_error(WEFT_ERR_INVALID, "--resume %s: %s", dir,
                             access(dir, F_OK) == 0
                                 ? "holds no complete checkpoint"
                                 : "there is no such folder")
               : status;
}

/* By rank 0. Where DONE is damaged, an older step is named. */
static weft_status choose(const wefti_savepoint *point, wefti_replica *replica,
                          bool must, found *newest)
{
    weft_status status = (must ? find_some : find_newest)(point, newest);
    if (status == WEFT_ERR_INVALID && newest->step >= 0) { /* damaged */
        const wefti_checkpoint_header expect =
            make_expected(point, replica->config.data);
        name_older(point, &expect, newest);
    }
    return status;
}

static weft_status read_newest(const wefti_savepoint *point,
                               wefti_replica *replica, bool must)
{
    found newest = {.step = -1};
    /* One rank chooses, also while another saves. */
    weft_status status = agree(
        replica,
        replica->rank == 0 ? choose(point, replica, must, &newest) : WEFT_OK);
    if (status == WEFT_OK) {
        status = weft_broadcast(&newest, &newest, sizeof(newest), WEFT_DTYPE_U8,
                                0, replica->config.comm, NULL);
    }
    if (status != WEFT_OK || newest.step < 0) {
        return status;
    }
    status = read_step(point, replica, &newest);
    if (status == WEFT_OK) {
        point->owner->origin.run = newest.done.origin.run;
        status = wefti_replica_round(replica);
    }
    if (status == WEFT_OK) {
        status = wefti_replica_gather(replica, WEFT_BUCKET_BLOCKING);
    }
    return status;
}

weft_status wefti_savepoint_read(const wefti_savepoint *point,
                                 wefti_replica *replica)
{
    return read_newest(point, replica, true);
}

weft_status wefti_savepoint_read_if_any(const wefti_savepoint *point,
                                        wefti_replica *replica)
{
    return read_newest(point, replica, false);
}

/* By rank 0, which checks the index alone. */
static weft_status look_up(const wefti_savepoint *point, const wefti_data *data,
                           wefti_savepoint_choices *choices_out)
{
    const wefti_checkpoint_header expect = make_expected(point, data);
    found newest = {.step = -1};
    wefti_checkpoint_reader *reader = NULL;
    weft_status status = find_some(point, &newest);
    if (status == WEFT_OK) {
        status = open_step(point->dir, &newest, &expect, &reader);
    }
    if (status == WEFT_OK) {
        const wefti_checkpoint_header *header =
            wefti_checkpoint_reader_header(reader);
        choices_out->step = newest.step;
        choices_out->inside = newest.inside;
        choices_out->chunks = (int64_t)header->chunks;
        memcpy(choices_out->name, header->schedule, sizeof(choices_out->name));
        status = wefti_overlap_verdict_unpack(header->overlap,
                                              &choices_out->overlap);
    } else if (newest.step >= 0) {
        name_older(point, &expect, &newest);
    }
    wefti_checkpoint_reader_close(reader);
    return status;
}

weft_status wefti_savepoint_read_choices(const wefti_savepoint *point,
                                         weft_comm *comm,
                                         const wefti_data *data,
                                         int *failed_out,
                                         wefti_savepoint_choices *choices_out)
{
    weft_status status = WEFT_OK;
    memset(choices_out, 0, sizeof(*choices_out));
    if (weft_comm_get_rank(comm) == 0) {
        status = look_up(point, data, choices_out);
        choices_out->name[sizeof(choices_out->name) - 1] = '\0';
    }
    status = wefti_savepoint_agree(comm, failed_out, status, "--resume");
    return status == WEFT_OK
               ? weft_broadcast(choices_out, choices_out, sizeof(*choices_out),
                                WEFT_DTYPE_U8, 0, comm, NULL)
               : status;
}
