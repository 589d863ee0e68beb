/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/layer.h - one decoder layer, forward and backward.
 *
 *   input ----+--> norm --> qkv --> rope --> attention --> out --+--> middle
 *             +-------------------------------------------------+
 *   middle ---+--> norm --> gate, up --> silu(gate) up --> down --+--> output
 *             +--------------------------------------------------+
 *
 * Activations are [tokens][width], tokens = sequences * length, a sequence's
 * tokens in a row.
 *
 * What reads the layer's input first and what writes its output last, forward
 * and backward, runs in chunks of WEFTI_LAYER_CHUNK_ROWS rows, so that a chunk
 * can be used before the next has arrived. It always does, at every layer:
 * products of other shapes have other bits.
 *
 * The backward is two halves. The first makes the gradient of the input and
 * leaves in state what the second needs; the second makes those of the
 * weights, any time later.
 *
 * Source: Touvron et al. 2023 (LLaMA, arXiv 2302.13971); Ainslie et al. 2023
 * (grouped queries, arXiv 2305.13245).
 */
#ifndef TRAINER_MODEL_LAYER_H
#define TRAINER_MODEL_LAYER_H

#include "kernels/math/math_table.h"
#include "trainer/model/linear.h"
#include "trainer/model/parameters.h"

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

enum { WEFTI_LAYER_CHUNK_ROWS = 128 };

/*
 * What a layer keeps from forward to backward; and, after |, from the
 * backward's first half to the second.
 */
typedef struct wefti_layer_state {
    real *input;            /* [tokens][hidden] */
    real *attention_normed; /* [tokens][hidden] */
    real *attention_rstd;   /* [tokens] */
    real *qkv;              /* [tokens][(heads + 2 kv_heads) head_dim]
                               | its gradient */
    real *attended;         /* [tokens][heads head_dim] */
    real *lse;              /* [tokens][heads] */
    real *middle;           /* [tokens][hidden] | its gradient */
    real *ffn_normed;       /* [tokens][hidden] */
    real *ffn_rstd;         /* [tokens] */
    real *gate_up;          /* [tokens][2 ffn] | its gradient */
    real *gated;            /* [tokens][ffn] */
    real *output_gradient;  /* | [tokens][hidden]; may be where output was */
    real *attention_norm_gradient; /* | [hidden], of its weights */
    real *ffn_norm_gradient;       /* | [hidden] */
} wefti_layer_state;

/* One micro-batch on its way through the model. */
typedef struct wefti_model_pass {
    const wefti_math *math;
    const wefti_parameters *plan;
    const real *values; /* flat parameters */
    real *gradients;    /* flat, of this micro-batch alone */
    size_t sequences;
    size_t length; /* tokens of each sequence */
    const wefti_model_hooks *hooks;
    const real *rope; /* [length][head_dim] cosines and sines */
    real *wide;       /* [tokens][max(2 ffn, qkv)] scratch */
    real *narrow;     /* [tokens][max(hidden, heads head_dim)] scratch */
    real *delta;      /* [tokens][heads] scratch */
    real *attention_scratch;
} wefti_model_pass;

/* Both return the first error of a hook. */
WEFT_NODISCARD weft_status wefti_pass_use(const wefti_model_pass *pass,
                                          size_t tensor);
WEFT_NODISCARD weft_status wefti_pass_finish(const wefti_model_pass *pass,
                                             size_t tensor);

/* Where a tensor's values and gradients are. */
const real *wefti_pass_values(const wefti_model_pass *pass, size_t tensor);
real *wefti_pass_gradients(const wefti_model_pass *pass, size_t tensor);

/* A layer's tensor; which: of trainer/model/layer_tensors.h. */
size_t wefti_pass_tensor(const wefti_model_pass *pass, size_t layer,
                         size_t which);

/* The linear map of one of the plan's matrices, of all rows. */
wefti_linear wefti_pass_linear(const wefti_model_pass *pass, size_t tensor);

/* The rows of the chunk that begins at row first. */
size_t wefti_pass_chunk(const wefti_model_pass *pass, size_t first);

weft_status wefti_row_hook_call(const wefti_row_hook *rows, size_t rows_end);

/* The attention of one sequence, and the width of a row of qkv. */
wefti_attention wefti_layer_attention(const wefti_model_shape *shape,
                                      size_t length);
size_t wefti_layer_qkv_width(const wefti_model_shape *shape);

/* Elements of attention_scratch for sequences of up to length tokens. */
size_t wefti_layer_scratch_elems(const wefti_model_shape *shape, size_t length);

#define WEFTI_NORM_EPSILON WEFTI_REAL(1e-6)

/*
 * wefti_layer_forward - state->input is given; writes the rest of state, and
 * the layer's output.
 *
 * arriving   called before rows of the input are read
 * leaving    called after rows of the output are written
 */
WEFT_NODISCARD weft_status wefti_layer_forward(const wefti_model_pass *pass,
                                               size_t layer,
                                               const wefti_layer_state *state,
                                               real *output,
                                               const wefti_row_hook *arriving,
                                               const wefti_row_hook *leaving);

/*
 * wefti_layer_backward_inputs - turns the gradient of the output in place into
 * that of the input.
 *
 * arriving   called before rows of the output's gradient are read
 * leaving    called after rows of the input's gradient are written
 */
WEFT_NODISCARD weft_status wefti_layer_backward_inputs(
    const wefti_model_pass *pass, size_t layer, const wefti_layer_state *state,
    real *gradient, const wefti_row_hook *arriving,
    const wefti_row_hook *leaving);

/* wefti_layer_backward_weights - the gradients of the layer's tensors. */
WEFT_NODISCARD weft_status wefti_layer_backward_weights(
    const wefti_model_pass *pass, size_t layer, const wefti_layer_state *state);

#endif
