/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/block_join.c - where the encoder's branch ends in the
 * decoder's: what has come from it stands before the text of the same sequence.
 *
 *   from the encoder  [sequences][encoder_seq]  --+
 *                                                 +--> residual, of a sequence:
 *   tokens --> embed  [sequences][seq] -----------+    encoder_seq, then seq
 *
 * The table is the decoder's embedding, listed by its block. Tokens are
 * embedded before the encoder's rows are awaited.
 *
 * Where ranks share layers, a token's row is one rank's, and zero on the others
 * until they are summed, and so are the encoder's rows, which all have: the
 * first rank's count.
 */
#include "trainer/model/model_blocks.h"
#include "trainer/program/node_math.h"

enum { EMBED_X, EMBED_DX };
enum { JOIN_X, JOIN_TEXT, JOIN_DX, JOIN_DTEXT };

/* Tokens of a sequence: text that is generated may have fewer than the model's.
 */
static size_t count_text(const wefti_node_args *args)
{
    const wefti_model_shape *shape = args->node->context;
    return args->pass->batch->length - shape->encoder_seq;
}

/* The call on the rows of tokens alone, which lie side by side. */
static wefti_node_args of_text(const wefti_node_args *args)
{
    wefti_node_args own = *args;
    own.rows = args->pass->batch->sequences * count_text(args);
    return own;
}

static weft_status embed(const wefti_node_args *args)
{
    const wefti_model_shape *shape = args->node->context;
    const wefti_node_args own = of_text(args);
    return wefti_node_embedding_forward(&own, own.values[EMBED_X],
                                        own.parameters[0], shape->vocab,
                                        shape->hidden);
}

static weft_status embed_weights(const wefti_node_args *args)
{
    const wefti_model_shape *shape = args->node->context;
    const wefti_node_args own = of_text(args);
    weft_status status =
        wefti_node_clear(&own, own.gradients[0], shape->vocab * shape->hidden);
    return status == WEFT_OK
               ? wefti_node_embedding_backward(&own, own.gradients[0],
                                               own.values[EMBED_DX],
                                               shape->vocab, shape->hidden)
               : status;
}

/* A sequence's rows of one of the two, side by side or within all of them. */
static wefti_node_matrix rows_of(const wefti_node_args *args, const void *at,
                                 size_t skip, size_t rows)
{
    const wefti_model_shape *shape = args->node->context;
    return (wefti_node_matrix){wefti_node_skip(args, at, skip * shape->hidden),
                               rows * shape->hidden};
}

/* From the two parts, of the encoder and of the text, to all of each sequence;
 * or back. */
static weft_status copy_parts(const wefti_node_args *args, void *all,
                              void *encoded, void *text, bool back)
{
    const wefti_model_shape *shape = args->node->context;
    const size_t first = shape->encoder_seq, second = count_text(args);
    const wefti_node_matrix whole[2] = {
        rows_of(args, all, 0, first + second),
        rows_of(args, all, first, first + second)};
    const wefti_node_matrix parts[2] = {rows_of(args, encoded, 0, first),
                                        rows_of(args, text, 0, second)};
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < 2 && status == WEFT_OK; i++) {
        status = wefti_node_copy_rows(
            args, back ? &parts[i] : &whole[i], back ? &whole[i] : &parts[i],
            args->pass->batch->sequences, parts[i].stride, false);
    }
    return status;
}

/* All rows of the encoder: they are about to be read, or have been written. */
static weft_status announce(const wefti_node_args *args,
                            const wefti_stage_port *port)
{
    const wefti_model_shape *shape = args->node->context;
    return port->hook.call ? port->hook.call(port->hook.context,
                                             args->pass->batch->sequences *
                                                 shape->encoder_seq)
                           : WEFT_OK;
}

static weft_status join(const wefti_node_args *args)
{
    const wefti_stage_port *port = &args->pass->input;
    void *const *v = args->values;
    weft_status status = announce(args, port);
    return status == WEFT_OK
               ? copy_parts(args, v[JOIN_X], port->rows, v[JOIN_TEXT], false)
               : status;
}

/* On all ranks that share layers but the first, whose encoder's rows count. */
static weft_status join_text(const wefti_node_args *args)
{
    const wefti_model_shape *shape = args->node->context;
    const size_t first = shape->encoder_seq * shape->hidden;
    const size_t whole = first + count_text(args) * shape->hidden;
    weft_status status = join(args);
    for (size_t i = 0; i < args->pass->batch->sequences && status == WEFT_OK;
         i++) {
        status = wefti_node_clear_values(
            args, wefti_node_skip(args, args->values[JOIN_X], i * whole),
            first);
    }
    return status;
}

static weft_status divide(const wefti_node_args *args)
{
    const wefti_stage_port *port = &args->pass->output;
    void *const *v = args->values;
    weft_status status =
        copy_parts(args, v[JOIN_DX], port->rows, v[JOIN_DTEXT], true);
    return status == WEFT_OK ? announce(args, port) : status;
}

static void append(wefti_builder *builder)
{
    wefti_program *program = builder->program;
    const size_t hidden = builder->shape->hidden;
    const bool shares = wefti_builder_shares(builder);
    builder->residual = wefti_builder_add_residual(builder, "residual");
    builder->d_residual = wefti_builder_add_residual(builder, "d.residual.sum");
    size_t text = wefti_program_add_value(program, "embedded", hidden, true);
    size_t dtext = wefti_program_add_value(program, "d.embedded", hidden, true);
    wefti_program_add_node(
        program,
        &(wefti_node){.label = "embed",
                      .calls = {embed, NULL, embed_weights},
                      .context = builder->shape,
                      .operands = {[EMBED_X] = {text, WEFTI_F_WRITES},
                                   [EMBED_DX] = {dtext, WEFTI_W_READS}},
                      .operand_count = 2,
                      .parameters = {wefti_builder_take_tensor(builder)},
                      .parameter_count = 1});
    size_t joined =
        shares ? wefti_program_add_value(program, "joined", hidden, true)
               : builder->residual;
    wefti_program_add_node(
        program,
        &(wefti_node){
            .kind = WEFTI_NODE_AWAIT,
            .class_id = WEFT_CLASS_PP,
            .label = "join",
            .calls = {builder->plan->tensor.part > 0 ? join_text : join,
                      divide},
            .context = builder->shape,
            .operands = {[JOIN_X] = {joined, WEFTI_F_WRITES},
                         [JOIN_TEXT] = {text, WEFTI_F_READS},
                         [JOIN_DX] = {builder->d_residual, WEFTI_I_READS},
                         [JOIN_DTEXT] = {dtext, WEFTI_I_WRITES}},
            .operand_count = 4});
    if (shares) {
        wefti_append_leave(builder, WEFTI_WHOLE, joined, builder->d_residual,
                           builder->residual);
    }
}

/* Its tensor is the embedding's. */
const wefti_model_block wefti_join_block = {"join", NULL, append, NULL};
