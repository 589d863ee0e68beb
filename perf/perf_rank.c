/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_rank.c - what every rank needs before anything can be timed.
 */
#include "perf/perf_rank.h"

#include "perf/perf_graph.h"
#include "perf/perf_moe.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/settings.h"
#include "comm/make/explain.h"
#include "comm/watch/peer_life.h"
#include "device/cuda.h"
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

enum { POISON = 0xa5 };

weft_status wefti_perf_rank_agree(wefti_perf_rank *self, int64_t *values,
                                  size_t count, weft_redop redop)
{
    wefti_algorithms asked =
        wefti_comm_allow(self->comm, WEFT_COLLECTIVE_ALLREDUCE, 0);
    weft_status status = weft_allreduce(values, values, count, WEFT_DTYPE_I64,
                                        redop, self->comm, NULL);
    (void)wefti_comm_allow(self->comm, WEFT_COLLECTIVE_ALLREDUCE, asked);
    return status;
}

/* One line for all, if all reach it; else everyone does without. */
static weft_status find_line(wefti_perf_rank *self)
{
    wefti_startline_place place = {0};
    if (self->rank == 0) {
        self->line = wefti_startline_create(self->nranks, &place);
    }
    wefti_algorithms asked =
        wefti_comm_allow(self->comm, WEFT_COLLECTIVE_BROADCAST, 0);
    weft_status status = weft_broadcast(&place, &place, sizeof(place),
                                        WEFT_DTYPE_U8, 0, self->comm, NULL);
    (void)wefti_comm_allow(self->comm, WEFT_COLLECTIVE_BROADCAST, asked);
    if (status != WEFT_OK) {
        return status;
    }
    if (self->rank != 0) {
        self->line = wefti_startline_open(&place);
    }
    int64_t reached = self->line != NULL;
    status = wefti_perf_rank_agree(self, &reached, 1, WEFT_REDOP_SUM);
    if (status == WEFT_OK && reached < self->nranks) {
        wefti_startline_close(self->line);
        self->line = NULL;
    }
    return status;
}

/* The device that was asked for, or this rank's share of the GPUs. */
static weft_status open_device(wefti_perf_rank *self)
{
    const wefti_perf_options *options = self->options;
    int index = options->device < 0 ? 0 : options->device;
    if (options->device < 0 && strcmp(options->memory, "cuda") == 0) {
        int count, version;
        weft_status status = wefti_cuda_count(&count, &version);
        if (status != WEFT_OK) {
            return status;
        }
        index = count > 0 ? self->rank % count : 0;
    }
    return weft_device_open(options->memory, index, &self->device);
}

static weft_status start(wefti_perf_rank *self, const weft_unique_id *id)
{
    const wefti_perf_options *options = self->options;
    weft_status status = open_device(self);
    if (status != WEFT_OK) {
        return status;
    }
    weft_comm_config config = {.size_bytes = sizeof(config),
                               .id = id,
                               .rank = self->rank,
                               .nranks = self->nranks,
                               .timeout_ms = (int64_t)options->timeout_s * 1000,
                               .device = self->device};
    status = weft_comm_create(&config, &self->comm);
    if (status != WEFT_OK) {
        return status;
    }
    if (options->allowed) {
        (void)wefti_comm_allow(self->comm, options->op->collective,
                               options->allowed);
    }
    status = weft_stream_create(self->device, 0, &self->stream);
    return status != WEFT_OK ? status : find_line(self);
}

/* The barrier that asks who is missing has the time limit for itself: so it
 * comes soon, beside that limit. */
static weft_status read_patience(wefti_perf_rank *self)
{
    int64_t warn_ms = 0, limit_ms = 0;
    weft_status status = wefti_setting_int(WEFTI_SETTING_WARN_MS, &warn_ms);
    if (status == WEFT_OK) {
        status = wefti_setting_int(WEFTI_SETTING_TIMEOUT_MS, &limit_ms);
    }
    const int64_t soon_ms = limit_ms / 4;
    self->warn_ns = (warn_ms < soon_ms ? warn_ms : soon_ms) * 1000000;
    return status;
}

/* What a rank sends, or gets, at most. */
static size_t most_of(const wefti_perf_traffic *traffic)
{
    const size_t nranks = (size_t)traffic->nranks;
    size_t most = 0;
    for (size_t a = 0; a < nranks; a++) {
        size_t sent = 0, got = 0;
        for (size_t b = 0; b < nranks; b++) {
            sent += traffic->rows[a * nranks + b];
            got += traffic->rows[b * nranks + a];
        }
        most = sent > most ? sent : most;
        most = got > most ? got : most;
    }
    return most;
}

/* alltoallv's, where there is one: -b, -e or --sizes says, as in nccl-tests,
 * how much room there is for it. */
