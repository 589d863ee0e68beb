/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/model_blocks.h - what a stage is made of: each block lists its
 * tensors and appends its values and nodes to the stage's program.
 *
 *   embedding | attention ffn | attention ffn | ... | head
 *
 * Where the model has an encoder, that is a branch before it:
 *
 *   embedding | attention ffn | ... | bridge >--+
 *                                        join --+--> | attention ffn | ... |
 * head
 *
 * Of a mixture of experts, experts are in ffn's place. A block of a decoder
 * layer is a file of its own and a line in the lists below.
 * It reads the residual stream, writes the next, and in its backward turns the
 * gradient of what it wrote into that of what it read, in place:
 *
 *   residual ---+--> ... --+--> residual        d.residual, one for all blocks
 *               +----------+
 */
#ifndef TRAINER_MODEL_MODEL_BLOCKS_H
#define TRAINER_MODEL_MODEL_BLOCKS_H

#include "trainer/model/parameters.h"
#include "trainer/program/program.h"

struct wefti_model_block;

typedef struct wefti_builder {
    wefti_program *program;
    const wefti_parameters *plan;   /* borrowed by the nodes */
    const wefti_model_shape *shape; /* what is here of the branch: plan's */
    const struct wefti_model_block *block; /* the one being appended */
    size_t layer;
    size_t tensor;               /* the next one of the module's */
    size_t residual, d_residual; /* values */
} wefti_builder;

/*
 * entry   what is before the first exchange of ranks that share a layer, which
 *         is a block of its own then (trainer/model/shared_nodes.c); NULL: none
 */
typedef struct wefti_model_block {
    const char *name;
    void (*list)(wefti_tensor_list *list, const wefti_model_shape *shape,
                 size_t layer);
    void (*append)(wefti_builder *builder);
    const char *entry;
} wefti_model_block;

/* Those of a decoder layer, in order; X(name): wefti_<name>_block. */
#define WEFTI_LAYER_BLOCK_LIST(X)                                              \
    X(attention)                                                               \
    X(ffn)
#define WEFTI_EXPERT_LAYER_BLOCK_LIST(X)                                       \
    X(attention)                                                               \
    X(experts)

#define WEFTI_BLOCK_DECLARE(name)                                              \
    extern const wefti_model_block wefti_##name##_block;
WEFTI_BLOCK_DECLARE(embedding)
WEFTI_LAYER_BLOCK_LIST(WEFTI_BLOCK_DECLARE)
WEFTI_BLOCK_DECLARE(experts)
WEFTI_BLOCK_DECLARE(head)
WEFTI_BLOCK_DECLARE(bridge) /* the encoder's end */
WEFTI_BLOCK_DECLARE(join)   /* the decoder's beginning behind it */
#undef WEFTI_BLOCK_DECLARE

/* Those of a model's layers; NULL after the last. */
const wefti_model_block *const *
wefti_layer_blocks(const wefti_model_shape *shape);

/* Lists a layer's tensor: name and pieces get the layer's prefix, rows are the
 * sum of the pieces'. */
void wefti_layer_list_tensor(wefti_tensor_list *list, size_t layer,
                             const wefti_tensor_info *info);

/* The next tensor of the module, in the order in which the block lists them. */
wefti_node_parameter wefti_builder_take_tensor(wefti_builder *builder);

/* ---- nodes that several blocks have ---------------------------------------
 */

/*
 * Whether F and I run by rows (program.h). OWN: whole, with a matrix that all
 * ranks which share a layer have whole, and on the rows that this one has of
 * the residual.
 */
typedef enum wefti_node_rows {
    WEFTI_WHOLE,
    WEFTI_BY_ROWS,
    WEFTI_BY_PARTS,
    WEFTI_OWN
} wefti_node_rows;

/*
 * RMSNorm of the residual; d_normed is the gradient of what it returns. first
 * writes d_residual, others add to it.
 */
size_t wefti_append_norm(wefti_builder *builder, wefti_node_rows rows,
                         size_t d_normed, bool first);

/*
 * y = x W^T, of the next tensor. dy and dx are their gradients; dy may be y,
 * where that has become it.
 */
void wefti_append_linear(wefti_builder *builder, const char *label,
                         wefti_node_rows rows, size_t x, size_t dx, size_t y,
                         size_t dy);

/* residual + x W^T, of the next tensor, is the next residual. */
void wefti_append_residual(wefti_builder *builder, const char *label,
                           wefti_node_rows rows, size_t x, size_t dx);

/* ---- ranks that share a layer: shared_nodes.c -----------------------------
 */

/* Whether there are several; and whether they share the residual's rows. */
bool wefti_builder_shares(const wefti_builder *builder);
bool wefti_builder_shares_rows(const wefti_builder *builder);

/* A value of the rows that this rank has of the residual; one as wide. */
size_t wefti_builder_add_own(wefti_builder *builder, const char *name,
                             size_t width);
size_t wefti_builder_add_residual(wefti_builder *builder, const char *name);

/* What the first matrix of a block reads, of all rows, and its gradient. */
typedef struct wefti_map_input {
    size_t x, dx;
    wefti_node_rows rows; /* how the matrix goes through them */
} wefti_map_input;

/* From what the norm returns; what follows is in the block itself. */
wefti_map_input wefti_append_entry(wefti_builder *builder, wefti_node_rows rows,
                                   size_t normed, size_t d_normed);

/*
 * partial, of all rows, made in turns of rows, becomes sum, over all ranks;
 * kept is the gradient of all rows, where ranks share them, else not touched.
 */
void wefti_append_leave(wefti_builder *builder, wefti_node_rows rows,
                        size_t partial, size_t kept, size_t sum);

/* As wefti_append_residual, where each rank has some of the inputs. */
void wefti_append_shared_residual(wefti_builder *builder, const char *label,
                                  size_t x, size_t dx);

/* ---- a stage's edges ------------------------------------------------------
 */

/* The residual comes from another stage, or goes there. */
void wefti_append_receive(wefti_builder *builder);
void wefti_append_send(wefti_builder *builder);

/*
 * wefti_stage_append - the program of layers first_layer .. layers_end - 1 of
 * the chain, all of one branch, with the branch's ends where they are there.
 * *logits_out: the last stage's.
 */
void wefti_stage_append(wefti_program *program, const wefti_parameters *plan,
                        size_t first_layer, size_t layers_end,
                        size_t *logits_out);

#endif
