/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/savepoint.c - what of a replica is saved, and the steps
 * that ranks take together around the files.
 *
 * The sections of a rank's file are "counters", "layout", "schedule" and its
 * "chunks", then for every bucket b its share of values, first and second
 * moments: "values.b", "first.b", "second.b".
 */
#include "trainer/checkpoint/savepoint.h"

#include "base/clock.h"
#include "base/error.h"
#include "trainer/checkpoint/saver.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COUNTERS = WEFTI_SAVEPOINT_COUNTERS, PARTS = WEFTI_SAVEPOINT_PARTS };
enum { VALUES }; /* the first of them */

static const char *const part_names[PARTS] = {"values", "first", "second"};

/* A bucket's share of one part of the state. */
real *wefti_savepoint_part(wefti_replica *replica, size_t bucket, size_t part)
{
    size_t own = wefti_optimizer_own(&replica->optimizer, bucket);
    switch (part) {
    case VALUES:
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

wefti_checkpoint_header
wefti_savepoint_header(const wefti_savepoint *point,
                       const wefti_replica *replica, uint64_t step,
                       const wefti_checkpoint_origin *origin)
{
    wefti_checkpoint_header header = {.step = step,
                                      .origin = *origin,
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
    uint64_t mixed = 14695981039346656037u; /* FNV-1a, a number at a time */
    for (size_t i = 0; i < 2 * plan->part_count; i++) {
        const wefti_layer_run *part = &plan->parts[i / 2];
        mixed ^= i % 2 ? part->layers_end : part->first_layer;
        mixed *= 1099511628211u;
    }
    layout[LAYOUT_RANKS] = info->ranks;
    layout[LAYOUT_STAGES] = info->stages;
    layout[LAYOUT_DIRECTIONS] = info->directions;
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

/* The sections of any savepoint before its arrays. */
static weft_status add_head(const wefti_savepoint_save *save,
                            wefti_checkpoint_writer *writer)
{
    int64_t counters[COUNTERS] = {(int64_t)save->step,
                                  (int64_t)save->next_sequence};
    int64_t layout[LAYOUT];
    weft_status status = wefti_checkpoint_writer_add(
        writer, "counters", WEFT_DTYPE_I64, counters, COUNTERS);
    describe_layout(save->replica, layout);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_writer_add(writer, "layout", WEFT_DTYPE_I64,
                                             layout, LAYOUT);
    }
    static const weft_schedule_info none;
    const weft_schedule_info *own = &save->replica->pipe.info;
    const weft_schedule_info *info = own->ranks > 1 ? own : &none;
    int64_t chunks = info->chunks;
    if (status == WEFT_OK) { /* without a pipeline "" and 0 */
        status = wefti_checkpoint_writer_add(writer, "schedule", WEFT_DTYPE_U8,
                                             info->name, sizeof(info->name));
    }
    return status == WEFT_OK ? wefti_checkpoint_writer_add(
                                   writer, "chunks", WEFT_DTYPE_I64, &chunks, 1)
                             : status;
}

static weft_status write_own(const wefti_savepoint_save *save, const char *dir)
{
    wefti_checkpoint_header header = wefti_savepoint_header(
        save->point, save->replica, save->step, &save->point->owner->origin);
    wefti_checkpoint_writer *writer;
    weft_status status = wefti_checkpoint_writer_open(dir, &header, &writer);
    if (status != WEFT_OK) {
        return status;
    }
    status = add_head(save, writer);
    if (status == WEFT_OK) {
        status = save->add(save, writer);
    }
    if (status != WEFT_OK) {
        wefti_checkpoint_writer_abort(writer);
        return status;
    }
    return wefti_checkpoint_writer_close(writer);
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
                                               (uint32_t)save->replica->nranks);
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
    bool leads = save->replica->rank == 0;
    weft_status status =
        leads ? wefti_checkpoint_begin(save->point->owner, dir, save->step)
              : WEFT_OK;
    status = wefti_savepoint_agree(save->comm, save->failed, status, what);
    if (status == WEFT_OK) {
        status = wefti_savepoint_agree(save->comm, save->failed,
                                       write_own(save, dir), what);
    }
    if (status != WEFT_OK) {
        return status;
    }
    status = leads ? commit(save, dir, inside) : WEFT_OK;
    return wefti_savepoint_agree(save->comm, save->failed, status, what);
}

weft_status wefti_savepoint_save_run(const wefti_savepoint_save *save)
{
    char inside[WEFTI_CHECKPOINT_PATH_BYTES];
    const char *what = save->inside ? "checkpoint.inside" : "checkpoint";
    const char *dir = save->point->owner->dir;
    weft_status status = wefti_savepoint_inside(dir, inside);
    if (status == WEFT_OK) {
        status = save->check(save);
    }
    status = wefti_savepoint_agree(save->comm, save->failed, status, what);
    return status == WEFT_OK
               ? save_in(save, save->inside ? inside : dir, inside, what)
               : status;
}

weft_status wefti_savepoint_not_finite(uint64_t step, const char *what)
{
    return wefti_error(WEFT_ERR_INVALID,
                       "step %" PRIu64
                       ": %s hold a value that is not finite: training has "
                       "diverged, and this state is not saved; lower train.lr",
                       step, what);
}

/* ---- after a step ---------------------------------------------------------
 */

size_t wefti_savepoint_count_bytes(const wefti_replica *replica)
{
    size_t elems = 0;
    for (size_t bucket = 0; bucket < replica->plan.bucket_count; bucket++) {
        elems += replica->plan.buckets[bucket].share_elems;
    }
    return PARTS * elems * sizeof(real);
}

/* One array of the state: in a copy they follow each other. */
typedef struct array {
    real *live;
    const real *saved; /* in the copy, if there is one */
    size_t elems;
    size_t at_bytes; /* of the copy */
} array;

/* The number-th one, at is the one before; true while there are any. */
static bool next_array(wefti_replica *replica, const unsigned char *copy,
                       size_t number, array *at)
{
    const wefti_parameters *plan = &replica->plan;
    if (number == PARTS * plan->bucket_count) {
        return false;
    }
    at->at_bytes = number ? at->at_bytes + at->elems * sizeof(real) : 0;
    at->elems = plan->buckets[number / PARTS].share_elems;
    at->live = wefti_savepoint_part(replica, number / PARTS, number % PARTS);
    at->saved =
        copy ? (const real *)(const void *)(copy + at->at_bytes) : at->live;
    return true;
}

static weft_status add_arrays(const wefti_savepoint_save *save,
                              wefti_checkpoint_writer *writer)
{
    weft_status status = WEFT_OK;
    array one;
    for (size_t i = 0;
         status == WEFT_OK && next_array(save->replica, save->copy, i, &one);
         i++) {
        char name[WEFTI_CHECKPOINT_NAME_BYTES];
        wefti_savepoint_part_name(name, i / PARTS, i % PARTS);
        status = wefti_checkpoint_writer_add(writer, name, WEFTI_REAL_DTYPE,
                                             one.saved, one.elems);
    }
    return status;
}

/* A state that no run could go on from does not replace a good one. */
static weft_status check_finite(const wefti_savepoint_save *save)
{
    array one;
    for (size_t i = 0; next_array(save->replica, save->copy, i, &one); i++) {
        for (size_t j = 0; j < one.elems; j++) {
            if (!isfinite(one.saved[j])) {
                return wefti_savepoint_not_finite(save->step,
                                                  part_names[i % PARTS]);
            }
        }
    }
    return WEFT_OK;
}

/*
 * Moments first: updated parameters are still on their way to the other ranks,
 * and may be put in their place here once more.
 */
static weft_status copy_state(wefti_replica *replica)
{
    unsigned char *copy = replica->saver->copy;
    array one;
    for (size_t i = 0; next_array(replica, copy, i, &one); i++) {
        if (i % PARTS != VALUES) {
            memcpy(copy + one.at_bytes, one.live, one.elems * sizeof(real));
        }
    }
    weft_status status = wefti_replica_settle(replica);
    for (size_t i = 0; status == WEFT_OK && next_array(replica, copy, i, &one);
         i++) {
        if (i % PARTS == VALUES) {
            memcpy(copy + one.at_bytes, one.live, one.elems * sizeof(real));
        }
    }
    return status;
}

static weft_status write_now(wefti_savepoint_save *save)
{
    wefti_replica *replica = save->replica;
    weft_status status = wefti_replica_settle(replica);
    save->comm = replica->config.comm;
    save->failed = &replica->failed;
    return status == WEFT_OK ? wefti_savepoint_save_run(save) : status;
}

weft_status wefti_savepoint_write(const wefti_savepoint *point,
                                  wefti_replica *replica)
{
    int64_t before_ns = wefti_clock_ns();
    wefti_savepoint_save save = {.point = point,
                                 .replica = replica,
                                 .step = replica->step,
                                 .next_sequence = replica->next_sequence,
                                 .check = check_finite,
                                 .add = add_arrays};
    weft_status status = wefti_saver_settle(replica->saver);
    if (status == WEFT_OK && wefti_saver_writes(replica->saver)) {
        status = copy_state(replica);
        if (status == WEFT_OK) {
            wefti_saver_start(replica->saver, &save);
        }
    } else if (status == WEFT_OK) {
        status = write_now(&save);
    }
    replica->save_ns += wefti_clock_ns() - before_ns;
    return status;
}
