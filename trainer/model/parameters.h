/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/parameters.h - where every parameter lies in one flat array,
 * and how that array is cut into buckets and shares.
 *
 *   tensors in order of use:  embedding | layer 0 | layer 1 | ... | norm | head
 *   buckets of whole tensors: [---- 0 ----][------ 1 ------] ...
 *   each bucket:              tensor tensor ... pad | share 0 | share 1 | ...
 *
 * Which tensors share a bucket depends on bucket_mb alone, never on the number
 * of ranks, and every element has the same place inside its bucket on every
 * layout; only the padding at a bucket's end differs. Tensors, buckets and
 * shares start at multiples of 1024 elements ("blocks"), and blocks are
 * numbered over the whole model. Parameters, gradients and moments all use this
 * layout. Padding is zero and stays zero.
 *
 * A rank of a pipeline plans the parts of the model that it has: tensors keep
 * their numbers, blocks too, and only those that are here have a place. Buckets
 * end where parts do. Where the head is the embedding and the model is cut, the
 * head is a tensor of its own that starts as a copy; each of the two is alone
 * in its bucket, and their gradients have to be summed.
 */
#ifndef TRAINER_MODEL_PARAMETERS_H
#define TRAINER_MODEL_PARAMETERS_H

#include "kernels/math/real.h"
#include "weft/bucket.h"
#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEFTI_BLOCK_ELEMS = 1024, /* what norms are summed over */
    WEFTI_TENSOR_ALIGN_ELEMS = WEFTI_BLOCK_ELEMS
};

/* The model's sizes; head_dim * heads need not be hidden. */
typedef struct wefti_model_shape {
    size_t layers;
    size_t hidden;
    size_t heads;
    size_t kv_heads;
    size_t head_dim;
    size_t ffn;
    size_t vocab;
    size_t seq; /* tokens of a sequence */
    double rope_theta;
    bool tied; /* the head is the embedding */
} wefti_model_shape;

/* What a tensor is, which decides its start values and weight decay. */
typedef enum wefti_tensor_kind {
    WEFTI_TENSOR_EMBEDDING, /* small noise, no decay */
    WEFTI_TENSOR_NORM,      /* ones, no decay */
    WEFTI_TENSOR_INPUT,     /* reads the residual: noise by fan-in, decay */
    WEFTI_TENSOR_OUTPUT,    /* writes to it: less by depth, decay */
    WEFTI_TENSOR_HEAD       /* noise so small that the first guess is even */
} wefti_tensor_kind;

/* Tensors of a layer, in order of use. Matrices are [outputs][inputs]. */
typedef enum wefti_layer_tensor {
    WEFTI_LAYER_ATTENTION_NORM, /* [hidden] */
    WEFTI_LAYER_QKV,            /* [(heads + 2 kv_heads) head_dim][hidden] */
    WEFTI_LAYER_ATTENTION_OUT,  /* [hidden][heads head_dim] */
    WEFTI_LAYER_FFN_NORM,       /* [hidden] */
    WEFTI_LAYER_GATE_UP,        /* [2 ffn][hidden]: gate rows, then up rows */
    WEFTI_LAYER_DOWN,           /* [hidden][ffn] */
    WEFTI_LAYER_TENSORS
} wefti_layer_tensor;

typedef struct wefti_tensor {
    char name[32];
    wefti_tensor_kind kind;
    size_t rows, columns;
    size_t first_block; /* number in the whole model */
    bool copy;          /* of the embedding, whose blocks it shares */
    bool here;          /* else all below is nothing */
    size_t start_elems; /* in the flat array */
    size_t bucket;
} wefti_tensor;

typedef struct wefti_bucket_blocks {
    size_t first; /* number of the bucket's first block in the model */
    size_t count; /* blocks that hold tensors, padding not counted */
    bool copy;    /* another bucket's sums count for it */
} wefti_bucket_blocks;

/*
 * A run of layers; with the first of the model goes the embedding, with the
 * last the final norm and the head. Its buckets are filled in by the plan.
 */
typedef struct wefti_layer_run {
    size_t first_layer, layers_end;
    size_t first_bucket, buckets_end;
} wefti_layer_run;

typedef struct wefti_parameters {
    wefti_model_shape shape;
    size_t nranks;
    wefti_tensor *tensors; /* all of the model's */
    size_t tensor_count;
    wefti_layer_run *parts; /* in order of layers */
    size_t part_count;
    bool copies_head; /* tied, and cut: see above */
    weft_bucket_extent *buckets;
    wefti_bucket_blocks *blocks; /* [bucket_count] */
    size_t bucket_count;
    size_t flat_elems;      /* of the whole array, padding included */
    size_t own_elems;       /* of one rank's shares together */
    size_t block_count;     /* of the model */
    size_t parameter_count; /* of the model, no padding, no copy */
} wefti_parameters;

/*
 * wefti_parameters_plan - lay out a model.
 *
 * bucket_bytes   a bucket is closed as soon as it holds that much; the first
 *                two at a quarter of it, the next two at half.
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_parameters_plan(const wefti_model_shape *shape,
                                                 size_t bucket_bytes,
                                                 size_t nranks,
                                                 wefti_parameters *plan_out);

/*
 * wefti_parameters_plan_parts - lay out what a rank has of a model that is cut.
 *
 * parts       part_count, in order of layers, apart; buckets do not count
 * cut         the model is on several ranks, or several parts of this one
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_parameters_plan_parts(
    const wefti_model_shape *shape, size_t bucket_bytes, size_t nranks,
    const wefti_layer_run *parts, size_t part_count, bool cut,
    wefti_parameters *plan_out);
void wefti_parameters_fini(wefti_parameters *plan);

/*
 * Standard deviations of start values.
 *
 * scale       of matrices: this over the square root of their inputs; those
 * that write to the residual, over that of the writes too head        also
 * where it is the embedding embedding   of one that is not the head
 */
typedef struct wefti_start {
    double scale, head, embedding;
} wefti_start;

/* wefti_parameters_init - start values; the same on every layout. Norms start
 * at 1. */
void wefti_parameters_init(const wefti_parameters *plan, uint64_t seed,
                           const wefti_start *start, real *flat_out);

/* Numbers of tensors in plan->tensors. */
size_t wefti_tensor_embedding(void);
size_t wefti_tensor_of_layer(size_t layer, wefti_layer_tensor which);
size_t wefti_tensor_final_norm(const wefti_parameters *plan);
/* Tied: the embedding, or its copy. */
size_t wefti_tensor_head(const wefti_parameters *plan);

/* The first element of a rank's share of a bucket. */
size_t wefti_parameters_share(const wefti_parameters *plan, size_t bucket,
                              size_t rank);

#endif
