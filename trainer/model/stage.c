/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/stage.c - a stage's slots and passes.
 *
 * In a slot the residual stream of a layer is the input of its state; what the
 * last layer puts out has its own place, and is read there only by the head.
 * The gradient of a layer's output is kept for W where that output was: at the
 * input of the next layer, whose backward no longer needs it.
 */
#include "trainer/model/stage.h"

#include "base/check.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

typedef struct kept {
    wefti_layer_state *layers; /* [layers of the stage] */
    real *output;              /* [tokens][hidden]: of the last layer */
    /* Only of the last stage: */
    real *normed;        /* [tokens][hidden]: what the head reads */
    real *rstd;          /* [tokens] */
    real *logits;        /* [tokens][vocab] | their gradient */
    real *norm_gradient; /* | [hidden] */
} kept;

struct wefti_stage {
    wefti_stage_config config;
    size_t layers;
    kept *slots;
    wefti_layer_state *states; /* [slots][layers] */
};

/* A pass under way. */
typedef struct job {
    wefti_stage *stage;
    const wefti_stage_pass *how;
    kept *slot;
    wefti_model_pass pass;
} job;

static bool is_first(const wefti_stage *stage)
{
    return stage->config.first_layer == 0;
}

bool wefti_stage_is_last(const wefti_stage *stage)
{
    return stage->config.layers_end == stage->config.plan->shape.layers;
}

static void carve_layer(const wefti_model_shape *shape, size_t tokens,
                        real *base, size_t *used, wefti_layer_state *state)
{
    size_t queries = shape->heads * shape->head_dim;
    size_t qkv = wefti_layer_qkv_width(shape);
    state->input = wefti_arena_take(base, used, tokens * shape->hidden);
    state->attention_normed =
        wefti_arena_take(base, used, tokens * shape->hidden);
    state->attention_rstd = wefti_arena_take(base, used, tokens);
    state->qkv = wefti_arena_take(base, used, tokens * qkv);
    state->attended = wefti_arena_take(base, used, tokens * queries);
    state->lse = wefti_arena_take(base, used, tokens * shape->heads);
    state->middle = wefti_arena_take(base, used, tokens * shape->hidden);
    state->ffn_normed = wefti_arena_take(base, used, tokens * shape->hidden);
    state->ffn_rstd = wefti_arena_take(base, used, tokens);
    state->gate_up = wefti_arena_take(base, used, tokens * 2 * shape->ffn);
    state->gated = wefti_arena_take(base, used, tokens * shape->ffn);
    state->attention_norm_gradient =
        wefti_arena_take(base, used, shape->hidden);
    state->ffn_norm_gradient = wefti_arena_take(base, used, shape->hidden);
}

/* Without a base it only counts. */
static size_t carve_slot(const wefti_stage *stage, real *base, kept *slot)
{
    const wefti_model_shape *shape = &stage->config.plan->shape;
    size_t tokens = stage->config.workspace->sequences * shape->seq;
    size_t used = 0;
    wefti_layer_state uncounted;
    for (size_t i = 0; i < stage->layers; i++) {
        carve_layer(shape, tokens, base, &used,
                    base ? &slot->layers[i] : &uncounted);
    }
    slot->output = wefti_arena_take(base, &used, tokens * shape->hidden);
    if (wefti_stage_is_last(stage)) {
        slot->normed = wefti_arena_take(base, &used, tokens * shape->hidden);
        slot->rstd = wefti_arena_take(base, &used, tokens);
        slot->logits = wefti_arena_take(base, &used, tokens * shape->vocab);
        slot->norm_gradient = wefti_arena_take(base, &used, shape->hidden);
    }
    for (size_t i = 0; base && i < stage->layers; i++) {
        slot->layers[i].output_gradient =
            i + 1 < stage->layers ? slot->layers[i + 1].input : slot->output;
    }
    return used;
}

static wefti_stage describe(const wefti_stage_config *config)
{
    WEFTI_ASSERT(config->first_layer < config->layers_end);
    return (wefti_stage){.config = *config,
                         .layers = config->layers_end - config->first_layer};
}

size_t wefti_stage_slot_elems(const wefti_stage_config *config)
{
    const wefti_stage stage = describe(config);
    kept none;
    return carve_slot(&stage, NULL, &none);
}

