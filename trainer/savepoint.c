/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/savepoint.c - what of a replica is saved, and the steps that ranks
 * take together around the files.
 *
 *   sections of rank r: "counters", "layout", then for every bucket b its share
 * of values, first and second moments: "values.b", "first.b", "second.b"
 */
#include "trainer/savepoint.h"

#include "base/error.h"
#include "trainer/reshard.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNTERS = WEFTI_SAVEPOINT_COUNTERS, PARTS = WEFTI_SAVEPOINT_PARTS };

static const char *const part_names[PARTS] = {"values", "first", "second"};

/* A bucket's share of one part of the state. */
real *wefti_savepoint_part(wefti_replica *replica, size_t bucket, size_t part)
{
    size_t own = wefti_optimizer_own(&replica->optimizer, bucket);
    switch (part) {
    case 0:
        return replica->values +
               wefti_parameters_share(&replica->plan, bucket, replica->share);
    case 1:
        return replica->optimizer.first + own;
    default:
        return replica->optimizer.second + own;
    }
}

void wefti_savepoint_part_name(char name[WEFTI_CHECKPOINT_NAME_BYTES],
                               size_t bucket, size_t part)
{
    snprintf(name, WEFTI_CHECKPOINT_NAME_BYTES, "%s.%zu", part_names[part],
             bucket);
}

/*
 * What every rank's verdict comes to; also a barrier. A rank that has failed
 * keeps its own error, whatever becomes of the others meanwhile.
 */
static weft_status agree(wefti_replica *replica, weft_status own,
                         const char *what)
{
    char why[512];
    snprintf(why, sizeof(why), "%s", weft_error_text());
    /* The first of those that failed has the most. */
    int32_t failed =
        own == WEFT_OK ? 0 : (int32_t)(replica->nranks - replica->rank);
    weft_status status =
        weft_allreduce(&failed, &failed, 1, WEFT_DTYPE_I32, WEFT_REDOP_MAX,
                       replica->config.comm, NULL);
    if (status == WEFT_OK && failed) {
        replica->failed = (int)replica->nranks - failed + 1;
    }
    if (own != WEFT_OK) {
        return wefti_error(own, "%s", why);
    }
    if (status != WEFT_OK || !failed) {
        return status;
    }
    return wefti_error(WEFT_ERR_SYSTEM,
                       "%s: rank %d has failed, see its message", what,
                       replica->failed - 1);
}

weft_status wefti_savepoint_try(const wefti_savepoint *point,
                                wefti_replica *replica)
{
    weft_status status =
        replica->rank == 0 ? wefti_checkpoint_try(point->dir, 0) : WEFT_OK;
    status = agree(replica, status, "checkpoint.dir");
    if (status != WEFT_OK) {
        return status;
    }
    if (replica->rank > 0) {
        status = wefti_checkpoint_try(point->dir, (uint32_t)replica->rank);
    }
    return agree(replica, status, "checkpoint.dir");
}

wefti_checkpoint_header wefti_savepoint_header(const wefti_savepoint *point,
                                               const wefti_replica *replica,
                                               uint64_t step)
{
    wefti_checkpoint_header header = {.step = step,
                                      .nranks = (uint32_t)replica->nranks,
                                      .rank = (uint32_t)replica->rank};
    memcpy(header.config_digest, point->digest, sizeof(header.config_digest));
    memcpy(header.data_hash, replica->config.data->hash,
           sizeof(header.data_hash));
    return header;
}

/* How the model is cut, and which of it this rank has. */
enum { LAYOUT_RANKS, LAYOUT_STAGES, LAYOUT_DIRECTIONS, LAYOUT_PARTS, LAYOUT };

static void describe_layout(const wefti_replica *replica,
                            int64_t layout[LAYOUT])
{
    const wefti_parameters *plan = &replica->plan;
    const weft_schedule_info *info = &replica->pipe.info;
    bool piped = wefti_replica_is_piped(replica);
    uint64_t mixed = 14695981039346656037u; /* FNV-1a, a number at a time */
    for (size_t i = 0; i < 2 * plan->part_count; i++) {
        const wefti_part *part = &plan->parts[i / 2];
        mixed ^= i % 2 ? part->layers_end : part->first_layer;
        mixed *= 1099511628211u;
    }
    layout[LAYOUT_RANKS] = piped ? info->ranks : 1;
    layout[LAYOUT_STAGES] = piped ? info->stages : 1;
    layout[LAYOUT_DIRECTIONS] = piped ? info->directions : 1;
    layout[LAYOUT_PARTS] = (int64_t)(mixed >> 1);
}

