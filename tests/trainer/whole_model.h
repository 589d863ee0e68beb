/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/trainer/whole_model.h - the decoder by itself, without a pipeline and
 * transfers: tokens in, logits, losses and gradients out.
 *
 *   tokens --> embedding --> layer 0 .. L-1 --> norm --> head --> logits
 *
 * A model is one stage, and an encoder's layers one before it, from the first
 * layer to the last (trainer/model/stage.h) with the activations of one
 * micro-batch; parameters and gradients are the caller's. Passes allocate
 * nothing.
 */
#ifndef TESTS_TRAINER_WHOLE_MODEL_H
#define TESTS_TRAINER_WHOLE_MODEL_H

#include "trainer/model/stage.h"

typedef struct wefti_model wefti_model;

/*
 * wefti_model_create - room for micro-batches of up to sequences sequences of
 * wefti_model_positions() tokens, which are as wefti_stage_batch wants them.
 *
 * plan      borrowed for the model's life.
 *
 * Returns   OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_model_create(const wefti_parameters *plan,
                                              size_t sequences,
                                              wefti_model **model_out);
void wefti_model_destroy(wefti_model *model); /* NULL is legal */

/* Where a group's array begins in a model's: they are one behind the other. */
size_t wefti_model_start(const wefti_parameters *plan, size_t group);

/*
 * wefti_model_predict - logits of every token.
 *
 * values       flat parameters, as planned.
 * logits_out   [sequences length][vocab], the model's, until the next pass.
 *
 * Returns      OK | the first error of a hook.
 */
WEFT_NODISCARD weft_status wefti_model_predict(wefti_model *model,
                                               const real *values,
                                               const wefti_micro_batch *batch,
                                               const wefti_model_hooks *hooks,
                                               const real **logits_out);

/*
 * wefti_model_evaluate - the sum of each sequence's token losses, in nats.
 *
 * losses_out   [sequences].
 */
WEFT_NODISCARD weft_status wefti_model_evaluate(wefti_model *model,
                                                const real *values,
                                                const wefti_micro_batch *batch,
                                                const wefti_model_hooks *hooks,
                                                double *losses_out);

/*
 * wefti_model_train - the same, and the gradient of scale * (sum of all token
 * losses) by every parameter.
 *
 * gradients    flat as planned; the tensors are overwritten, padding is left.
 */
WEFT_NODISCARD weft_status wefti_model_train(
    wefti_model *model, const real *values, const wefti_micro_batch *batch,
    double scale, const wefti_model_hooks *hooks, real *gradients,
    double *losses_out);

/* Bytes of activations and scratch. */
size_t wefti_model_get_arena_bytes(const wefti_model *model);

#endif
