/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/peak.c - counts what a token takes, and times a product.
 */
#include "trainer/peak.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/small_float.h"
#include "device/device.h"
#include "kernels/math/math_stream.h"
#include "kernels/math/real.h"
#include "weft/op.h"

#include <stdlib.h>

/* The side doubles as long as a product takes less than that, up to the most:
 * a GPU's rate is that of large ones. */
enum {
    LEAST_SIDE = 64,
    HOST_MOST = 1024,
    MOST_SIDE = 4096,
    ENOUGH_NS = 4000000,
    LASTS_NS = 100000000
};

/* Of a row that goes through all matrices of tensors first .. end - 1. */
static double count_tensors(const wefti_parameters *plan, size_t first,
                            size_t end)
{
    const wefti_model_shape *shape = &plan->shape;
    double parameters = 0;
    double chosen = /* of all experts, those of a token */
        shape->experts > 0
            ? (double)shape->experts_per_token / (double)shape->experts
            : 0;
    for (size_t t = first; t < end; t++) {
        const wefti_tensor_info *info = &plan->tensors[t].info;
        if (info->kind == WEFTI_TENSOR_INPUT ||
            info->kind == WEFTI_TENSOR_OUTPUT) {
            parameters += (double)wefti_tensor_elems(info) *
                          (info->split == WEFTI_SPLIT_EXPERT ? chosen : 1);
        }
    }
    return 6 * parameters;
}

/* Of a row of so many positions, in all layers of a branch. */
static double count_attention(const wefti_model_shape *shape, size_t positions,
                              bool causal)
{
    double keys = (double)positions;
    if (causal) {
        keys = (keys + 1) / 2;
    }
    return 12 * (double)shape->layers * keys * (double)shape->heads *
           (double)shape->head_dim;
}

double wefti_peak_operations(const wefti_parameters *plan, bool causal)
{
    const wefti_model_shape *shape = &plan->shape;
    const wefti_model_shape encoder = wefti_model_encoder(shape);
    const size_t first = wefti_tensor_embedding(plan); /* the decoder's */
    double sum = count_tensors(plan, first, plan->tensor_count) +
                 count_attention(shape, wefti_model_positions(shape), causal);
    sum *= (double)wefti_model_positions(shape) / (double)shape->seq;
    if (encoder.layers > 0) { /* which is not causal */
        sum += (double)encoder.seq / (double)shape->seq *
               (count_tensors(plan, 0, first) +
                count_attention(&encoder, encoder.seq, false));
    }
    /* The head. */
    return sum + 6 * (double)shape->vocab * (double)shape->hidden *
                     (double)wefti_model_positions(shape) / (double)shape->seq;
}

/* C = A times B's transpose; room for three of most * most. */
typedef struct trial {
    weft_stream *compute;
    weft_dtype dtype;
    size_t side, most;
    char *room;
} trial;

static weft_status multiply(const trial *one, int times)
{
    const size_t bytes = one->side * one->side * weft_dtype_bytes(one->dtype);
    wefti_math_tensor of[3];
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < 3; i++) {
        of[i] = wefti_math_rows(one->room + i * bytes, one->dtype, one->side,
                                one->side);
    }
    for (int k = 0; k < times && status == WEFT_OK; k++) {
        status = wefti_stream_gemm(one->compute, &of[2], &of[0], false, &of[1],
                                   true, 1, 0);
    }
    return status == WEFT_OK && one->compute ? weft_stream_wait(one->compute)
                                             : status;
}

static weft_status time_products(const trial *one, int times, int64_t *ns_out)
{
    const int64_t begin_ns = wefti_clock_ns();
    weft_status status = multiply(one, times);
    *ns_out = wefti_clock_ns() - begin_ns;
    return status;
}

/* Values that both types have: zeros may be multiplied faster. */
static void fill(void *host, weft_dtype dtype, size_t elems)
{
    for (size_t i = 0; i < elems; i++) {
        const float value = (float)(i % 17) / 16 - 0.5F;
        if (dtype == WEFT_DTYPE_BF16) {
            ((uint16_t *)host)[i] = wefti_bf16_narrow(value);
        } else {
            ((real *)host)[i] = (real)value;
        }
    }
}

/* The first product of a side warms up, the second one is timed. */
static weft_status find_side(trial *one, int64_t *ns_out)
{
    for (one->side = LEAST_SIDE;; one->side *= 2) {
        weft_status status = multiply(one, 1);
        if (status == WEFT_OK) {
            status = time_products(one, 1, ns_out);
        }
        if (status < 0 || *ns_out >= ENOUGH_NS || one->side == one->most) {
            return status;
        }
    }
}

/* As many as take the time, queued in rounds of ten. */
static weft_status find_rate(trial *one, double *rate_out)
{
    int64_t ns = 1, all_ns = 0;
    double count = 0;
    weft_status status = find_side(one, &ns);
    const int times = ns < LASTS_NS / 10 ? 10 : 1;
    while (status == WEFT_OK && all_ns < LASTS_NS) {
        status = time_products(one, times, &ns);
        all_ns += ns;
        count += times;
    }
    const double side = (double)one->side;
    *rate_out = count * 2 * side * side * side / (1e-9 * (double)all_ns);
    return status;
}

static weft_status try_on(weft_device *device, weft_stream *compute,
                          weft_dtype dtype, double *rate_out)
{
    const bool launches = wefti_device_can(device, WEFT_CAP_LAUNCHES);
    const size_t most = launches ? MOST_SIDE : HOST_MOST;
    const size_t elems = most * most, bytes = elems * weft_dtype_bytes(dtype);
    void *host = malloc(2 * bytes), *room = NULL;
    weft_status status =
        host ? weft_device_alloc(device, 3 * bytes, &room)
             : wefti_error(WEFT_ERR_NO_MEMORY, "no memory for two matrices");
    if (status == WEFT_OK) {
        fill(host, dtype, 2 * elems);
        status = weft_device_copy(device, room, host, 2 * bytes, NULL);
    }
    if (status == WEFT_OK) {
        trial one = {
            .compute = compute, .dtype = dtype, .most = most, .room = room};
        status = find_rate(&one, rate_out);
    }
    weft_device_free(device, room);
    free(host);
    return status;
}

weft_status wefti_peak_measure(weft_comm *comm, weft_device *device,
                               weft_stream *compute, weft_dtype dtype,
                               double *rate_out)
{
    double mine[2] = {0, 0}, all[2];
    weft_status status = weft_barrier(comm, NULL);
    if (status < 0) {
        return status;
    }
    weft_status own = try_on(device, compute, dtype, &mine[0]);
    mine[1] = own != WEFT_OK;
    status = weft_allreduce(mine, all, 2, WEFT_DTYPE_F64, WEFT_REDOP_SUM, comm,
                            NULL);
    if (status == WEFT_OK && own != WEFT_OK) {
        return own;
    }
    if (status == WEFT_OK && all[1] > 0) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "another rank could not measure a product");
    }
    if (status == WEFT_OK) {
        *rate_out = all[0];
    }
    return status;
}
