/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/layer.h - one decoder layer, forward and backward.
 *
 *   input ----+--> norm --> qkv --> rope --> attention --> out --+--> middle
 *             +-------------------------------------------------+
 *   middle ---+--> norm --> gate, up --> silu(gate) up --> down --+--> output
 *             +--------------------------------------------------+
 *
 * Activations are [tokens][width], tokens = sequences * length, a sequence's
 * tokens in a row.
 *
 * Source: Touvron et al. 2023 (LLaMA, arXiv 2302.13971); Ainslie et al. 2023
 * (grouped queries, arXiv 2305.13245).
 */
#ifndef TRAINER_LAYER_H
#define TRAINER_LAYER_H

#include "kernels/math/math_table.h"
#include "trainer/parameters.h"

/*
 * Told what the model is about to read and what it has finished: where the
 * overlap of transfers with compute hooks in. Forward uses tensors in their
 * order, backward finishes their gradients in the opposite order; each is told
 * once a micro-batch. An error ends the pass. NULL slots are legal.
 */
typedef struct wefti_model_hooks {
    void *context;
    weft_status (*use)(void *context, size_t tensor);
    weft_status (*finish)(void *context, size_t tensor);
} wefti_model_hooks;

/* What a layer keeps from forward to backward. */
typedef struct wefti_layer_state {
    real *input;            /* [tokens][hidden] */
    real *attention_normed; /* [tokens][hidden] */
    real *attention_rstd;   /* [tokens] */
    real *qkv;              /* [tokens][(heads + 2 kv_heads) head_dim] */
    real *attended;         /* [tokens][heads head_dim] */
    real *lse;              /* [tokens][heads] */
    real *middle;           /* [tokens][hidden] */
    real *ffn_normed;       /* [tokens][hidden] */
    real *ffn_rstd;         /* [tokens] */
    real *gate_up;          /* [tokens][2 ffn] */
    real *gated;            /* [tokens][ffn] */
} wefti_layer_state;

/* One micro-batch on its way through the model. */
typedef struct wefti_pass {
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
} wefti_pass;

/* Both return the first error of a hook. */
WEFT_NODISCARD weft_status wefti_pass_use(const wefti_pass *pass,
                                          size_t tensor);
WEFT_NODISCARD weft_status wefti_pass_finish(const wefti_pass *pass,
                                             size_t tensor);

/* Where a tensor's values and gradients are. */
const real *wefti_pass_values(const wefti_pass *pass, size_t tensor);
real *wefti_pass_gradients(const wefti_pass *pass, size_t tensor);

/* Elements of attention_scratch for sequences of up to length tokens. */
size_t wefti_layer_scratch_elems(const wefti_shape *shape, size_t length);

#define WEFTI_NORM_EPSILON WEFTI_REAL(1e-6)

/*
 * wefti_layer_forward - state->input is given; writes the rest of state, and
 * the layer's output.
 */
WEFT_NODISCARD weft_status wefti_layer_forward(const wefti_pass *pass,
                                               size_t layer,
                                               const wefti_layer_state *state,
                                               real *output);

/*
 * wefti_layer_backward - turns the gradient of the output in place into that
 * of the input, and writes the gradients of the layer's tensors. state's
 * gate_up is used up.
 */
WEFT_NODISCARD weft_status wefti_layer_backward(const wefti_pass *pass,
                                                size_t layer,
                                                const wefti_layer_state *state,
                                                real *gradient);

#endif
