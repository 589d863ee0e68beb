/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_cudnn_run.c - the patterns of attention, and runs of them.
 */
#include "tests/fake/fake_cudnn_program.h"

#include "base/small_float.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef fake_dnn_tensor tensor;
typedef fake_dnn_step step;
typedef fake_dnn_arguments arguments;

void fake_dnn_demand(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "fake cuDNN: %s\n", what);
        abort();
    }
}

/* ---- patterns --------------------------------------------------------------
 */

/* When a step is part of the pattern. */
typedef enum when { ALWAYS, MASKED, SHARED } when;

typedef struct wanted {
    int kind, mode;
    when when;
} wanted;

#define POINT(name)                                                            \
    {                                                                          \
        WEFTI_DNN_OP_POINTWISE, WEFTI_DNN_##name, ALWAYS                       \
    }
#define MASK(name)                                                             \
    {                                                                          \
        WEFTI_DNN_OP_POINTWISE, WEFTI_DNN_##name, MASKED                       \
    }
#define REDUCE(name, n)                                                        \
    {                                                                          \
        WEFTI_DNN_OP_REDUCTION, WEFTI_DNN_REDUCE_##name, n                     \
    }
#define MATMUL                                                                 \
    {                                                                          \
        WEFTI_DNN_OP_MATMUL, -1, ALWAYS                                        \
    }
#define RESHAPE                                                                \
    {                                                                          \
        WEFTI_DNN_OP_RESHAPE, -1, ALWAYS                                       \
    }

static const wanted forward[] = {MATMUL,
                                 POINT(MUL),
                                 MASK(GEN_INDEX),
                                 MASK(GEN_INDEX),
                                 MASK(CMP_GE),
                                 MASK(SELECT),
                                 REDUCE(MAX, ALWAYS),
                                 POINT(SUB),
                                 POINT(EXP),
                                 REDUCE(ADD, ALWAYS),
                                 POINT(LOG),
                                 POINT(ADD),
                                 POINT(DIV),
                                 MATMUL};

/* dq is a product of its own: one that is summed up in memory is another. */
static const wanted backward[] = {POINT(MUL),
                                  REDUCE(ADD, ALWAYS),
                                  POINT(MUL),
                                  MATMUL,
                                  POINT(MUL),
                                  POINT(SUB),
                                  MASK(GEN_INDEX),
                                  MASK(GEN_INDEX),
                                  MASK(CMP_GE),
                                  MASK(SELECT),
                                  POINT(EXP),
                                  RESHAPE,
                                  MATMUL,
                                  REDUCE(ADD, SHARED),
                                  MATMUL,
                                  POINT(SUB),
                                  POINT(MUL),
                                  POINT(MUL),
                                  RESHAPE,
                                  MATMUL,
                                  REDUCE(ADD, SHARED),
                                  RESHAPE,
                                  MATMUL};

static bool is_like(const fake_dnn_program *p, const wanted *all, size_t count,
                    bool is_masked, bool is_shared)
{
    int at = 0;
    bool same = true;
    for (size_t i = 0; i < count && same; i++) {
        if ((all[i].when == MASKED && !is_masked) ||
            (all[i].when == SHARED && !is_shared)) {
            continue;
        }
        const step *s = &p->steps[at];
        same = at < p->step_count && s->kind == all[i].kind &&
               s->mode == all[i].mode;
        at++;
    }
    return same && at == p->step_count;
}

bool fake_dnn_is_attention(const fake_dnn_program *p)
{
    bool known = false;
    for (int form = 0; form < 4; form++) {
        const bool is_masked = form & 1, is_shared = form & 2;
        known = known ||
                is_like(p, forward, sizeof(forward) / sizeof(forward[0]),
                        is_masked, is_shared) ||
                is_like(p, backward, sizeof(backward) / sizeof(backward[0]),
                        is_masked, is_shared);
    }
    return known;
}

/* ---- runs ------------------------------------------------------------------
 */

static size_t offset_of(const tensor *t, const int64_t at[4])
{
    return (size_t)(at[0] * t->strides[0] + at[1] * t->strides[1] +
                    at[2] * t->strides[2] + at[3] * t->strides[3]);
}

/* Dimensions of 1 are for all; fewer heads are each for several. */
static double get(const arguments *args, const tensor *t, void *const real[],
                  const int64_t at[4], int64_t heads)
{
    if (t->by_value) {
        return (double)args->numbers[t->id - FAKE_DNN_REAL - 1];
    }
    const int64_t mine[4] = {
        t->dims[0] > 1 ? at[0] : 0, at[1] / (heads / t->dims[1]),
        t->dims[2] > 1 ? at[2] : 0, t->dims[3] > 1 ? at[3] : 0};
    const size_t i = offset_of(t, mine);
    const void *from = t->is_virtual ? NULL : real[t->id - 1];
    return t->is_virtual ? t->values[i]
           : t->type == WEFTI_CUDNN_BF16
               ? (double)wefti_bf16_widen(((const uint16_t *)from)[i])
               : (double)((const float *)from)[i];
}