static weft_status read_matrix(wefti_perf_rank *self)
{
    const wefti_perf_options *options = self->options;
    if (options->op->kind != WEFTI_PERF_ALLTOALLV || !options->matrix_path) {
        return WEFT_OK;
    }
    self->traffic.nranks = self->nranks;
    weft_status status = wefti_perf_traffic_read(
        &self->traffic, options->matrix_path, options->matrix_scale, 1);
    if (status != WEFT_OK || !options->sized) {
        return status;
    }
    const size_t most = most_of(&self->traffic);
    return most <= options->max_bytes
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "%s %zu: of %s a rank sends or gets up to %zu "
                             "bytes; allowed is that or more",
                             options->most_given    ? "-e"
                             : options->least_given ? "-b"
                                                    : "--sizes",
                             options->max_bytes, options->matrix_path, most);
}

weft_status wefti_perf_rank_init(wefti_perf_rank *self,
                                 const wefti_perf_options *options, int rank,
                                 int nranks, const weft_unique_id *id)
{
    memset(self, 0, sizeof(*self));
    self->options = options;
    self->inplace = options->inplace;
    self->rank = rank;
    self->nranks = nranks;
    if (options->op->rooted && options->root >= nranks) {
        return wefti_error(WEFT_ERR_INVALID, "-r %d: allowed is 0 to %d",
                           options->root, nranks - 1);
    }
    weft_status status = read_patience(self);
    if (status == WEFT_OK) {
        status = read_matrix(self);
    }
    if (status == WEFT_OK) {
        status = start(self, id);
    }
    self->counts = calloc(2 * (size_t)nranks, sizeof(*self->counts));
    if (status == WEFT_OK && !self->counts) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "counts of %d ranks", nranks);
    }
    if (status != WEFT_OK) {
        wefti_perf_rank_fini(self);
        return status;
    }
    return WEFT_OK;
}

void wefti_perf_rank_fini(wefti_perf_rank *self)
{
    free(self->counts);
    wefti_perf_traffic_fini(&self->traffic);
    wefti_startline_close(self->line);
    weft_stream_destroy(self->stream);
    weft_comm_destroy(self->comm);
    weft_device_close(self->device);
}

void wefti_perf_rank_set(wefti_perf_rank *self, weft_dtype dtype,
                         weft_redop redop)
{
    self->dtype = dtype;
    self->redop = self->options->op->reduces ? redop : WEFT_REDOP_SUM;
    wefti_tile_make(&self->own, dtype, self->redop, self->rank, self->nranks);
}

/* The row and the column of this rank in the uneven matrix. */
static void count_uneven(const wefti_perf_rank *self, wefti_perf_case *subject)
{
    size_t *row = self->counts, *column = row + self->nranks;
    for (int p = 0; p < self->nranks; p++) {
        row[p] = wefti_perf_case_part(subject, self->rank, p);
        column[p] = wefti_perf_case_part(subject, p, self->rank);
    }
    subject->send_counts = row;
    subject->recv_counts = column;
}

wefti_perf_case wefti_perf_rank_case(const wefti_perf_rank *self, size_t bytes)
{
    const wefti_perf_options *options = self->options;
    wefti_perf_case subject = {
        .op = options->op,
        .dtype = self->dtype,
        .redop = self->redop,
        .root = options->op->rooted ? options->root : 0,
        .rank = self->rank,
        .nranks = self->nranks,
        .hosts = wefti_comm_sum_hosts(self->comm, self->dtype, self->redop),
        .inplace = self->inplace,
        .registered = options->registered,
        .matrix = self->traffic.rows};
    wefti_tile_make_scale(subject.scale, self->dtype, self->rank);
    wefti_perf_case_size(&subject, bytes);
    if (wefti_perf_op_is_uneven(subject.op)) {
        count_uneven(self, &subject);
    }
    return subject;
}

/* Somebody has died, or is so late that a barrier would ask why. */
static bool misses_a_peer(const void *context)
{
    const wefti_perf_rank *self = context;
    if (wefti_clock_ns() - self->come_ns > self->warn_ns) {
        return true;
    }
    for (int rank = 0; rank < self->nranks; rank++) {
        if (rank != self->rank && wefti_peer_has_died(self->comm, rank)) {
            return true;
        }
    }
    return false;
}

/* Where all ranks give the line up, a barrier of weft's tells them who is
 * missing; who was only late is waited for, then and later, by barriers. */
weft_status wefti_perf_rank_meet(wefti_perf_rank *self)
{
    self->come_ns = wefti_clock_ns();
    return self->line && wefti_startline_wait(self->line, misses_a_peer, self)
               ? WEFT_OK
               : weft_barrier(self->comm, NULL);
}

/* As much as any rank wants: it is symmetric. */
static weft_status make_memory(wefti_perf_rank *self, size_t bytes,
                               weft_mem **mem_out)
{
    uint64_t most = bytes;
    weft_status status = weft_allreduce(&most, &most, 1, WEFT_DTYPE_U64,
                                        WEFT_REDOP_MAX, self->comm, NULL);
    return status == WEFT_OK ? weft_mem_create(self->comm, most, mem_out)
                             : status;
}

