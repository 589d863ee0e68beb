/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/moe_make.c - the object behind weft/moe.h comes to be, and ends.
 */
#include "overlap/moe_core.h"
#include "overlap/moe_row.h"

#include "base/error.h"
#include "base/sized.h"
#include "comm/core/live.h"
#include "comm/make/explain.h"
#include "device/device.h"
#include "weft/op.h"

#include <stdlib.h>
#include <string.h>

enum { PART_ALIGN_BYTES = 16, WORD_BYTES = sizeof(uint32_t) /* of rows */ };

/* ---- what is allowed ------------------------------------------------------
 */

static weft_status check_objects(const weft_moe_config *own)
{
    if (!own->comm || !own->device) {
        return wefti_error(WEFT_ERR_INVALID,
                           "config.%s is NULL: allowed is an object",
                           own->comm ? "device" : "comm");
    }
    if (!wefti_comm_is_live(own->comm)) {
        return wefti_comm_refuse(own->comm, "config.comm");
    }
    return WEFT_OK;
}

/* Whether the device runs kernels, not the host's code. */
static bool computes_by_kernels(const weft_moe_config *own)
{
    return !wefti_device_get_table(own->device)->stream_compute;
}

static weft_status check_numbers(const weft_moe_config *own)
{
    const int nranks = weft_comm_get_nranks(own->comm);
    const size_t most = INT32_MAX;
    if (own->experts < 1 || own->experts % nranks != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "config.experts %d: allowed is a multiple of the %d "
                           "ranks",
                           own->experts, nranks);
    }
    if (own->slots < 1 || own->slots > WEFT_MOE_SLOTS_MOST) {
        return wefti_error(WEFT_ERR_INVALID,
                           "config.slots %d: allowed is 1 .. %d", own->slots,
                           WEFT_MOE_SLOTS_MOST);
    }
    if (own->hidden < 1 || own->hidden > most || own->tokens < 1 ||
        own->tokens > most / (size_t)nranks || own->capacity < 1 ||
        own->capacity > most) {
        return wefti_error(WEFT_ERR_INVALID,
                           "config: hidden %zu, tokens %zu, capacity %zu: "
                           "allowed is 1 .. %zu, tokens of all ranks together",
                           own->hidden, own->tokens, own->capacity, most);
    }
    if (own->hops < 0 || own->hops > WEFTI_MOE_HOPS_MOST ||
        own->node_ranks < 0 || own->batches < 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "config: hops %d, node_ranks %d, batches %d: "
                           "allowed is 0 .. %d, and 0 or more",
                           own->hops, own->node_ranks, own->batches,
                           WEFTI_MOE_HOPS_MOST);
    }
    return WEFT_OK;
}

static weft_status check_dtypes(const weft_moe_config *own)
{
    const bool rows = own->dtype == WEFT_DTYPE_F32 ||
                      own->dtype == WEFT_DTYPE_BF16 ||
                      own->dtype == WEFT_DTYPE_F16;
    if (!rows ||
        (own->dispatch_dtype != own->dtype &&
         own->dispatch_dtype != WEFT_DTYPE_F8E4M3) ||
        (own->combine_dtype != own->dtype &&
         own->combine_dtype != WEFT_DTYPE_F32)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "config: dtype %d, dispatch_dtype %d, combine_dtype "
                           "%d: allowed is f32, bf16 or f16; that or f8e4m3; "
                           "that or f32",
                           (int)own->dtype, (int)own->dispatch_dtype,
                           (int)own->combine_dtype);
    }
    return WEFT_OK;
}

static weft_status check_config(const weft_moe_config *given,
                                weft_moe **moe_out, weft_moe_config *own)
{
    if (!given || !moe_out) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s is NULL: allowed is an object, or a place for one",
            given ? "moe_out" : "config");
    }
    weft_status status = wefti_sized_read(
        "config", given, offsetof(weft_moe_config, hops), own, sizeof(*own));
    if (status == WEFT_OK) {
        status = check_objects(own);
    }
    if (status == WEFT_OK) {
        status = check_numbers(own);
    }
    if (status == WEFT_OK && computes_by_kernels(own) && own->hops > 1) {
        status =
            wefti_error(WEFT_ERR_UNSUPPORTED,
                        "config.hops %d: allowed is 0 or 1 on a %s "
                        "device, which computes by kernels",
                        own->hops, wefti_device_get_table(own->device)->kind);
    }
    return status == WEFT_OK ? check_dtypes(own) : status;
}

