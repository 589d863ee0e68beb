/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/reshard.c - from the shares of one number of ranks to
 * those of another.
 *
 *   bucket, saved by 4  | share 0 | share 1 | share 2 | share 3 |
 *   elements            eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee.........    . padding
 *   bucket, on 3        |  share 0   |  share 1   |  share 2   |
 *
 * Only the padding differs, and it is zero.
 */
#include "trainer/checkpoint/reshard.h"

#include "base/check.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* Elements of a bucket's share where count ranks have it. */
static size_t share_elems(const wefti_parameters *plan, size_t bucket,
                          size_t count)
{
    size_t blocks = plan->blocks[bucket].count;
    return (blocks + count - 1) / count * WEFTI_BLOCK_ELEMS;
}

static weft_status open_file(const wefti_reshard *job, uint32_t rank,
                             wefti_checkpoint_reader **reader_out)
{
    wefti_checkpoint_header header = wefti_savepoint_header(
        job->point, job->replica, job->step, &job->origin);
    header.nranks = job->saved;
    header.rank = rank;
    return wefti_checkpoint_reader_open(job->point->dir, &header, reader_out);
}

weft_status wefti_reshard_check(const wefti_reshard *job)
{
    weft_status status = WEFT_OK;
    for (uint32_t rank = 0; rank < job->saved && status == WEFT_OK; rank++) {
        wefti_checkpoint_reader *reader;
        status = open_file(job, rank, &reader);
        if (status == WEFT_OK) {
            status = wefti_checkpoint_reader_check(reader);
            if (status == WEFT_OK) {
                status = wefti_savepoint_check_layout(reader, job->replica);
            }
            wefti_checkpoint_reader_close(reader);
        }
    }
    return status;
}

/* The overlap of the saved share in room with this rank's own. */
static void copy_overlap(const wefti_reshard *job, size_t bucket, size_t part,
                         uint32_t rank, const real *room)
{
    const wefti_parameters *plan = &job->replica->plan;
    size_t theirs = share_elems(plan, bucket, job->saved);
    size_t own = plan->buckets[bucket].share_elems;
    size_t their_begin = rank * theirs, begin = job->replica->rank * own;
    size_t from = their_begin > begin ? their_begin : begin;
    size_t end =
        their_begin + theirs < begin + own ? their_begin + theirs : begin + own;
    if (from < end) {
        memcpy(wefti_savepoint_part(job->replica, bucket, part) +
                   (from - begin),
               room + (from - their_begin), (end - from) * sizeof(*room));
    }
}

/* All of one saved rank that falls into this rank's shares. */
static weft_status read_file(const wefti_reshard *job, uint32_t rank,
                             real *room)
{
    int64_t counters[WEFTI_SAVEPOINT_COUNTERS];
    wefti_checkpoint_reader *reader;
    weft_status status = open_file(job, rank, &reader);
    if (status != WEFT_OK) {
        return status;
    }
    const wefti_parameters *plan = &job->replica->plan;
    for (size_t i = 0;
         i < WEFTI_SAVEPOINT_PARTS * plan->bucket_count && status == WEFT_OK;
         i++) {
        char name[WEFTI_CHECKPOINT_NAME_BYTES];
        size_t bucket = i / WEFTI_SAVEPOINT_PARTS;
        size_t part = i % WEFTI_SAVEPOINT_PARTS;
        wefti_savepoint_part_name(name, bucket, part);
        status =
            wefti_checkpoint_reader_get(reader, name, WEFTI_REAL_DTYPE, room,
                                        share_elems(plan, bucket, job->saved));
        if (status == WEFT_OK) {
            copy_overlap(job, bucket, part, rank, room);
        }
    }
    if (status == WEFT_OK) {
        status =
            wefti_checkpoint_reader_get(reader, "counters", WEFT_DTYPE_I64,
                                        counters, WEFTI_SAVEPOINT_COUNTERS);
    }
    if (status == WEFT_OK) {
        job->replica->step = (uint64_t)counters[0];
        job->replica->next_sequence = (uint64_t)counters[1];
    }
    wefti_checkpoint_reader_close(reader);
    return status;
}

weft_status wefti_reshard_read(const wefti_reshard *job)
{
    wefti_replica *replica = job->replica;
    size_t most = 0;
    for (size_t bucket = 0; bucket < replica->plan.bucket_count; bucket++) {
        size_t theirs = share_elems(&replica->plan, bucket, job->saved);
        most = theirs > most ? theirs : most;
        for (size_t part = 0; part < WEFTI_SAVEPOINT_PARTS; part++) {
            memset(wefti_savepoint_part(replica, bucket, part), 0,
                   replica->plan.buckets[bucket].share_elems * sizeof(real));
        }
    }
    WEFTI_ASSERT(most > 0); /* a model has parameters */
    real *room = malloc(most * sizeof(*room));
    if (!room) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for a share of %zu elements", most);
    }
    weft_status status = WEFT_OK;
    for (uint32_t rank = 0; rank < job->saved && status == WEFT_OK; rank++) {
        status = read_file(job, rank, room);
    }
    free(room);
    return status;
}
