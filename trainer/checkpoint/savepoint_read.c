/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/savepoint_read.c - the newest savepoint: found, checked by
 * all ranks, and only then taken over.
 */
#include "base/check.h"
#include "base/error.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/pause.h"
#include "trainer/checkpoint/reshard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNTERS = WEFTI_SAVEPOINT_COUNTERS, PARTS = WEFTI_SAVEPOINT_PARTS };

static weft_status agree(wefti_replica *replica, weft_status own)
{
    return wefti_savepoint_agree(replica->config.comm, &replica->failed, own,
                                 "--resume");
}

/* What rank 0 has found, for all. */
typedef struct found {
    int64_t step;   /* -1: there is none */
    int64_t nranks; /* that saved it */
    int64_t inside; /* 1: it stands inside the step after */
    wefti_checkpoint_origin origin;
} found;

/* After an error the step, and where it is, are still reported. */
static weft_status find_newest(const char *dir, found *found_out)
{
    char inside[WEFTI_CHECKPOINT_PATH_BYTES];
    wefti_checkpoint_done between = {0}, within = {0};
    bool any_between = false, any_within = false;
    weft_status status = wefti_savepoint_inside(dir, inside);
    if (status != WEFT_OK) {
        return status;
    }
    weft_status inside_status =
        wefti_checkpoint_find_newest(inside, &any_within, &within);
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
        *found_out =
            (found){(int64_t)within.step, within.nranks, 1, within.origin};
    } else if (any_between) {
        *found_out =
            (found){(int64_t)between.step, between.nranks, 0, between.origin};
    }
    return status;
}

static weft_status get_sections(wefti_checkpoint_reader *reader,
                                wefti_replica *replica)
{
    int64_t counters[COUNTERS];
    weft_status status = wefti_checkpoint_reader_get(
        reader, "counters", WEFT_DTYPE_I64, counters, COUNTERS);
    for (size_t i = 0; i < PARTS * replica->plan.bucket_count; i++) {
        if (status != WEFT_OK) {
            return status;
        }
        char name[WEFTI_CHECKPOINT_NAME_BYTES];
        wefti_savepoint_part_name(name, i / PARTS, i % PARTS);
        status = wefti_checkpoint_reader_get(
            reader, name, WEFTI_REAL_DTYPE,
            wefti_savepoint_part(replica, i / PARTS, i % PARTS),
            replica->plan.buckets[i / PARTS].share_elems);
    }
    if (status == WEFT_OK) {
        replica->step = (uint64_t)counters[0];
        replica->next_sequence = (uint64_t)counters[1];
    }
    return status;
}

/* Whether a run like expect's can go on from a step: every rank's file is there
 * and sound, and all are of one run. */
static bool is_sound(const wefti_savepoint *point,
                     const wefti_checkpoint_header *expect, uint64_t step)
{
    wefti_checkpoint_header header = *expect;
    wefti_checkpoint_done done;
    weft_status status = wefti_checkpoint_read_done(point->dir, step, &done);
    if (status != WEFT_OK ||
        (done.nranks != expect->nranks && !point->elastic)) {
        return false;
    }
    header.step = step;
    header.nranks = done.nranks;
    header.origin = done.origin;
    for (header.rank = 0; status == WEFT_OK && header.rank < done.nranks;
         header.rank++) {
        wefti_checkpoint_reader *reader = NULL;
        status = wefti_checkpoint_reader_open(point->dir, &header, &reader);
        if (status == WEFT_OK) {
            status = wefti_checkpoint_reader_check(reader);
        }
        wefti_checkpoint_reader_close(reader);
    }
    return status == WEFT_OK;
}

/* Adds to the error at hand which older step this run could go on from; of the
 * failed one is expect. */
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

/* Whether a sound file is one that this run can go on from. */
static weft_status check_file(wefti_checkpoint_reader *reader,
                              const wefti_replica *replica, bool inside)
{
    weft_status status = wefti_savepoint_check_layout(reader, replica);
    if (status != WEFT_OK || !inside) {
        return status;
    }
    WEFTI_ASSERT(replica->pause); /* a replica with a cut has one */
    return wefti_pause_check(replica->pause, reader);
}

/* All ranks stand at one cut: a step has several, and files of one step may
 * have been put together from two of them. */
static weft_status check_together(wefti_checkpoint_reader *reader,
                                  wefti_replica *replica)
{
    int64_t own = 0, first = 0;
    weft_status got = wefti_pause_find_place(reader, &own);
    first = own;
    weft_status status = weft_broadcast(&first, &first, 1, WEFT_DTYPE_I64, 0,
                                        replica->config.comm, NULL);
    status = got != WEFT_OK ? got : status;
    return status != WEFT_OK || first == own
               ? status
               : wefti_error(WEFT_ERR_INVALID,
                             "the snapshot of rank %zu inside the step stands "
                             "after %" PRId64 " actions of all ranks, rank 0's "
                             "after %" PRId64 ": they are not of one moment",
                             replica->rank, own, first);
}

static weft_status get_all(wefti_checkpoint_reader *reader,
                           wefti_replica *replica, bool inside)
{
    weft_status status =
        inside ? wefti_pause_get(replica->pause, reader) : WEFT_OK;
    return status == WEFT_OK ? get_sections(reader, replica) : status;
}