weft_status wefti_perf_pool_init(wefti_perf_pool *pool, wefti_perf_rank *self,
                                 const wefti_perf_case *subject, int copies)
{
    const size_t line = 4096;
    const size_t first_bytes =
        (size_t)self->options->first_elem * weft_dtype_bytes(subject->dtype);
    size_t room = wefti_perf_case_room(subject) + first_bytes;
    *pool = (wefti_perf_pool){.subject = *subject,
                              .copies = copies,
                              .first_bytes = first_bytes,
                              .room_bytes = (room + line - 1) / line * line};
    size_t all_bytes = 2 * (size_t)copies * pool->room_bytes;
    weft_status status =
        wefti_perf_op_puts(subject->op) || subject->registered
            ? make_memory(self, all_bytes, &pool->mem)
            : weft_device_alloc(self->device, all_bytes, &pool->block);
    if (status != WEFT_OK) {
        return status;
    }
    if (pool->mem) {
        pool->block = weft_mem_get_base(pool->mem);
    }
    if (wefti_device_can(self->device, WEFT_CAP_HOST_READS)) {
        memset(pool->block, POISON, all_bytes);
        return WEFT_OK;
    }
    status = weft_device_alloc_kind(self->device, WEFT_MEMORY_PINNED,
                                    pool->room_bytes, &pool->staging);
    if (status != WEFT_OK) {
        weft_device_free(self->device, pool->block);
    }
    return status;
}

void wefti_perf_pool_fini(wefti_perf_pool *pool, wefti_perf_rank *self)
{
    for (int copy = 0; pool->plans && copy < pool->copies; copy++) {
        weft_plan_destroy(pool->plans[copy]);
    }
    free(pool->plans);
    weft_ring_destroy(pool->ring);
    wefti_perf_moe_fini(pool->moe, self);
    wefti_perf_graph_free(pool, self);
    weft_device_free(self->device, pool->staging);
    if (pool->mem) {
        weft_mem_destroy(pool->mem);
    } else {
        weft_device_free(self->device, pool->block);
    }
}

wefti_perf_buffers wefti_perf_pool_at(const wefti_perf_pool *pool, size_t call)
{
    size_t copy = call % (size_t)pool->copies;
    unsigned char *send = pool->block;
    send += 2 * copy * pool->room_bytes + pool->first_bytes;
    return wefti_perf_case_place(
        &pool->subject, (wefti_perf_buffers){send, send + pool->room_bytes});
}

weft_status wefti_perf_pool_poison(wefti_perf_pool *pool, wefti_perf_rank *self,
                                   size_t call)
{
    const wefti_perf_case *subject = &pool->subject;
    void *recv = wefti_perf_pool_at(pool, call).recv;
    size_t bytes = subject->recv_elems * weft_dtype_bytes(subject->dtype);
    if (!pool->staging) {
        memset(recv, POISON, bytes);
        return WEFT_OK;
    }
    memset(pool->staging, POISON, bytes);
    return weft_device_copy(self->device, recv, pool->staging, bytes, NULL);
}

weft_status wefti_perf_pool_fill(wefti_perf_pool *pool, wefti_perf_rank *self,
                                 size_t call, size_t first, size_t elems)
{
    const wefti_perf_case *subject = &pool->subject;
    if (!wefti_perf_case_sends(subject)) {
        return WEFT_OK;
    }
    size_t elem_bytes = weft_dtype_bytes(subject->dtype);
    unsigned char *send = wefti_perf_pool_at(pool, call).send;
    send += first * elem_bytes;
    void *target = pool->staging ? pool->staging : send;
    wefti_tile_fill(&self->own, target, first, elems, call);
    if (!pool->staging) {
        return WEFT_OK;
    }
    return weft_device_copy(self->device, send, pool->staging,
                            elems * elem_bytes, NULL);
}

weft_status wefti_perf_pool_check(wefti_perf_pool *pool, wefti_perf_rank *self,
                                  size_t call, int64_t *wrong_out)
{
    const wefti_perf_case *subject = &pool->subject;
    const void *recv = wefti_perf_pool_at(pool, call).recv;
    if (pool->moe) {
        return wefti_perf_moe_check(pool, self, call, wrong_out);
    }
    if (pool->staging) {
        size_t bytes = subject->recv_elems * weft_dtype_bytes(subject->dtype);
        weft_status status =
            weft_device_copy(self->device, pool->staging, recv, bytes, NULL);
        if (status != WEFT_OK) {
            return status;
        }
        recv = pool->staging;
    }
    *wrong_out = (int64_t)wefti_perf_case_count_wrong(subject, recv, call,
                                                      &self->scratch);
    return WEFT_OK;
}
