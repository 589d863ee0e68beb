/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_moe.c - rows of tiles (perf/tile.h) to experts that hand on what
 * they get. All weights are 1: a sum is the token's row times its experts.
 */
#include "perf/perf_moe.h"

#include "base/error.h"
#include "kernels/wire/reduce.h"
#include "overlap/moe_core.h"
#include "overlap/moe_row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    HIDDEN = 1024,
    EXPERTS = 8, /* of a rank */
    SLOTS = 2,
    POISON = 0xa5,
    EXACT_MOST = 256 /* whole numbers up to here are exact in all types */
};

/* ---- sizes ----------------------------------------------------------------
 */

static size_t hidden_of(const wefti_perf_rank *self)
{
    const int given = self->options->moe.hidden;
    return given ? (size_t)given : HIDDEN;
}

static weft_status make_traffic(const wefti_perf_rank *self, size_t bytes,
                                wefti_perf_traffic *traffic)
{
    const wefti_perf_moe_options *given = &self->options->moe;
    const size_t row_bytes = hidden_of(self) * weft_dtype_bytes(self->dtype);
    const int experts =
        given->experts ? given->experts : EXPERTS * self->nranks;
    const int slots = given->slots ? given->slots : SLOTS;
    const size_t rows = bytes / row_bytes;
    *traffic = (wefti_perf_traffic){
        .nranks = self->nranks,
        .experts = experts,
        .slots = self->options->matrix_path         ? 1
                 : slots > experts && !given->slots ? experts
                                                    : slots,
        .tokens = given->tokens ? (size_t)given->tokens
                  : rows == 0   ? bytes > 0
                                : rows};
    if (experts % self->nranks != 0 || traffic->slots > experts) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--experts %d --topk %d: allowed is a multiple of "
                           "the %d ranks, and no more of a token",
                           experts, traffic->slots, self->nranks);
    }
    return self->options->matrix_path
               ? wefti_perf_traffic_read(traffic, self->options->matrix_path, 1,
                                         row_bytes)
               : WEFT_OK;
}

weft_status wefti_perf_moe_size(const wefti_perf_rank *self,
                                wefti_perf_case *subject, size_t bytes)
{
    wefti_perf_traffic traffic;
    weft_status status = make_traffic(self, bytes, &traffic);
    if (status != WEFT_OK) {
        return status;
    }
    const size_t hidden = hidden_of(self);
    subject->count = hidden * wefti_perf_traffic_tokens(&traffic, self->rank);
    subject->send_elems = subject->recv_elems = subject->count;
    subject->bytes = wefti_perf_traffic_pairs(&traffic) * hidden *
                     weft_dtype_bytes(self->dtype) / (size_t)self->nranks;
    wefti_perf_traffic_fini(&traffic);
    return WEFT_OK;
}

/* ---- life -----------------------------------------------------------------
 */

/* Which experts this rank's tokens go to, with weights of 1, to the device. */
static weft_status store_experts(wefti_perf_moe *moe, wefti_perf_rank *self)
{
    const size_t slots = (size_t)moe->traffic.slots;
    const size_t tokens = wefti_perf_traffic_tokens(&moe->traffic, self->rank);
    const size_t bytes = (tokens * slots + 1) * sizeof(int32_t);
    int32_t *expert = calloc(tokens * slots + 1, sizeof(*expert));
    float *weight = calloc(tokens * slots + 1, sizeof(*weight));
    weft_status status =
        expert && weight
            ? weft_device_alloc(self->device, bytes, (void **)&moe->expert)
            : wefti_error(WEFT_ERR_NO_MEMORY, "%zu tokens", tokens);
    if (status == WEFT_OK) {
        status = weft_device_alloc(self->device, bytes, (void **)&moe->weight);
    }
    for (size_t token = 0; token < tokens && status == WEFT_OK; token++) {
        wefti_perf_traffic_experts(&moe->traffic, self->rank, token,
                                   expert + token * slots);
        for (size_t slot = 0; slot < slots; slot++) {
            weight[token * slots + slot] = 1;
        }
    }
    if (status == WEFT_OK) {
        status =
            weft_device_copy(self->device, moe->expert, expert, bytes, NULL);
    }
    if (status == WEFT_OK) {
        status =
            weft_device_copy(self->device, moe->weight, weight, bytes, NULL);
    }
    free(expert);
    free(weight);
    return status;
}

static weft_status create(wefti_perf_moe *moe, wefti_perf_rank *self)
{
    const size_t most = wefti_perf_traffic_most(&moe->traffic);
    const size_t rows = wefti_perf_traffic_rows(&moe->traffic, self->rank);
    moe->capacity = rows > 0 ? rows : 1;
    const weft_moe_config config = {
        .size_bytes = sizeof(config),
        .comm = self->comm,
        .device = self->device,
        .hidden = moe->hidden,
        .experts = moe->traffic.experts,
        .slots = moe->traffic.slots,
        .tokens = most > 0 ? most : 1,
        .capacity = moe->capacity,
        .dtype = self->dtype,
        .dispatch_dtype = moe->fp8 ? WEFT_DTYPE_F8E4M3 : self->dtype,
        .combine_dtype = self->dtype,
        .hops = self->options->moe.hops,
        .label = self->options->op->name};
    return weft_moe_create(&config, &moe->moe);
}

