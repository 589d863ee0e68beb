/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/attention_graph.h - attention as cuDNN's backend wants it: a graph of
 * simple operations, which one of its engines knows by its pattern, and the
 * plan that is made of it. A handle's own; of one thread at a time.
 *
 *     Q K^T -> scale -> [mask: row >= column] -> max -> sub -> exp -> sum
 *           -> / sum -> bf16 -> V -> O            max + log sum -> lse
 *
 *     dO O -> sum -> delta     Q K^T -> scale -> - lse -> [mask] -> exp = P
 *     P^T dO -> dV             dO V^T -> - delta -> P -> scale = dS
 *     dS^T Q -> dK             dS K -> dQ
 *
 * dQ is one product, not a sum in memory: it has the same bits each time, and
 * the engine's workspace is 2 bytes a query, key and head.
 *
 * Source    cuDNN 9 backend interface; the order of operations is that of
 *           NVIDIA's cudnn-frontend 1.x, scaled dot-product attention.
 */
#ifndef DEVICE_ATTENTION_GRAPH_H
#define DEVICE_ATTENTION_GRAPH_H

#include "device/cudnn_api.h"
#include "device/device.h"

/* The real tensors and the numbers of a plan. */
enum {
    WEFTI_ATTENTION_Q = 1,
    WEFTI_ATTENTION_K,
    WEFTI_ATTENTION_V,
    WEFTI_ATTENTION_O,
    WEFTI_ATTENTION_LSE,
    WEFTI_ATTENTION_DOUT, /* from here to DELTA: of the backward */
    WEFTI_ATTENTION_DQ,
    WEFTI_ATTENTION_DK,
    WEFTI_ATTENTION_DV,
    WEFTI_ATTENTION_DELTA,
    WEFTI_ATTENTION_SCALE,
    WEFTI_ATTENTION_HIDDEN, /* what a score becomes that no query may see */
    WEFTI_ATTENTION_ONE,    /* delta's factor */
    WEFTI_ATTENTION_IDS
};

enum { WEFTI_ATTENTION_DESCS = 128, WEFTI_ATTENTION_OPS = 24 };

typedef struct wefti_attention_plan {
    const wefti_cudnn_api *api;
    struct cudnnContext *handle;
    wefti_attention_call of; /* its pointers mean nothing */
    int status;              /* the first call that failed; 0: none */
    const char *what;        /* it was */
    void *descs[WEFTI_ATTENTION_DESCS]; /* all, in the order they were made */
    void *ops[WEFTI_ATTENTION_OPS];
    size_t desc_count, op_count;
    int64_t next_id; /* of tensors that are nowhere in memory */
    void *plan;      /* NULL: cuDNN does not do this one */
    int64_t workspace_bytes;
} wefti_attention_plan;

/* wefti_attention_plan_make - whether cuDNN has one for plan->of, on
 * plan->handle; else status and what say why not. wefti_attention_plan_end in
 * either case. It takes about a second. */
bool wefti_attention_plan_make(wefti_attention_plan *plan);
void wefti_attention_plan_end(wefti_attention_plan *plan);

/* Queues it on the handle's stream; returns cuDNN's status. */
int wefti_attention_plan_run(const wefti_attention_plan *plan,
                             const wefti_attention_call *call, void *workspace);

#endif
