/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/program_run.h - carrying a program out.
 *
 * A step's nodes are called one after the other; those by rows for each chunk
 * of the program's chunk_rows, always: products of other shapes have other
 * bits.
 */
#ifndef TRAINER_PROGRAM_PROGRAM_RUN_H
#define TRAINER_PROGRAM_PROGRAM_RUN_H

#include "trainer/model/documents.h"
#include "trainer/model/tensor_list.h"
#include "trainer/program/program.h"
#include "trainer/program/score.h"
#include "weft/bucket.h"
#include "weft/comm.h"
#include "weft/device.h"

#include <stdint.h>

/*
 * Called with what the model is about to read and what it has finished: where
 * the overlap of transfers with compute hooks in. Forward uses tensors in their
 * order, backward finishes their gradients in the opposite order; each is
 * reported once a micro-batch. An error ends the pass. NULL slots are legal.
 */
typedef struct wefti_model_hooks {
    void *context;
    weft_status (*use)(void *context, size_t tensor);
    weft_status (*finish)(void *context, size_t tensor);
} wefti_model_hooks;

/*
 * Called when rows 0 .. rows_end - 1 of an activation are about to be read, or
 * are final. call NULL: none.
 */
typedef struct wefti_row_hook {
    void *context;
    weft_status (*call)(void *context, size_t rows_end);
} wefti_row_hook;

/*
 * An activation, or its gradient, on the way from or to another stage.
 *
 * rows   [tokens][hidden]; NULL at the ends of the model
 * hook   input: before rows are read; output: after they are written
 */
typedef struct wefti_stage_port {
    void *rows; /* of the program's type */
    wefti_row_hook hook;
} wefti_stage_port;

/*
 * One micro-batch, borrowed.
 *
 * tokens    [sequences][length], below the vocabulary; for the first stage
 * targets   [sequences][length]; negative: does not count. For the last one;
 *           NULL where only logits are wanted.
 * documents of the whole sequences, of which these may be a part
 */
typedef struct wefti_micro_batch {
    const int32_t *tokens;
    const int32_t *targets;
    size_t sequences;
    size_t length;
    wefti_documents documents;
} wefti_micro_batch;

/*
 * A communicator to which nodes post, and where.
 *
 * beside    its operations run on this stream, beside compute; NULL: on
 *           compute, and what waits for them comes behind
 * mode      of the step: as opened; BLOCKING: nothing goes on beside compute;
 *           OFF: nothing is exchanged, and values stay as they are
 * stop, resume   called around what this thread waits for; NULL slots are legal
 * score     what is posted and awaited is noted there; NULL: it is not
 */
typedef struct wefti_node_link {
    weft_comm *comm;
    weft_stream *beside;
    weft_bucket_mode mode;
    void *context;
    void (*stop)(void *context);
    void (*resume)(void *context);
    wefti_score *score;
} wefti_node_link;

/* Which of them a node posts to. */
typedef enum wefti_node_link_kind {
    WEFTI_LINK_TENSOR,
    WEFTI_LINK_CONTEXT,
    WEFTI_LINK_EXPERTS,
    WEFTI_LINKS
} wefti_node_link_kind;

/* An operation on the way: trainer/program/node_comm.h. */
typedef struct wefti_node_flight {
    weft_gate *gate;  /* chunk 0: compute has come to it; 1: it is done */
    weft_gate *parts; /* the rows of each part: made, or here; NULL: whole */
    uint64_t epoch;
} wefti_node_flight;

/*
 * One pass of a program, and what it works on, in memory of its device; all
 * borrowed.
 *
 * compute   where its nodes queue their work; NULL: the host computes, here and
 *           now
 * idle      nothing is computed, only exchanged: values mean nothing
 * again_ns  time in steps that run again is added there; NULL: it is not
 */
typedef struct wefti_program_pass {
    const wefti_program *program;
    weft_device *device;
    weft_stream *compute;
    const wefti_micro_batch *batch;
    /* Flat, by group; gradients of this micro-batch alone. */
    const void *parameters[WEFTI_TENSOR_GROUPS_MOST];
    real *gradients[WEFTI_TENSOR_GROUPS_MOST];
    const wefti_model_hooks *hooks;
    const real *rope; /* [attended tokens][head_dim] cosines and sines */
    const struct wefti_context_link *link; /* NULL: sequences are whole */
    size_t slot;                           /* the micro-batch's */
    struct wefti_experts *experts; /* of other ranks; NULL: there are none */
    double *loads; /* [layers][experts] added to in I; NULL: not wanted */
    real *regions[WEFTI_REGIONS];
    wefti_stage_port input, output;
    /* [WEFTI_LINKS]; NULL: nothing is exchanged, and values stay as they are */
    const wefti_node_link *links;
    wefti_node_flight *flights; /* of F and of I of each operation */
    bool idle;
    int64_t *again_ns;
} wefti_program_pass;

/* What a node's call gets. */
struct wefti_node_args {
    const wefti_program_pass *pass;
    const wefti_node *node;
    void *values[WEFTI_NODE_OPERANDS]; /* from row first on */
    size_t widths[WEFTI_NODE_OPERANDS];
    const void *parameters[WEFTI_NODE_PARAMETERS];
    real *gradients[WEFTI_NODE_PARAMETERS];
    size_t first, rows; /* of the call */
    bool begins, ends;  /* it is the step's first, its last */
    bool waits;         /* of an AWAIT: it may not return INPROGRESS */
};

/* Whether nodes exchange anything by a link. */
static inline bool wefti_node_exchanges(const wefti_program_pass *pass,
                                        wefti_node_link_kind link)
{
    return pass->links && pass->links[link].mode != WEFT_BUCKET_OFF;
}

/* Where a value of a pass is, from its first row. */
void *wefti_program_at(const wefti_program_pass *pass, size_t value);

/*
 * wefti_program_run - all steps of an order.
 *
 * Returns     OK | the first error of a node or a hook.
 */
WEFT_NODISCARD weft_status wefti_program_run(const wefti_program_pass *pass,
                                             const wefti_order *order);

/* How far a step is that was left at an AWAIT; zero: not begun. */
typedef struct wefti_program_mark {
    bool begun;
    size_t first; /* row of the chunk; by parts: how many are done */
    size_t done;  /* nodes of it */
} wefti_program_mark;

/*
 * wefti_program_step_run - goes on with a step. Returns OK | INPROGRESS (an
 * AWAIT is not satisfied; not with waits) | an error.
 */
WEFT_NODISCARD weft_status wefti_program_step_run(
    const wefti_program_pass *pass, const wefti_program_step *step, bool waits,
    wefti_program_mark *mark);

#endif