/* What must be the same everywhere, or rows would be taken for others. */
static weft_status agree(const weft_moe *moe)
{
    static const char *const names[] = {
        "hidden",         "experts", "slots",      "tokens",       "dtype",
        "dispatch_dtype", "hops",    "node_ranks", "combine_dtype"};
    enum { FIELDS = sizeof(names) / sizeof(names[0]) };
    const weft_moe_config *own = &moe->config;
    const int64_t mine[FIELDS] = {(int64_t)own->hidden,
                                  own->experts,
                                  own->slots,
                                  (int64_t)own->tokens,
                                  own->dtype,
                                  own->dispatch_dtype,
                                  own->hops,
                                  own->node_ranks,
                                  own->combine_dtype};
    int64_t most[2 * FIELDS];
    for (size_t i = 0; i < FIELDS; i++) {
        most[2 * i] = mine[i];
        most[2 * i + 1] = -mine[i];
    }
    weft_status status = weft_allreduce(most, most, 2 * FIELDS, WEFT_DTYPE_I64,
                                        WEFT_REDOP_MAX, own->comm, NULL);
    for (size_t i = 0; i < FIELDS && status == WEFT_OK; i++) {
        if (most[2 * i] != -most[2 * i + 1]) {
            status = wefti_error(WEFT_ERR_INVALID,
                                 "config.%s is %lld here, and %lld to %lld on "
                                 "all ranks: allowed is one value",
                                 names[i], (long long)mine[i],
                                 (long long)-most[2 * i + 1],
                                 (long long)most[2 * i]);
        }
    }
    return status;
}

/* ---- what it has ----------------------------------------------------------
 */

static weft_status no_memory(void)
{
    return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for an exchange of rows");
}

static weft_status lay_out(weft_moe *moe)
{
    const weft_moe_config *own = &moe->config;
    int *firsts = calloc((size_t)moe->nranks, sizeof(*firsts));
    if (!firsts) {
        return no_memory();
    }
    for (int rank = 0; rank < moe->nranks; rank++) {
        firsts[rank] = own->node_ranks > 0 ? rank - rank % own->node_ranks
                                           : own->comm->peers[rank].first;
    }
    moe->layout = (wefti_moe_layout){.nranks = moe->nranks,
                                     .hops = own->hops,
                                     .experts = own->experts,
                                     .slots = own->slots,
                                     .tokens = own->tokens};
    const bool made = wefti_moe_layout_init(&moe->layout, firsts);
    free(firsts);
    return made ? WEFT_OK : no_memory();
}

static void measure_rows(weft_moe *moe)
{
    const weft_moe_config *own = &moe->config;
    const size_t bytes[WEFTI_MOE_ROW_COUNT] = {
        [WEFTI_MOE_ROW_TOKEN] = wefti_moe_header_bytes(own->slots) +
                                wefti_moe_payload_bytes(own->hidden, own->dtype,
                                                        own->dispatch_dtype),
        [WEFTI_MOE_ROW_PLAIN] = own->hidden * moe->elem_bytes,
        [WEFTI_MOE_ROW_SUM] =
            own->hidden * weft_dtype_bytes(own->combine_dtype),
        [WEFTI_MOE_ROW_SLOTS] = (size_t)own->slots * sizeof(float)};
    for (int row = 0; row < WEFTI_MOE_ROW_COUNT; row++) {
        moe->row_bytes[row] = bytes[row] + (0 - bytes[row]) % WORD_BYTES;
        moe->stride = moe->row_bytes[row] > moe->stride ? moe->row_bytes[row]
                                                        : moe->stride;
    }
    moe->stride = (moe->stride + PART_ALIGN_BYTES - 1) / PART_ALIGN_BYTES *
                  PART_ALIGN_BYTES;
}

/* Memory of the device, and where the host's code finds it. */
static weft_status make_memory(weft_moe *moe, size_t bytes, void **memory_out,
                               void **placed_out)
{
    weft_status status =
        weft_device_alloc(moe->config.device, bytes, memory_out);
    return status == WEFT_OK && bytes > 0
               ? wefti_stream_place(moe->own, "staging", *memory_out, bytes,
                                    placed_out)
               : status;
}