static void put(const tensor *t, void *const real[], const int64_t at[4],
                double value)
{
    const size_t i = offset_of(t, at);
    const uint16_t small = wefti_bf16_narrow((float)value);
    if (t->is_virtual) {
        t->values[i] = t->type == WEFTI_CUDNN_BF16
                           ? (double)wefti_bf16_widen(small)
                           : (double)(float)value;
    } else if (t->type == WEFTI_CUDNN_BF16) {
        ((uint16_t *)real[t->id - 1])[i] = small;
    } else {
        ((float *)real[t->id - 1])[i] = (float)value;
    }
}

static double apply(const step *s, double x, double b, double t,
                    const int64_t at[4])
{
    return s->mode == WEFTI_DNN_MUL         ? x * b
           : s->mode == WEFTI_DNN_ADD       ? x + b
           : s->mode == WEFTI_DNN_SUB       ? x - b
           : s->mode == WEFTI_DNN_DIV       ? x / b
           : s->mode == WEFTI_DNN_EXP       ? exp(x)
           : s->mode == WEFTI_DNN_LOG       ? log(x)
           : s->mode == WEFTI_DNN_CMP_GE    ? x >= b
           : s->mode == WEFTI_DNN_GEN_INDEX ? (double)at[s->axis]
           : t != 0                         ? x
                                            : b;
}

/* Over the heads that share y's. */
static double sum_heads(const arguments *args, const tensor *x, const tensor *y,
                        void *const real[], const int64_t at[4])
{
    const int64_t each = x->dims[1] / y->dims[1];
    double sum = 0;
    for (int64_t h = 0; h < each; h++) {
        const int64_t from[4] = {at[0], at[1] * each + h, at[2], at[3]};
        sum += get(args, x, real, from, x->dims[1]);
    }
    return sum;
}

static double run_element(const arguments *args, const step *s, tensor *tensors,
                          void *const real[], const int64_t at[4])
{
    const tensor *x = &tensors[s->x], *y = &tensors[s->y];
    const int64_t heads = y->dims[1];
    const bool adds =
        s->kind != WEFTI_DNN_OP_REDUCTION || s->mode == WEFTI_DNN_REDUCE_ADD;
    double sum = adds ? 0 : -INFINITY;
    if (s->kind == WEFTI_DNN_OP_RESHAPE) {
        const int64_t turned[4] = {at[0], at[1], at[3], at[2]};
        fake_dnn_demand(x->dims[2] == y->dims[3] && x->dims[3] == y->dims[2],
                        "a reshape that weft has no use for");
        return get(args, x, real, turned, heads);
    }
    if (s->kind == WEFTI_DNN_OP_REDUCTION && heads < x->dims[1]) {
        return sum_heads(args, x, y, real, at);
    }
    if (s->kind == WEFTI_DNN_OP_POINTWISE) {
        const bool needs_b = s->b >= 0, needs_t = s->t >= 0;
        return apply(s, get(args, x, real, at, heads),
                     needs_b ? get(args, &tensors[s->b], real, at, heads) : 0,
                     needs_t ? get(args, &tensors[s->t], real, at, heads) : 0,
                     at);
    }
    for (int64_t l = 0; l < x->dims[3]; l++) {
        const int64_t left[4] = {at[0], at[1], at[2], l};
        const int64_t right[4] = {at[0], at[1], l, at[3]};
        const double value = get(args, x, real, left, heads);
        if (s->kind == WEFTI_DNN_OP_MATMUL) {
            sum += value * get(args, &tensors[s->b], real, right, heads);
        } else {
            sum = adds ? sum + value : fmax(sum, value);
        }
    }
    return sum;
}

static void run_step(const arguments *args, const step *s, tensor *tensors,
                     void *const real[])
{
    const tensor *y = &tensors[s->y];
    int64_t at[4];
    for (at[0] = 0; at[0] < y->dims[0]; at[0]++) {
        for (at[1] = 0; at[1] < y->dims[1]; at[1]++) {
            for (at[2] = 0; at[2] < y->dims[2]; at[2]++) {
                for (at[3] = 0; at[3] < y->dims[3]; at[3]++) {
                    put(y, real, at, run_element(args, s, tensors, real, at));
                }
            }
        }
    }
}

size_t fake_dnn_elems(const tensor *t)
{
    const int64_t last[4] = {t->dims[0] - 1, t->dims[1] - 1, t->dims[2] - 1,
                             t->dims[3] - 1};
    return offset_of(t, last) + 1;
}

void fake_dnn_run(const void *given, void *const real[FAKE_HOST_PARTS])
{
    const arguments *args = given;
    tensor tensors[FAKE_DNN_TENSORS];
    memcpy(tensors, args->of->tensors, sizeof(tensors));
    for (int i = 0; i < args->of->tensor_count; i++) {
        if (tensors[i].is_virtual) {
            tensors[i].values =
                calloc(fake_dnn_elems(&tensors[i]), sizeof(double));
            fake_dnn_demand(tensors[i].values != NULL, "no memory");
        }
    }
    memset(real[FAKE_DNN_REAL], 0x55, FAKE_DNN_WORKSPACE_BYTES);
    for (int i = 0; i < args->of->step_count; i++) {
        run_step(args, &args->of->steps[i], tensors, real);
    }
    for (int i = 0; i < args->of->tensor_count; i++) {
        free(tensors[i].values);
    }
}