weft_status wefti_perf_moe_init(wefti_perf_pool *pool, wefti_perf_rank *self,
                                size_t bytes)
{
    wefti_perf_moe *moe = calloc(1, sizeof(*moe));
    if (!moe) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "an exchange");
    }
    pool->moe = moe;
    moe->batch.size_bytes = sizeof(moe->batch);
    moe->hidden = hidden_of(self);
    moe->fp8 = self->options->moe.fp8;
    weft_status status = make_traffic(self, bytes, &moe->traffic);
    if (status == WEFT_OK) {
        status = create(moe, self);
    }
    if (status == WEFT_OK) {
        status = store_experts(moe, self);
    }
    moe->host =
        malloc(moe->capacity * moe->hidden * weft_dtype_bytes(self->dtype));
    return status == WEFT_OK && !moe->host
               ? wefti_error(WEFT_ERR_NO_MEMORY, "%zu rows", moe->capacity)
               : status;
}

const char *wefti_perf_moe_way(const wefti_perf_pool *pool)
{
    const weft_moe *made = pool->moe ? pool->moe->moe : NULL;
    return made && made->layout.hops == 2 ? "two_hop" : "one_hop";
}

void wefti_perf_moe_fini(wefti_perf_moe *moe, wefti_perf_rank *self)
{
    if (!moe) {
        return;
    }
    weft_moe_destroy(moe->moe);
    weft_device_free(self->device, moe->expert);
    weft_device_free(self->device, moe->weight);
    wefti_perf_traffic_fini(&moe->traffic);
    free(moe->host);
    free(moe);
}

/* ---- calls ----------------------------------------------------------------
 */

static bool dispatches(const wefti_perf_pool *pool)
{
    return pool->subject.op->kind == WEFTI_PERF_MOE_DISPATCH;
}

static size_t tokens_here(const wefti_perf_pool *pool)
{
    return pool->subject.count / pool->moe->hidden;
}

static weft_status dispatch(const wefti_perf_pool *pool, size_t call,
                            weft_stream *stream)
{
    wefti_perf_moe *moe = pool->moe;
    return weft_moe_dispatch(moe->moe, wefti_perf_pool_at(pool, call).send,
                             moe->expert, moe->weight, tokens_here(pool),
                             stream, &moe->batch);
}

/* Nothing that comes is right already. */
static weft_status poison_rows(wefti_perf_pool *pool, wefti_perf_rank *self)
{
    wefti_perf_moe *moe = pool->moe;
    const size_t bytes =
        moe->capacity * moe->hidden * weft_dtype_bytes(self->dtype);
    memset(moe->host, POISON, bytes);
    return moe->batch.rows ? weft_device_copy(self->device, moe->batch.rows,
                                              moe->host, bytes, NULL)
                           : WEFT_OK;
}

weft_status wefti_perf_moe_prepare(wefti_perf_pool *pool, wefti_perf_rank *self,
                                   size_t call)
{
    weft_moe_batch_fini(pool->moe->moe, &pool->moe->batch);
    return dispatches(pool) ? poison_rows(pool, self)
                            : dispatch(pool, call, NULL);
}

weft_status wefti_perf_moe_post(const wefti_perf_pool *pool, size_t call,
                                weft_stream *stream)
{
    wefti_perf_moe *moe = pool->moe;
    return dispatches(pool)
               ? dispatch(pool, call, stream)
               : weft_moe_combine(moe->moe, &moe->batch, moe->batch.rows,
                                  wefti_perf_pool_at(pool, call).recv, stream);
}

/* ---- what must come of it -------------------------------------------------
 */

/* A token's row as its experts get it; row and scratch have room for it. */
static void make_row(const wefti_perf_moe *moe, const wefti_perf_rank *self,
                     const wefti_tile *tile, size_t token, size_t call,
                     void *row, void *wire, float *scratch)
{
    const weft_dtype to = moe->fp8 ? WEFT_DTYPE_F8E4M3 : self->dtype;
    wefti_tile_fill(tile, row, token * moe->hidden, moe->hidden, call);
    if (moe->fp8) {
        wefti_moe_payload_pack(wire, row, moe->hidden, self->dtype, to,
                               scratch);
        wefti_moe_payload_unpack(row, wire, moe->hidden, self->dtype, to,
                                 scratch);
    }
}

static size_t count_differing(const unsigned char *got,
                              const unsigned char *wanted, size_t elems,
                              size_t elem_bytes)
{
    size_t wrong = 0;
    for (size_t i = 0; i < elems; i++) {
        wrong += memcmp(got + i * elem_bytes, wanted + i * elem_bytes,
                        elem_bytes) != 0;
    }
    return wrong;
}