weft_status wefti_savepoint_check_layout(wefti_checkpoint_reader *reader,
                                         const wefti_replica *replica)
{
    int64_t saved[LAYOUT], own[LAYOUT];
    describe_layout(replica, own);
    weft_status status = wefti_checkpoint_reader_get(
        reader, "layout", WEFT_DTYPE_I64, saved, LAYOUT);
    if (status != WEFT_OK || memcmp(saved, own, sizeof(own)) == 0) {
        return status;
    }
    return wefti_error(
        WEFT_ERR_INVALID,
        "the checkpoint is of a model cut into %" PRId64 " stages for "
        "pipelines of %" PRId64 " ranks, this run cuts it into %" PRId64
        " for %" PRId64 "%s: resume with the same "
        "pipeline_model_parallel_size, "
        "virtual_pipeline_model_parallel_size and kind of schedule",
        saved[LAYOUT_STAGES], saved[LAYOUT_RANKS], own[LAYOUT_STAGES],
        own[LAYOUT_RANKS],
        memcmp(saved, own, LAYOUT_PARTS * sizeof(*own)) == 0
            ? ", on other ranks"
            : "");
}

static weft_status add_sections(wefti_checkpoint_writer *writer,
                                wefti_replica *replica)
{
    int64_t counters[COUNTERS] = {(int64_t)replica->step,
                                  (int64_t)replica->next_sequence};
    weft_status status = wefti_checkpoint_writer_add(
        writer, "counters", WEFT_DTYPE_I64, counters, COUNTERS);
    int64_t layout[LAYOUT];
    describe_layout(replica, layout);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_writer_add(writer, "layout", WEFT_DTYPE_I64,
                                             layout, LAYOUT);
    }
    for (size_t i = 0; i < PARTS * replica->plan.bucket_count; i++) {
        if (status != WEFT_OK) {
            break;
        }
        char name[WEFTI_CHECKPOINT_NAME_BYTES];
        wefti_savepoint_part_name(name, i / PARTS, i % PARTS);
        status = wefti_checkpoint_writer_add(
            writer, name, WEFTI_REAL_DTYPE,
            wefti_savepoint_part(replica, i / PARTS, i % PARTS),
            replica->plan.buckets[i / PARTS].share_elems);
    }
    return status;
}

static weft_status write_own(const wefti_savepoint *point,
                             wefti_replica *replica)
{
    wefti_checkpoint_header header =
        wefti_savepoint_header(point, replica, replica->step);
    wefti_checkpoint_writer *writer;
    weft_status status =
        wefti_checkpoint_writer_open(point->dir, &header, &writer);
    if (status != WEFT_OK) {
        return status;
    }
    status = add_sections(writer, replica);
    if (status != WEFT_OK) {
        wefti_checkpoint_writer_abort(writer);
        return status;
    }
    return wefti_checkpoint_writer_close(writer);
}

/* A state that nobody could go on from takes no good one's place. */
static weft_status check_finite(wefti_replica *replica)
{
    for (size_t i = 0; i < PARTS * replica->plan.bucket_count; i++) {
        const real *part = wefti_savepoint_part(replica, i / PARTS, i % PARTS);
        size_t elems = replica->plan.buckets[i / PARTS].share_elems;
        for (size_t j = 0; j < elems; j++) {
            if (!isfinite(part[j])) {
                return wefti_error(
                    WEFT_ERR_INVALID,
                    "step %" PRIu64 ": %s hold a value that is not finite: "
                    "training has diverged, and this state is not saved; lower "
                    "train.lr",
                    replica->step, part_names[i % PARTS]);
            }
        }
    }
    return WEFT_OK;
}