weft_status wefti_stage_create(const wefti_stage_config *config,
                               wefti_stage **stage_out)
{
    wefti_stage *stage = malloc(sizeof(*stage));
    if (!stage) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a stage");
    }
    *stage = describe(config);
    stage->slots = calloc(config->slots, sizeof(*stage->slots));
    stage->states =
        calloc(config->slots * stage->layers, sizeof(*stage->states));
    if (!stage->slots || !stage->states) {
        wefti_stage_destroy(stage);
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu slots",
                           config->slots);
    }
    for (size_t i = 0; i < config->slots; i++) {
        stage->slots[i].layers = stage->states + i * stage->layers;
        (void)carve_slot(stage, config->arenas[i], &stage->slots[i]);
    }
    *stage_out = stage;
    return WEFT_OK;
}

void wefti_stage_destroy(wefti_stage *stage)
{
    if (stage) {
        free(stage->states);
        free(stage->slots);
        free(stage);
    }
}

static job begin(wefti_stage *stage, const wefti_stage_pass *how)
{
    const wefti_workspace *space = stage->config.workspace;
    const wefti_micro_batch *batch = how->batch;
    WEFTI_ASSERT(how->slot < stage->config.slots);
    WEFTI_ASSERT(batch->sequences <= space->sequences);
    WEFTI_ASSERT(batch->length <= stage->config.plan->shape.seq);
    return (job){.stage = stage,
                 .how = how,
                 .slot = &stage->slots[how->slot],
                 .pass = {.math = space->math,
                          .plan = stage->config.plan,
                          .values = how->values,
                          .gradients = how->gradients,
                          .sequences = batch->sequences,
                          .length = batch->length,
                          .hooks = how->hooks,
                          .rope = space->rope,
                          .wide = space->wide,
                          .narrow = space->narrow,
                          .delta = space->delta,
                          .attention_scratch = space->attention_scratch}};
}

/* Rows between a port and the place in which the stage works on them. */
typedef struct piece_copy {
    const wefti_stage_port *port;
    real *place;
    size_t hidden;
    size_t done; /* rows */
} piece_copy;

static weft_status bring(void *context, size_t rows_end)
{
    piece_copy *own = context;
    weft_status status = wefti_row_hook_call(&own->port->hook, rows_end);
    size_t start = own->done * own->hidden;
    memcpy(own->place + start, own->port->rows + start,
           (rows_end - own->done) * own->hidden * sizeof(real));
    own->done = rows_end;
    return status;
}

static weft_status take_away(void *context, size_t rows_end)
{
    piece_copy *own = context;
    size_t start = own->done * own->hidden;
    memcpy(own->port->rows + start, own->place + start,
           (rows_end - own->done) * own->hidden * sizeof(real));
    own->done = rows_end;
    return wefti_row_hook_call(&own->port->hook, rows_end);
}

static piece_copy piece_copy_make(const job *work, const wefti_stage_port *port,
                                  real *place)
{
    return (piece_copy){
        .port = port, .place = place, .hidden = work->pass.plan->shape.hidden};
}

static size_t tokens_of(const job *work)
{
    return work->pass.sequences * work->pass.length;
}

static wefti_linear head_of(const job *work)
{
    const wefti_model_shape *shape = &work->pass.plan->shape;
    return (wefti_linear){work->pass.math, tokens_of(work), shape->vocab,
                          shape->hidden};
}

/* Whether the head is the embedding, and both are this stage's. */
static bool is_tied(const job *work)
{
    return wefti_tensor_head(work->pass.plan) == wefti_tensor_embedding();
}

/* The first stage's input, before its first layer. */
static weft_status embed(job *work)
{
    const wefti_model_pass *pass = &work->pass;
    const wefti_model_shape *shape = &pass->plan->shape;
    size_t embedding = wefti_tensor_embedding();
    weft_status status = wefti_pass_use(pass, embedding);
    if (status == WEFT_OK) {
        pass->math->embedding_forward(work->slot->layers[0].input,
                                      wefti_pass_values(pass, embedding),
                                      work->how->batch->tokens, tokens_of(work),
                                      shape->vocab, shape->hidden);
    }
    return status;
}

