/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/moe_device.c - jobs of weft/moe.h as kernels (wire_rows.cu there):
 * what these keep, and their launches. Nothing here waits: how many rows have
 * come the kernels read from what the engine wrote before them.
 */
#include "base/check.h"
#include "base/error.h"
#include "device/device.h"
#include "overlap/moe_core.h"
#include "overlap/moe_row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGN_BYTES = 64,
    LANES = 32, /* threads of a warp */
    BLOCKS_OF_MULTIPROCESSOR = 4
};

/* ---- memory ---------------------------------------------------------------
 */

/* A stretch of memory that is parted; base NULL: to see how much it takes. */
typedef struct carver {
    unsigned char *base;
    size_t used;
} carver;

static void *carve(carver *from, size_t count, size_t elem_bytes)
{
    void *made = from->base ? from->base + from->used : NULL;
    const size_t bytes = count * elem_bytes;
    from->used += (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    return made;
}

/* In the order of nodes, and of ranks in each. */
static int turn_of(const wefti_moe_layout *layout, int rank)
{
    return layout->begins[layout->nodes[rank]] + layout->indices[rank];
}

/* What the host knows, for memory of the device of the same parts. */
static void fill_tables(const weft_moe *moe, wefti_rows_args *tables)
{
    const size_t begins_bytes = (size_t)moe->nranks * sizeof(size_t);
    for (int rank = 0; rank < moe->nranks; rank++) {
        ((int32_t *)tables->nodes)[rank] = moe->layout.nodes[rank];
        ((int32_t *)tables->turns)[rank] = turn_of(&moe->layout, rank);
    }
    memcpy((size_t *)tables->out_begins, moe->hops[0].out.begins, begins_bytes);
    memcpy((size_t *)tables->in_begins, moe->hops[0].in.begins, begins_bytes);
    *tables->trouble = 0;
}

static void lay_tables(const weft_moe *moe, carver *from,
                       wefti_rows_args *tables)
{
    const size_t nranks = (size_t)moe->nranks;
    tables->nodes = carve(from, nranks, sizeof(*tables->nodes));
    tables->turns = carve(from, nranks, sizeof(*tables->turns));
    tables->out_begins = carve(from, nranks, sizeof(*tables->out_begins));
    tables->in_begins = carve(from, nranks, sizeof(*tables->in_begins));
    tables->trouble = carve(from, 1, sizeof(*tables->trouble));
}

/* Rows that can come to this rank. */
static size_t rows_most(const weft_moe *moe)
{
    return moe->hops[0].in.begins[moe->nranks] / moe->stride;
}

weft_status wefti_moe_device_make(weft_moe *moe)
{
    wefti_rows_args tables;
    carver sized = {NULL, 0};
    lay_tables(moe, &sized, &tables);
    carver here = {calloc(1, sized.used), 0};
    if (!here.base) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes",
                           sized.used);
    }
    lay_tables(moe, &here, &tables);
    fill_tables(moe, &tables);
    weft_status status =
        weft_device_alloc(moe->config.device, sized.used, &moe->tables);
    if (status == WEFT_OK) {
        status = weft_device_copy(moe->config.device, moe->tables, here.base,
                                  sized.used, NULL);
    }
    free(here.base);
    return status;
}

static void lay_held(const weft_moe *moe, carver *from, wefti_rows_args *kept)
{
    const size_t slots = (size_t)moe->config.slots;
    const size_t sent = moe->config.tokens * slots;
    const size_t come = rows_most(moe) * slots;
    const size_t nranks = (size_t)moe->nranks;
    kept->kept_experts = carve(from, sent, sizeof(*kept->kept_experts));
    kept->kept_weights = carve(from, sent, sizeof(*kept->kept_weights));
    kept->sent = carve(from, sent, sizeof(*kept->sent));
    kept->out_rows = carve(from, nranks, sizeof(*kept->out_rows));
    kept->firsts = carve(from, nranks + 1, sizeof(*kept->firsts));
    kept->here = carve(from, come, sizeof(*kept->here));
    kept->places = carve(from, come, sizeof(*kept->places));
    kept->row_weights = carve(from, come, sizeof(*kept->row_weights));
    kept->products = carve(from, come, sizeof(*kept->products));
}

