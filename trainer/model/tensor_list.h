/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/tensor_list.h - which tensors a model has: their names, whole
 * shapes and types, and how each may be cut. Nothing here depends on the number
 * of ranks, on buckets or on a pipeline.
 *
 *   modules   embedding | layer 0 | layer 1 | ... | end
 *   tensors   0         | 1 .. 6  | 7 .. 12 | ... | norm, head
 *
 * Those of an encoder stand before: embedding | layer 0 | ... | bridge.
 *
 * Blocks list their own tensors (model_blocks.h), so that another one needs no
 * change here; numbers are those of the list.
 */
#ifndef TRAINER_MODEL_TENSOR_LIST_H
#define TRAINER_MODEL_TENSOR_LIST_H

#include "kernels/math/real.h"
#include "trainer/model/context.h"
#include "weft/status.h"
#include "weft/types.h"

#include <stdbool.h>
#include <stddef.h>

/* The model's sizes; head_dim * heads need not be hidden. */
typedef struct wefti_model_shape {
    size_t layers; /* of the decoder */
    size_t hidden;
    size_t heads;
    size_t kv_heads;
    size_t head_dim;
    size_t ffn;
    size_t vocab;
    size_t seq; /* tokens of a sequence */
    /* A branch before the decoder: layers over bytes of their own, whose
     * positions stand before a sequence's tokens; 0 layers: none. */
    size_t encoder_layers, encoder_seq;
    bool sees_all; /* it is that branch: attention is not causal */
    double rope_theta;
    bool tied;             /* the head is the embedding */
    bool narrow;           /* weights and activations are bf16 */
    wefti_context context; /* what of each sequence this rank has */
    /* Of a mixture of experts; experts 0: a dense model. */
    size_t experts, experts_per_token; /* of width ffn, like the shared ones */
    size_t shared_experts;             /* that every token goes to */
    size_t expert_groups, group_limit; /* kernels/math/route.h; 0 counts as 1 */
    bool expert_narrow; /* tokens go to experts of other ranks in f8e4m3 */
    size_t expert_room; /* rows of a rank's experts for each token of its own
                           that there is room for; 0: for all that can come */
} wefti_model_shape;

/* Of weights and activations. */
static inline weft_dtype wefti_model_dtype(const wefti_model_shape *shape)
{
    return shape->narrow ? WEFT_DTYPE_BF16 : WEFTI_REAL_DTYPE;
}

/* How many elements of real have room for so many of them. */
static inline size_t wefti_model_elems(const wefti_model_shape *shape,
                                       size_t elems)
{
    const size_t bytes = elems * weft_dtype_bytes(wefti_model_dtype(shape));
    return (bytes + sizeof(real) - 1) / sizeof(real);
}

/* Layers of both branches, in a chain: the encoder's, then the decoder's. */
static inline size_t wefti_model_layers(const wefti_model_shape *shape)
{
    return shape->encoder_layers + shape->layers;
}

/* Positions of a sequence in the decoder: the encoder's, then its tokens. */
static inline size_t wefti_model_positions(const wefti_model_shape *shape)
{
    return shape->encoder_seq + shape->seq;
}

/* The vocabulary of the encoder: bytes. */
enum { WEFTI_MODEL_BYTES = 256 };

/* The encoder as a model of its own, of shape's sizes. */
wefti_model_shape wefti_model_encoder(const wefti_model_shape *shape);

/* What a tensor is, which decides its start values and weight decay. */
typedef enum wefti_tensor_kind {
    WEFTI_TENSOR_EMBEDDING, /* small noise, no decay */
    WEFTI_TENSOR_NORM,      /* a vector: ones, no decay */
    WEFTI_TENSOR_INPUT,     /* reads the residual: noise by fan-in, decay */
    WEFTI_TENSOR_OUTPUT,    /* writes to it: less by depth, decay */
    WEFTI_TENSOR_HEAD,      /* noise so small that the first guess is even */
    WEFTI_TENSOR_BIAS       /* a vector: zeros, no decay, no gradient */
} wefti_tensor_kind;

/* Along what a tensor may be cut over ranks that share its layer. */
typedef enum wefti_tensor_split {
    WEFTI_SPLIT_NONE,       /* all have it whole */
    WEFTI_SPLIT_ROW,        /* each piece by its rows, the outputs */
    WEFTI_SPLIT_COLUMN,     /* by columns, the inputs */
    WEFTI_SPLIT_VOCABULARY, /* by rows, which are tokens */
    WEFTI_SPLIT_EXPERT      /* by pieces, which are experts */
} wefti_tensor_split;

/* Rows of a tensor that are a matrix of their own to other programs. */
typedef struct wefti_tensor_piece {
    char name[64]; /* as in Hugging Face's Llama or GLM-4.5; # stands for the
                      number of a tensor's repeat */
    size_t rows;
    /* Runs of rows that stay whole, as heads do; 0: any rows. Where ranks are
     * more than these, several have the same. */
    size_t units;
} wefti_tensor_piece;

enum { WEFTI_TENSOR_PIECES_MOST = 3 };

/* Groups are numbered like the mesh's kinds of replicas: dense, experts. */
enum { WEFTI_TENSOR_GROUP_EXPERTS = 1, WEFTI_TENSOR_GROUPS_MOST = 2 };

/* Matrices are [outputs][inputs]. */
typedef struct wefti_tensor_info {
    char name[40];
    wefti_tensor_kind kind;
    size_t rows, columns;
    weft_dtype dtype;
    wefti_tensor_split split;
    size_t group;  /* those of one group have the same ranks as replicas */
    size_t module; /* set by the list */
    wefti_tensor_piece pieces[WEFTI_TENSOR_PIECES_MOST]; /* from row 0 on */
    size_t piece_count;
    size_t repeats; /* of all pieces, one after the other, such as experts; 0
                       counts as 1 */
} wefti_tensor_info;

/* Lists are made twice: without items to count, then with room for them. */
typedef struct wefti_tensor_list {
    wefti_tensor_info *items; /* in order of use */
    size_t count;
    size_t *modules; /* the first tensor of each */
    size_t module_count;
    size_t group_count;
    const char *prefix; /* of names, while a branch is listed; NULL: none */
} wefti_tensor_list;

void wefti_tensor_list_begin_module(wefti_tensor_list *list);

/* A tensor of the module begun last; copied, its module set. */
void wefti_tensor_list_add(wefti_tensor_list *list,
                           const wefti_tensor_info *info);

/* wefti_tensor_list_init - those of the decoder. Returns OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status
wefti_tensor_list_init(wefti_tensor_list *list, const wefti_model_shape *shape);
void wefti_tensor_list_fini(wefti_tensor_list *list);

/* How many that will be. */
size_t wefti_tensor_list_count(const wefti_model_shape *shape);

size_t wefti_tensor_elems(const wefti_tensor_info *info);

/* 1 or 2; a vector has one row. */
size_t wefti_tensor_dimensions(const wefti_tensor_info *info);

#endif
