/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/stage.h - a run of the decoder's layers, which a pipeline's
 * rank has or, from the first layer to the last, the whole model.
 *
 *   input --+--> layer a .. b-1 --+--> output
 *   tokens -+ (a = 0)             +--> norm --> head --> loss (b = layers)
 *
 * A model with an encoder is a chain of two branches, whose rows differ; a
 * stage is of one of them.
 *
 * What is inside is a program of nodes (trainer/model/model_blocks.h). A
 * micro-batch's activations live in a slot from its forward to the backward of
 * its weights; slots are the caller's, which may share them among the stages of
 * a rank, and passes allocate nothing. The backward is in two halves, I for
 * inputs and W for weights; B is both, block by block, with the same bits.
 *
 *     F writes the slot,   I adds what W needs,   W reads it
 *
 * Rows go in and out by chunks of wefti_stage_chunk_rows, so that the next
 * stage can begin when its first chunk is there.
 */
#ifndef TRAINER_MODEL_STAGE_H
#define TRAINER_MODEL_STAGE_H

#include "trainer/model/workspace.h"
#include "trainer/program/program_run.h"

/*
 * A host's rows stay in a core's cache from one node to the next. A GPU works
 * on all of a chunk at once: less than its multiprocessors have room for leaves
 * them idle, and each launch takes some microseconds; so many rows still lie in
 * its L2 cache.
 */
enum {
    WEFTI_LAYER_CHUNK_ROWS = WEFTI_PROGRAM_CHUNK_ROWS,
    WEFTI_LAYER_CHUNK_ROWS_OF_GPU = 2048
};

/* Of the stages of a device. */
size_t wefti_stage_chunk_rows(const weft_device *device);

typedef struct wefti_stage wefti_stage;

/*
 * plan         holds the stage's tensors at least; borrowed
 * workspace    borrowed; its number of sequences is the stage's. The stage
 *              reserves there what its passes need
 * first_layer, layers_end   which layers of the chain, of one branch; at least
 *              one
 * slots        micro-batches between forward and W at a time, at most
 * arenas       [slots]: each has room for the stage's slot, on a cache line's
 *              start; the memory is borrowed
 * recompute, together, keeps   trainer/program/program.h: how it is planned
 */
typedef struct wefti_stage_config {
    const wefti_parameters *plan;
    wefti_workspace *workspace;
    size_t first_layer, layers_end;
    size_t slots;
    real *const *arenas;
    wefti_recompute recompute;
    bool together, keeps;
} wefti_stage_config;

/*
 * What a pass works on. F reads activations from input and writes them to
 * output; I and B read the output's gradient from input and write the input's
 * to output; W uses neither.
 *
 * values      parameters, by group, as planned
 * gradients   W, B: by group; the stage's tensors are overwritten
 * slot        the micro-batch's, below config.slots
 */
typedef struct wefti_stage_pass {
    const wefti_micro_batch *batch;
    const void *values[WEFTI_TENSOR_GROUPS_MOST];
    real *gradients[WEFTI_TENSOR_GROUPS_MOST];
    const wefti_model_hooks *hooks;
    size_t slot;
    wefti_stage_port input, output;
} wefti_stage_pass;

/*
 * Elements of a slot; of config arenas and slots do not count. Without memory
 * to plan it, more than any machine has.
 */
size_t wefti_stage_slot_elems(const wefti_stage_config *config);

/* Returns OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_stage_create(const wefti_stage_config *config,
                                              wefti_stage **stage_out);
void wefti_stage_destroy(wefti_stage *stage); /* NULL is legal */

/* wefti_program_agree of its program. */
WEFT_NODISCARD weft_status wefti_stage_agree(const wefti_stage *stage,
                                             weft_comm *comm,
                                             weft_class class_id);

bool wefti_stage_is_last(const wefti_stage *stage);

/* Rows of a sequence that this rank has in a part of the model. */
size_t wefti_stage_length(const wefti_parameters *plan,
                          const wefti_layer_run *part);

/*
 * wefti_stage_batch - a micro-batch as the stage gets it. Of a model with an
 * encoder tokens are the encoder's, [sequences][encoder_seq], and behind them
 * the text's, [sequences][seq]; length is that of a sequence of both.
 */
wefti_micro_batch wefti_stage_batch(const wefti_stage *stage,
                                    const wefti_micro_batch *all);

/*
 * F, I, W and B. The last stage's F ends with logits; measure them before its I
 * or B.
 *
 * Return      OK | the first error of a hook or a port.
 */
WEFT_NODISCARD weft_status wefti_stage_forward(wefti_stage *stage,
                                               const wefti_stage_pass *pass);
WEFT_NODISCARD weft_status
wefti_stage_backward_inputs(wefti_stage *stage, const wefti_stage_pass *pass);
WEFT_NODISCARD weft_status
wefti_stage_backward_weights(wefti_stage *stage, const wefti_stage_pass *pass);
WEFT_NODISCARD weft_status wefti_stage_backward(wefti_stage *stage,
                                                const wefti_stage_pass *pass);

/*
 * wefti_stage_pair - F of one and B of another micro-batch, woven by the
 * template (trainer/program/weave.h); the stages may be two or the same, of one
 * workspace. As F and then B, but for the order.
 */
WEFT_NODISCARD weft_status wefti_stage_pair(wefti_stage *forward_stage,
                                            const wefti_stage_pass *forward,
                                            wefti_stage *backward_stage,
                                            const wefti_stage_pass *backward);

/* The logits of a slot of the last stage, [tokens][vocab], after its F. */
const void *wefti_stage_logits(const wefti_stage *stage, size_t slot);

/*
 * wefti_stage_measure - after F of the last stage: each token's loss, in nats;
 * and with trains the gradient of scale * (sum of all), for I or B, in the
 * place of the logits.
 *
 * losses_out   [tokens], of the device
 */
WEFT_NODISCARD weft_status wefti_stage_measure(wefti_stage *stage,
                                               const wefti_stage_pass *pass,
                                               bool trains, double scale,
                                               real *losses_out);

#endif