/* The last layer's output to logits. */
static weft_status head_forward(job *work)
{
    const wefti_model_pass *pass = &work->pass;
    size_t norm = wefti_tensor_final_norm(pass->plan);
    size_t head = wefti_tensor_head(pass->plan);
    weft_status status = wefti_pass_use(pass, norm);
    if (status == WEFT_OK && !is_tied(work)) {
        status = wefti_pass_use(pass, head);
    }
    if (status != WEFT_OK) {
        return status;
    }
    pass->math->rmsnorm_forward(work->slot->normed, work->slot->rstd,
                                work->slot->output,
                                wefti_pass_values(pass, norm), tokens_of(work),
                                pass->plan->shape.hidden, WEFTI_NORM_EPSILON);
    wefti_linear linear = head_of(work);
    wefti_linear_forward(&linear, work->slot->normed,
                         wefti_pass_values(pass, head), work->slot->logits,
                         false);
    return WEFT_OK;
}

/* The index-th layer of the stage, with what comes before and after it. */
static weft_status forward_layer(job *work, size_t index)
{
    wefti_stage *stage = work->stage;
    kept *slot = work->slot;
    const wefti_stage_port *input = &work->how->input;
    const wefti_stage_port *output = &work->how->output;
    bool last = index + 1 == stage->layers;
    real *out = last ? slot->output : slot->layers[index + 1].input;
    piece_copy to_here = piece_copy_make(work, input, slot->layers[0].input);
    wefti_row_hook arriving = {&to_here, bring};
    weft_status status = WEFT_OK;
    bool enters = index == 0 && !is_first(stage);
    bool leaves = last && !wefti_stage_is_last(stage);
    if (index == 0 && !enters) {
        status = embed(work);
    }
    if (status == WEFT_OK) {
        status = wefti_layer_forward(
            &work->pass, stage->config.first_layer + index,
            &slot->layers[index], leaves ? output->rows : out,
            enters ? &arriving : NULL, leaves ? &output->hook : NULL);
    }
    if (status == WEFT_OK && last && !leaves) {
        status = head_forward(work);
    }
    return status;
}

/* From the gradient of the logits to that of the last layer's output. */
static void head_backward_inputs(job *work)
{
    const wefti_model_pass *pass = &work->pass;
    const wefti_workspace *space = work->stage->config.workspace;
    size_t norm = wefti_tensor_final_norm(pass->plan);
    size_t head = wefti_tensor_head(pass->plan);
    size_t hidden = pass->plan->shape.hidden;
    wefti_linear linear = head_of(work);
    wefti_linear_input_gradient(&linear, work->slot->logits,
                                wefti_pass_values(pass, head), space->narrow);
    pass->math->fill(work->slot->norm_gradient, WEFTI_REAL(0), hidden);
    pass->math->rmsnorm_backward(
        space->gradient, work->slot->norm_gradient, space->narrow,
        work->slot->output, wefti_pass_values(pass, norm), work->slot->rstd,
        tokens_of(work), hidden, false);
}

static weft_status head_backward_weights(job *work)
{
    const wefti_model_pass *pass = &work->pass;
    size_t norm = wefti_tensor_final_norm(pass->plan);
    size_t head = wefti_tensor_head(pass->plan);
    wefti_linear linear = head_of(work);
    weft_status status = WEFT_OK;
    wefti_linear_weight_gradient(&linear, work->slot->logits,
                                 work->slot->normed,
                                 wefti_pass_gradients(pass, head));
    if (!is_tied(work)) {
        status = wefti_pass_finish(pass, head);
    }
    if (status != WEFT_OK) {
        return status;
    }
    memcpy(wefti_pass_gradients(pass, norm), work->slot->norm_gradient,
           pass->plan->shape.hidden * sizeof(real));
    return wefti_pass_finish(pass, norm);
}

static weft_status embedding_backward(job *work)
{
    const wefti_model_pass *pass = &work->pass;
    const wefti_model_shape *shape = &pass->plan->shape;
    size_t embedding = wefti_tensor_embedding();
    real *dtable = wefti_pass_gradients(pass, embedding);
    if (!is_tied(work)) { /* else the head's share is in it already */
        pass->math->fill(dtable, WEFTI_REAL(0), shape->vocab * shape->hidden);
    }
    pass->math->embedding_backward(dtable, work->slot->layers[0].input,
                                   work->how->batch->tokens, tokens_of(work),
                                   shape->vocab, shape->hidden);
    return wefti_pass_finish(pass, embedding);
}