static weft_status make_side(weft_moe *moe, wefti_moe_side *side, int hop,
                             bool sends)
{
    const size_t nranks = (size_t)moe->nranks;
    side->begins = calloc(2 * nranks + 1, sizeof(*side->begins));
    if (!side->begins) {
        return no_memory();
    }
    side->capacity = side->begins + nranks + 1;
    for (int peer = 0; peer < moe->nranks; peer++) {
        const size_t rows =
            sends ? wefti_moe_most_rows(&moe->layout, hop, moe->rank, peer)
                  : wefti_moe_most_rows(&moe->layout, hop, peer, moe->rank);
        side->capacity[peer] = rows * moe->stride;
        side->begins[peer + 1] = side->begins[peer] + side->capacity[peer];
    }
    void *placed = NULL;
    weft_status status =
        make_memory(moe, side->begins[nranks], &side->memory, &placed);
    side->placed = placed;
    return status;
}

static weft_status make_hop(weft_moe *moe, int hop)
{
    wefti_moe_hop *made = &moe->hops[hop];
    weft_status status = make_side(moe, &made->out, hop, true);
    if (status == WEFT_OK) {
        status = make_side(moe, &made->in, hop, false);
    }
    void *counts = NULL;
    if (status == WEFT_OK) {
        status = weft_device_alloc_kind(
            moe->config.device, WEFT_MEMORY_PINNED,
            2 * (size_t)moe->nranks * sizeof(*made->gone), &counts);
    }
    if (status == WEFT_OK) { /* parts without room are looked at before */
        memset(counts, 0, 2 * (size_t)moe->nranks * sizeof(*made->gone));
    }
    made->gone = counts;
    made->come = counts ? made->gone + moe->nranks : NULL;
    return status;
}

/* How many rows can come to this rank in a hop. */
static size_t rows_in(const weft_moe *moe, int hop)
{
    return moe->hops[hop].in.begins[moe->nranks] / moe->stride;
}

/* What the host's code keeps. */
static weft_status make_held_here(weft_moe *moe, wefti_moe_held *held)
{
    const weft_moe_config *own = &moe->config;
    const size_t slots = (size_t)own->slots, nranks = (size_t)moe->nranks;
    const int last = moe->layout.hops - 1;
    held->experts = calloc(own->tokens * slots, sizeof(*held->experts));
    held->weights = calloc(own->tokens * slots, sizeof(*held->weights));
    held->relayed = calloc(rows_in(moe, 0) * slots, sizeof(*held->relayed));
    held->places = calloc(rows_in(moe, last) * slots, sizeof(*held->places));
    held->row_weights =
        calloc(rows_in(moe, last) * slots, sizeof(*held->row_weights));
    size_t *counts = calloc(2 * WEFTI_MOE_HOPS_MOST * nranks, sizeof(*counts));
    for (int hop = 0; hop < WEFTI_MOE_HOPS_MOST && counts; hop++) {
        held->out_rows[hop] = counts + 2 * (size_t)hop * nranks;
        held->in_rows[hop] = held->out_rows[hop] + nranks;
    }
    if (!held->experts || !held->weights || !held->relayed || !held->places ||
        !held->row_weights || !counts) {
        return no_memory();
    }
    return WEFT_OK;
}

static weft_status make_held(weft_moe *moe, wefti_moe_held *held)
{
    const weft_moe_config *own = &moe->config;
    void *pinned = NULL;
    weft_status status = weft_device_alloc_kind(
        own->device, WEFT_MEMORY_PINNED,
        (size_t)moe->experts_here * sizeof(int32_t), &pinned);
    held->expert_rows = pinned;
    if (status == WEFT_OK) {
        status = make_memory(moe, own->capacity * own->hidden * moe->elem_bytes,
                             &held->rows, &held->rows_placed);
    }
    if (status != WEFT_OK) {
        return status;
    }
    return moe->by_kernels ? wefti_moe_device_held(moe, held)
                           : make_held_here(moe, held);
}