weft_status wefti_savepoint_write(const wefti_savepoint *point,
                                  wefti_replica *replica)
{
    weft_status status = wefti_replica_settle(replica);
    if (status != WEFT_OK) {
        return status;
    }
    status = agree(replica, check_finite(replica), "checkpoint");
    if (status != WEFT_OK) {
        return status;
    }
    if (replica->rank == 0) {
        status = wefti_checkpoint_begin(point->dir, replica->step);
    }
    status = agree(replica, status, "checkpoint");
    if (status == WEFT_OK) {
        status = agree(replica, write_own(point, replica), "checkpoint");
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (replica->rank == 0) {
        status = wefti_checkpoint_commit(
            point->dir, replica->step, (uint32_t)replica->nranks, point->keep);
    }
    return agree(replica, status, "checkpoint");
}

/* What rank 0 has found, for all. */
typedef struct found {
    int64_t step;   /* -1: there is none */
    int64_t nranks; /* that saved it */
} found;

static weft_status find_newest(const char *dir, found *found_out)
{
    uint64_t *steps;
    size_t count;
    weft_status status = wefti_checkpoint_list(dir, &steps, &count);
    if (status != WEFT_OK || count == 0) {
        return status;
    }
    uint32_t nranks;
    status = wefti_checkpoint_count_ranks(dir, steps[0], &nranks);
    *found_out = (found){(int64_t)steps[0], (int64_t)nranks};
    free(steps);
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

/* Adds to the error at hand which older step this rank could go on from. */
static void name_older(const wefti_savepoint *point,
                       const wefti_replica *replica, uint64_t failed_step)
{
    char why[512];
    uint64_t *steps = NULL;
    size_t count = 0;
    snprintf(why, sizeof(why), "%s", weft_error_text());
    weft_status status = wefti_checkpoint_list(point->dir, &steps, &count);
    uint64_t good = 0;
    for (size_t i = 0; status == WEFT_OK && good == 0 && i < count; i++) {
        wefti_checkpoint_header header =
            wefti_savepoint_header(point, replica, steps[i]);
        wefti_checkpoint_reader *reader = NULL;
        if (steps[i] < failed_step &&
            wefti_checkpoint_reader_open(point->dir, &header, &reader) ==
                WEFT_OK &&
            wefti_checkpoint_reader_check(reader) == WEFT_OK) {
            good = steps[i];
        }
        wefti_checkpoint_reader_close(reader);
    }
    free(steps);
    wefti_error_keep("%s", why);
    if (good > 0) {
        wefti_error_keep("%s; step %" PRIu64 " there is complete: remove the "
                         "folder step_%08" PRIu64 " to go on from it",
                         why, good, failed_step);
    }
}

/* Everybody opens and checks before anybody changes anything. */
static weft_status read_own(const wefti_savepoint *point,
                            wefti_replica *replica, uint64_t step)
{
    wefti_checkpoint_header header =
        wefti_savepoint_header(point, replica, step);
    wefti_checkpoint_reader *reader = NULL;
    weft_status status =
        wefti_checkpoint_reader_open(point->dir, &header, &reader);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_check(reader);
    }
    if (status != WEFT_OK) {
        name_older(point, replica, step);
    } else {
        status = wefti_savepoint_check_layout(reader, replica);
    }
    status = agree(replica, status, "--resume");
    if (status == WEFT_OK) {
        status = agree(replica, get_sections(reader, replica), "--resume");
    }
    if (reader) {
        wefti_checkpoint_reader_close(reader);
    }
    return status;
}

static weft_status read_newest(const wefti_savepoint *point,
                               wefti_replica *replica, bool must)
{
    found newest = {-1, 0};
    weft_status status = WEFT_OK;
    if (replica->rank == 0) { /* one rank chooses, also while another saves */
        status = find_newest(point->dir, &newest);
        if (status == WEFT_OK && newest.step < 0 && must) {
            status = wefti_error(
                WEFT_ERR_INVALID, "--resume %s: %s", point->dir,
                access(point->dir, F_OK) == 0 ? "holds no complete checkpoint"
                                              : "there is no such folder");
        }
    }
    status = agree(replica, status, "--resume");
    if (status == WEFT_OK) {
        status = weft_broadcast(&newest, &newest, 2, WEFT_DTYPE_I64, 0,
                                replica->config.comm, NULL);
    }
    if (status != WEFT_OK || newest.step < 0) {
        return status;
    }
    if (point->elastic && newest.nranks != (int64_t)replica->nranks) {
        const wefti_reshard job = {point, replica, (uint64_t)newest.step,
                                   (uint32_t)newest.nranks};
        status = agree(replica, wefti_reshard_check(&job), "--resume");
        if (status == WEFT_OK) {
            status = agree(replica, wefti_reshard_read(&job), "--resume");
        }
    } else {
        status = read_own(point, replica, (uint64_t)newest.step);
    }
    return status == WEFT_OK ? wefti_replica_collect(replica) : status;
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