weft_status wefti_moe_device_held(weft_moe *moe, wefti_moe_held *held)
{
    const weft_moe_config *own = &moe->config;
    const wefti_moe_hop *hop = &moe->hops[0];
    carver sized = {NULL, 0}, tables = {moe->tables, 0};
    held->kernels =
        (wefti_rows_args){.nranks = (size_t)moe->nranks,
                          .experts = (size_t)own->experts,
                          .experts_here = (size_t)moe->experts_here,
                          .slots = (size_t)own->slots,
                          .hidden = own->hidden,
                          .capacity = own->capacity,
                          .out_bytes = hop->out.begins[moe->nranks],
                          .in_bytes = hop->in.begins[moe->nranks],
                          .rows_most = rows_most(moe),
                          .rank = moe->rank,
                          .rounded = own->combine_dtype != WEFT_DTYPE_F32,
                          .out = hop->out.memory,
                          .in = hop->in.memory,
                          .expert_rows = held->expert_rows,
                          .gone = hop->gone,
                          .come = hop->come};
    lay_held(moe, &sized, &held->kernels);
    weft_status status =
        weft_device_alloc(own->device, sized.used, &held->kept);
    carver there = {held->kept, 0};
    lay_held(moe, &there, &held->kernels);
    lay_tables(moe, &tables, &held->kernels);
    return status;
}

/* ---- launches -------------------------------------------------------------
 */

/* verb, or verb and the type of rows; items take a warp each. */
static weft_status launch(weft_stream *stream, const wefti_rows_args *args,
                          const char *verb, weft_dtype dtype, size_t items)
{
    char name[64];
    const int sms = weft_stream_get_sms(stream);
    const size_t most = (size_t)(sms > 0 ? sms : 1) * BLOCKS_OF_MULTIPROCESSOR;
    const size_t blocks = items * LANES / WEFTI_LAUNCH_THREADS + 1;
    snprintf(name, sizeof(name), "wefti_rows_%s%s%s", verb,
             dtype == WEFT_DTYPE_COUNT ? "" : "_",
             dtype == WEFT_DTYPE_COUNT ? "" : weft_dtype_text(dtype));
    return wefti_stream_launch(
        stream,
        &(wefti_launch){.kernel = name,
                        .blocks = (unsigned)(blocks < most ? blocks : most),
                        .threads = WEFTI_LAUNCH_THREADS,
                        .args = args,
                        .args_bytes = sizeof(*args)});
}

/* Verbs that are one behind another, NULL at the end. */
static weft_status launch_all(weft_stream *stream, const wefti_rows_args *args,
                              const char *const *verbs, size_t items)
{
    weft_status status = WEFT_OK;
    for (; *verbs && status == WEFT_OK; verbs++) {
        status = launch(stream, args, *verbs, WEFT_DTYPE_COUNT, items);
    }
    return status;
}

static weft_status pack(weft_stream *stream, const wefti_moe_job *job,
                        wefti_rows_args *args)
{
    static const char *const route[] = {"route", NULL};
    static const char *const none[] = {NULL};
    const size_t slots = args->tokens * args->slots;
    args->expert = job->expert;
    args->weight = job->weight;
    weft_status status = launch_all(
        stream, args, args->header_bytes ? route : none, args->nranks + slots);
    return status == WEFT_OK
               ? launch(stream, args, "pack", job->moe->config.dtype, slots)
               : status;
}

static weft_status expand(weft_stream *stream, const wefti_moe_job *job,
                          wefti_rows_args *args)
{
    static const char *const verbs[] = {"arrive", "unpack", "order", NULL};
    args->to = job->held->rows;
    weft_status status =
        launch_all(stream, args, verbs, args->rows_most + args->experts_here);
    return status == WEFT_OK
               ? launch(stream, args, "expand", job->moe->config.dtype,
                        args->rows_most * args->slots)
               : status;
}

weft_status wefti_moe_device_post(weft_stream *stream, const wefti_moe_job *job)
{
    const weft_moe *moe = job->moe;
    const weft_dtype dtype = moe->config.dtype;
    const bool is_token = job->row == WEFTI_MOE_ROW_TOKEN;
    wefti_rows_args args = job->held->kernels;
    args.tokens = job->held->tokens;
    args.row_bytes = moe->row_bytes[job->row];
    args.header_bytes =
        is_token ? wefti_moe_header_bytes(moe->config.slots) : 0;
    args.quantised = is_token && moe->config.dispatch_dtype != dtype;
    args.weighted = job->weighted;
    args.of_slots = job->row == WEFTI_MOE_ROW_SLOTS;
    args.from = job->from;
    args.other = job->other;
    args.to = job->to;
    const size_t slots_in = args.rows_most * args.slots;
    switch (job->step) {
    case WEFTI_MOE_PACK:
        return pack(stream, job, &args);
    case WEFTI_MOE_EXPAND:
        return expand(stream, job, &args);
    case WEFTI_MOE_EXPAND_GRADIENT:
        return launch(stream, &args, "part", dtype, slots_in);
    case WEFTI_MOE_REDUCE:
        return launch(stream, &args, "reduce", dtype, slots_in);
    case WEFTI_MOE_FINISH:
        return launch(stream, &args, "finish", dtype, args.tokens * args.slots);
    default:
        WEFTI_ASSERT(!"two hops by kernels");
        return WEFT_ERR_UNSUPPORTED;
    }
}