/* All ranks open and check before any changes anything. */
static weft_status read_own(const wefti_savepoint *point,
                            wefti_replica *replica, const found *newest)
{
    char inside[WEFTI_CHECKPOINT_PATH_BYTES];
    wefti_checkpoint_header header = wefti_savepoint_header(
        point, replica, (uint64_t)newest->step, &newest->origin);
    wefti_checkpoint_reader *reader = NULL;
    weft_status status = wefti_savepoint_inside(point->dir, inside);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_open(
            newest->inside ? inside : point->dir, &header, &reader);
    }
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_check(reader);
    }
    bool sound = status == WEFT_OK;
    if (sound) {
        status = check_file(reader, replica, newest->inside);
    }
    if (status != WEFT_OK && (newest->inside || !sound)) {
        name_older(point, &header, newest);
    }
    status = agree(replica, status);
    if (status == WEFT_OK && newest->inside) {
        status = check_together(reader, replica);
        if (status == WEFT_ERR_INVALID) {
            name_older(point, &header, newest);
        }
        status = agree(replica, status);
    }
    if (status == WEFT_OK) {
        status = agree(replica, get_all(reader, replica, newest->inside));
    }
    if (reader) {
        wefti_checkpoint_reader_close(reader);
    }
    return status;
}

/* There must be one. */
static weft_status find_some(const char *dir, found *found_out)
{
    weft_status status = find_newest(dir, found_out);
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
    weft_status status = (must ? find_some : find_newest)(point->dir, newest);
    if (status == WEFT_ERR_INVALID && newest->step >= 0) { /* damaged */
        wefti_checkpoint_header header = wefti_savepoint_header(
            point, replica, (uint64_t)newest->step, &newest->origin);
        name_older(point, &header, newest);
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
    if (point->elastic && !newest.inside &&
        newest.nranks != (int64_t)replica->nranks) {
        const wefti_reshard job = {point, replica, (uint64_t)newest.step,
                                   (uint32_t)newest.nranks, newest.origin};
        wefti_checkpoint_header header = wefti_savepoint_header(
            point, replica, (uint64_t)newest.step, &newest.origin);
        status = wefti_reshard_check(&job);
        if (status != WEFT_OK) {
            name_older(point, &header, &newest);
        }
        status = agree(replica, status);
        if (status == WEFT_OK) {
            status = agree(replica, wefti_reshard_read(&job));
        }
    } else {
        status = read_own(point, replica, &newest);
    }
    if (status == WEFT_OK) {
        point->owner->origin.run = newest.origin.run;
        status = wefti_replica_collect(replica);
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

/* By rank 0, out of its own file, in which section by section is checked. */
static weft_status look_up(const wefti_savepoint *point, int nranks,
                           const wefti_data *data,
                           wefti_savepoint_schedule *schedule_out)
{
    char inside[WEFTI_CHECKPOINT_PATH_BYTES];
    found newest = {.step = -1};
    wefti_checkpoint_reader *reader = NULL;
    weft_status status = find_some(point->dir, &newest);
    wefti_checkpoint_header header = {.step = (uint64_t)newest.step,
                                      .nranks = (uint32_t)nranks,
                                      .origin = newest.origin};
    memcpy(header.config_digest, point->digest, sizeof(header.config_digest));
    memcpy(header.data_hash, data->hash, sizeof(header.data_hash));
    if (status == WEFT_ERR_INVALID && newest.step >= 0) { /* damaged */
        name_older(point, &header, &newest);
    }
    if (status == WEFT_OK) {
        status = wefti_savepoint_inside(point->dir, inside);
    }
    if (status != WEFT_OK) {
        return status;
    }
    schedule_out->step = newest.step;
    schedule_out->inside = newest.inside;
    status = wefti_checkpoint_reader_open(newest.inside ? inside : point->dir,
                                          &header, &reader);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_get(reader, "schedule", WEFT_DTYPE_U8,
                                             schedule_out->name,
                                             sizeof(schedule_out->name));
    }
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_get(reader, "chunks", WEFT_DTYPE_I64,
                                             &schedule_out->chunks, 1);
    }
    if (status != WEFT_OK) {
        name_older(point, &header, &newest);
    }
    wefti_checkpoint_reader_close(reader);
    return status;
}

weft_status
wefti_savepoint_read_schedule(const wefti_savepoint *point, weft_comm *comm,
                              const wefti_data *data, int *failed_out,
                              wefti_savepoint_schedule *schedule_out)
{
    weft_status status = WEFT_OK;
    memset(schedule_out, 0, sizeof(*schedule_out));
    if (weft_comm_get_rank(comm) == 0) {
        status = look_up(point, weft_comm_get_nranks(comm), data, schedule_out);
        schedule_out->name[sizeof(schedule_out->name) - 1] = '\0';
    }
    status = wefti_savepoint_agree(comm, failed_out, status, "--resume");
    return status == WEFT_OK ? weft_broadcast(schedule_out, schedule_out,
                                              sizeof(*schedule_out),
                                              WEFT_DTYPE_U8, 0, comm, NULL)
                             : status;
}