/* The head's part first, where the layer is the last. */
static weft_status inputs_of_layer(job *work, size_t index)
{
    wefti_stage *stage = work->stage;
    real *gradient = stage->config.workspace->gradient;
    bool enters = index + 1 == stage->layers && !wefti_stage_is_last(stage);
    bool leaves = index == 0 && !is_first(stage);
    piece_copy to_here = piece_copy_make(work, &work->how->input, gradient);
    piece_copy from_here = piece_copy_make(work, &work->how->output, gradient);
    wefti_row_hook arriving = {&to_here, bring};
    wefti_row_hook leaving = {&from_here, take_away};
    if (index + 1 == stage->layers && !enters) {
        head_backward_inputs(work);
    }
    weft_status status = wefti_layer_backward_inputs(
        &work->pass, stage->config.first_layer + index,
        &work->slot->layers[index], gradient, enters ? &arriving : NULL,
        leaves ? &leaving : NULL);
    if (index == 0 && !leaves) { /* for the embedding's W */
        memcpy(work->slot->layers[0].input, gradient,
               tokens_of(work) * work->pass.plan->shape.hidden *
                   sizeof(*gradient));
    }
    return status;
}

static weft_status weights_of_layer(job *work, size_t index)
{
    wefti_stage *stage = work->stage;
    weft_status status = WEFT_OK;
    if (index + 1 == stage->layers && wefti_stage_is_last(stage)) {
        status = head_backward_weights(work);
    }
    if (status == WEFT_OK) {
        status = wefti_layer_backward_weights(&work->pass,
                                              stage->config.first_layer + index,
                                              &work->slot->layers[index]);
    }
    if (status == WEFT_OK && index == 0 && is_first(stage)) {
        status = embedding_backward(work);
    }
    return status;
}

static weft_status backward_layer(job *work, size_t index)
{
    weft_status status = inputs_of_layer(work, index);
    return status == WEFT_OK ? weights_of_layer(work, index) : status;
}

weft_status wefti_stage_forward(wefti_stage *stage,
                                const wefti_stage_pass *pass)
{
    job work = begin(stage, pass);
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < stage->layers && status == WEFT_OK; i++) {
        status = forward_layer(&work, i);
    }
    return status;
}

/* From the last layer down. */
static weft_status descend(wefti_stage *stage, const wefti_stage_pass *pass,
                           weft_status (*act)(job *work, size_t index))
{
    job work = begin(stage, pass);
    weft_status status = WEFT_OK;
    for (size_t i = stage->layers; i > 0 && status == WEFT_OK; i--) {
        status = act(&work, i - 1);
    }
    return status;
}

weft_status wefti_stage_backward_inputs(wefti_stage *stage,
                                        const wefti_stage_pass *pass)
{
    return descend(stage, pass, inputs_of_layer);
}

weft_status wefti_stage_backward_weights(wefti_stage *stage,
                                         const wefti_stage_pass *pass)
{
    return descend(stage, pass, weights_of_layer);
}

weft_status wefti_stage_backward(wefti_stage *stage,
                                 const wefti_stage_pass *pass)
{
    return descend(stage, pass, backward_layer);
}

weft_status wefti_stage_pair(wefti_stage *forward_stage,
                             const wefti_stage_pass *forward,
                             wefti_stage *backward_stage,
                             const wefti_stage_pass *backward)
{
    job up = begin(forward_stage, forward);
    job down = begin(backward_stage, backward);
    size_t left = backward_stage->layers;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < forward_stage->layers && status == WEFT_OK; i++) {
        status = forward_layer(&up, i);
        if (status == WEFT_OK && left > 0) {
            status = backward_layer(&down, --left);
        }
    }
    while (left > 0 && status == WEFT_OK) {
        status = backward_layer(&down, --left);
    }
    return status;
}

const real *wefti_stage_logits(const wefti_stage *stage, size_t slot)
{
    return stage->slots[slot].logits;
}

void wefti_stage_measure(wefti_stage *stage, const wefti_stage_pass *pass,
                         bool trains, double scale, double *losses_out)
{
    const wefti_micro_batch *batch = pass->batch;
    const wefti_workspace *space = stage->config.workspace;
    real *logits = stage->slots[pass->slot].logits;
    space->math->cross_entropy(space->token_loss, trains ? logits : NULL,
                               logits, batch->targets,
                               batch->sequences * batch->length,
                               stage->config.plan->shape.vocab, (real)scale);
    for (size_t i = 0; i < batch->sequences; i++) {
        losses_out[i] = 0;
        for (size_t t = 0; t < batch->length; t++) {
            losses_out[i] += (double)space->token_loss[i * batch->length + t];
        }
    }
}