static weft_status make_scratch(weft_moe *moe)
{
    const size_t hidden = moe->config.hidden, nranks = (size_t)moe->nranks;
    const size_t experts = (size_t)moe->experts_here;
    moe->counts = calloc((experts + 1) * nranks, sizeof(*moe->counts));
    moe->products =
        calloc(rows_in(moe, moe->layout.hops - 1) * (size_t)moe->config.slots,
               sizeof(*moe->products));
    moe->sum = calloc(3 * hidden, sizeof(*moe->sum));
    if (!moe->counts || !moe->products || !moe->sum) {
        return no_memory();
    }
    moe->answered = moe->counts + experts * nranks;
    moe->part = moe->sum + hidden;
    moe->term = moe->part + hidden;
    return WEFT_OK;
}

static weft_status make(weft_moe *moe)
{
    weft_device *device = moe->config.device;
    const size_t batches = (size_t)moe->config.batches;
    weft_status status = lay_out(moe);
    if (status == WEFT_OK) {
        status = weft_stream_create(device, 0, &moe->own);
    }
    if (status == WEFT_OK) {
        status = weft_event_create(device, &moe->done);
    }
    if (status == WEFT_OK) {
        status = weft_gate_create(device, batches, &moe->counted);
    }
    for (int hop = 0; hop < moe->layout.hops && status == WEFT_OK; hop++) {
        status = make_hop(moe, hop);
    }
    moe->held = calloc(batches, sizeof(*moe->held));
    if (status == WEFT_OK) {
        status = !moe->held        ? no_memory()
                 : moe->by_kernels ? wefti_moe_device_make(moe)
                                   : make_scratch(moe);
    }
    for (size_t i = 0; i < batches && status == WEFT_OK; i++) {
        moe->held[i].number = i;
        status = make_held(moe, &moe->held[i]);
    }
    return status;
}

weft_status weft_moe_create(const weft_moe_config *config, weft_moe **moe_out)
{
    weft_moe_config own;
    weft_status status = check_config(config, moe_out, &own);
    if (status != WEFT_OK) {
        return status;
    }
    weft_moe *moe = calloc(1, sizeof(*moe));
    if (!moe) {
        return no_memory();
    }
    own.class_id = own.class_id ? own.class_id : WEFT_CLASS_EP;
    own.label = own.label ? own.label : "moe";
    own.batches = own.batches ? own.batches : 1;
    moe->by_kernels = computes_by_kernels(&own);
    own.hops = moe->by_kernels ? 1 : own.hops;
    moe->config = own;
    moe->rank = weft_comm_get_rank(own.comm);
    moe->nranks = weft_comm_get_nranks(own.comm);
    moe->experts_here = own.experts / moe->nranks;
    moe->elem_bytes = weft_dtype_bytes(own.dtype);
    measure_rows(moe);
    status = agree(moe);
    if (status == WEFT_OK) {
        status = make(moe);
    }
    if (status != WEFT_OK) {
        weft_moe_destroy(moe);
        return status;
    }
    *moe_out = moe;
    return WEFT_OK;
}

static void free_held(weft_moe *moe, wefti_moe_held *held)
{
    free(held->experts);
    free(held->weights);
    free(held->relayed);
    free(held->places);
    free(held->row_weights);
    free(held->out_rows[0]);
    weft_device_free(moe->config.device, held->expert_rows);
    weft_device_free(moe->config.device, held->rows);
    weft_device_free(moe->config.device, held->kept);
}

void weft_moe_destroy(weft_moe *moe)
{
    if (!moe) {
        return;
    }
    if (moe->done) { /* calls use all that follows; a failure is told there */
        (void)!weft_event_wait(moe->done, NULL);
    }
    weft_stream_destroy(moe->own);
    weft_event_destroy(moe->done);
    weft_gate_destroy(moe->counted);
    for (int i = 0; moe->held && i < moe->config.batches; i++) {
        free_held(moe, &moe->held[i]);
    }
    for (int hop = 0; hop < WEFTI_MOE_HOPS_MOST; hop++) {
        weft_device_free(moe->config.device, moe->hops[hop].gone);
        free(moe->hops[hop].out.begins);
        free(moe->hops[hop].in.begins);
        weft_device_free(moe->config.device, moe->hops[hop].out.memory);
        weft_device_free(moe->config.device, moe->hops[hop].in.memory);
    }
    weft_device_free(moe->config.device, moe->tables);
    free(moe->held);
    free(moe->counts);
    free(moe->products);
    free(moe->sum);
    wefti_moe_layout_fini(&moe->layout);
    free(moe);
}
