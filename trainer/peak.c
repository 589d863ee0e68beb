/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/peak.c - counts what a token takes, and times a product.
 */
#include "trainer/peak.h"

#include "base/clock.h"
#include "base/error.h"
#include "kernels/math/math_table.h"
#include "weft/op.h"

#include <stdlib.h>

enum { SIDE = 768, LASTS_NS = 100000000 };

double wefti_peak_operations(const wefti_parameters *plan, bool causal)
{
    const wefti_model_shape *shape = &plan->shape;
    double parameters = 0, keys = (double)shape->seq;
    double chosen = /* of all experts, those of a token */
        shape->experts > 0
            ? (double)shape->experts_per_token / (double)shape->experts
            : 0;
    for (size_t t = 0; t < plan->tensor_count; t++) {
        const wefti_tensor_info *info = &plan->tensors[t].info;
        if (info->kind == WEFTI_TENSOR_INPUT ||
            info->kind == WEFTI_TENSOR_OUTPUT) {
            parameters += (double)wefti_tensor_elems(info) *
                          (info->split == WEFTI_SPLIT_EXPERT ? chosen : 1);
        }
    }
    parameters += (double)shape->vocab * (double)shape->hidden; /* the head */
    if (causal) {
        keys = (keys + 1) / 2;
    }
    return 6 * parameters + 12 * (double)shape->layers * keys *
                                (double)shape->heads * (double)shape->head_dim;
}

/* Products of sides * sides matrices, one after the other. */
static double time_products(real *room)
{
    const wefti_math *math = wefti_math_get();
    const size_t elems = (size_t)SIDE * SIDE;
    double count = 0;
    int64_t begin_ns = 0, now_ns = 0;
    for (int64_t k = 0; k < 2 || now_ns - begin_ns < LASTS_NS; k++) {
        if (k == 1) {
            begin_ns = wefti_clock_ns(); /* the first one warms up */
        }
        math->gemm(false, true, SIDE, SIDE, SIDE, 1, room, SIDE, room + elems,
                   SIDE, 0, room + 2 * elems, SIDE);
        count += k > 0;
        now_ns = wefti_clock_ns();
    }
    return count * 2 * (double)elems * SIDE /
           (1e-9 * (double)(now_ns - begin_ns));
}

weft_status wefti_peak_measure(weft_comm *comm, double *rate_out)
{
    const size_t elems = (size_t)SIDE * SIDE;
    real *room = calloc(3 * elems, sizeof(*room));
    double mine[2] = {0, room == NULL}, all[2];
    for (size_t i = 0; room && i < 2 * elems; i++) {
        room[i] = (real)((double)(i % 17) / 16 - 0.5);
    }
    weft_status status = weft_barrier(comm, NULL);
    if (status == WEFT_OK && room) {
        mine[0] = time_products(room);
    }
    free(room);
    if (status == WEFT_OK) {
        status = weft_allreduce(mine, all, 2, WEFT_DTYPE_F64, WEFT_REDOP_SUM,
                                comm, NULL);
    }
    if (status == WEFT_OK && all[1] > 0) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "a rank has no memory to measure a product in");
    }
    if (status == WEFT_OK) {
        *rate_out = all[0];
    }
    return status;
}