typedef struct look {
    wefti_perf_moe *moe;
    wefti_perf_rank *self;
    size_t call, elem_bytes, row; /* row: the next */
    unsigned char *wanted, *wire;
    float *scratch;
    int64_t wrong;
} look;

/* Rows of one expert and source. */
static void look_at_source(look *at, int expert, int source)
{
    wefti_perf_moe *moe = at->moe;
    const size_t tokens = wefti_perf_traffic_tokens(&moe->traffic, source);
    const size_t row_bytes = moe->hidden * at->elem_bytes;
    int32_t experts[WEFT_MOE_SLOTS_MOST];
    wefti_tile_make(&at->self->scratch, at->self->dtype, WEFT_REDOP_SUM, source,
                    at->self->nranks);
    for (size_t token = 0; token < tokens; token++) {
        wefti_perf_traffic_experts(&moe->traffic, source, token, experts);
        for (int slot = 0; slot < moe->traffic.slots; slot++) {
            if (experts[slot] == expert) {
                make_row(moe, at->self, &at->self->scratch, token, at->call,
                         at->wanted, at->wire, at->scratch);
                at->wrong += (int64_t)count_differing(
                    moe->host + at->row++ * row_bytes, at->wanted, moe->hidden,
                    at->elem_bytes);
            }
        }
    }
}

static void look_at_rows(look *at)
{
    wefti_perf_moe *moe = at->moe;
    const int here = moe->traffic.experts / at->self->nranks;
    for (int i = 0; i < here; i++) {
        const size_t first = at->row;
        for (int source = 0; source < at->self->nranks; source++) {
            look_at_source(at, at->self->rank * here + i, source);
        }
        if ((size_t)moe->batch.expert_rows[i] != at->row - first) {
            at->wrong += (int64_t)moe->hidden;
        }
    }
}

/* The sum of equal rows is exact as long as it is small; else it is rounded at
 * each level. */
static bool is_sum(const look *at, float got, float row)
{
    const float wanted = row * (float)at->moe->traffic.slots;
    const bool exact = !at->moe->fp8 && (at->self->dtype == WEFT_DTYPE_F32 ||
                                         fabsf(wanted) <= EXACT_MOST);
    return exact ? got == wanted : fabsf(got - wanted) <= fabsf(wanted) / 32;
}

static void look_at_sums(look *at, size_t tokens)
{
    const size_t hidden = at->moe->hidden;
    const weft_dtype dtype = at->self->dtype;
    float *got = (float *)at->wire;
    for (size_t token = 0; token < tokens; token++) {
        make_row(at->moe, at->self, &at->self->own, token, at->call, at->wanted,
                 at->wire, at->scratch);
        wefti_widen(at->scratch, at->wanted, hidden, dtype);
        wefti_widen(got, at->moe->host + token * hidden * at->elem_bytes,
                    hidden, dtype);
        for (size_t i = 0; i < hidden; i++) {
            at->wrong += !is_sum(at, got[i], at->scratch[i]);
        }
    }
}

/* moe->host gets what is on the device, in blocks as large as it. */
static weft_status look_at_out(look *at, const wefti_perf_pool *pool)
{
    const size_t bytes = pool->subject.count * at->elem_bytes;
    unsigned char *host = malloc(bytes + 1), *rows = at->moe->host;
    weft_status status =
        host ? weft_device_copy(at->self->device, host,
                                wefti_perf_pool_at(pool, at->call).recv, bytes,
                                NULL)
             : wefti_error(WEFT_ERR_NO_MEMORY, "%zu bytes", bytes);
    if (status == WEFT_OK) {
        at->moe->host = host;
        look_at_sums(at, tokens_here(pool));
        at->moe->host = rows;
    }
    free(host);
    return status;
}

weft_status wefti_perf_moe_check(wefti_perf_pool *pool, wefti_perf_rank *self,
                                 size_t call, int64_t *wrong_out)
{
    wefti_perf_moe *moe = pool->moe;
    look at = {.moe = moe,
               .self = self,
               .call = call,
               .elem_bytes = weft_dtype_bytes(self->dtype),
               .wanted = calloc(moe->hidden, sizeof(float)),
               .wire = calloc(moe->hidden + 1, 2 * sizeof(float)),
               .scratch = calloc(moe->hidden, sizeof(float))};
    weft_status status = WEFT_OK;
    if (!at.wanted || !at.wire || !at.scratch) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "a row");
    } else if (dispatches(pool)) {
        status =
            weft_device_copy(self->device, moe->host, moe->batch.rows,
                             moe->capacity * moe->hidden * at.elem_bytes, NULL);
        if (status == WEFT_OK) {
            look_at_rows(&at);
        }
    } else {
        status = look_at_out(&at, pool);
    }
    free(at.wanted);
    free(at.wire);
    free(at.scratch);
    *wrong_out = at.wrong;
    return status;
}
