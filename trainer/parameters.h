/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/parameters.h - where every parameter lies in one flat array, and how
 * that array is cut into buckets and shares.
 *
 *   tensors in order of use:  embedding | layer 0 | layer 1 | ... | norm | head
 *   buckets of whole tensors: [---- 0 ----][------ 1 ------] ...
 *   each bucket:              tensor tensor ... pad | share 0 | share 1 | ...
 *
 * Which tensors share a bucket depends on bucket_mb alone, never on the number
 * of ranks, and every element has the same place inside its bucket on every
 * layout; only the padding at a bucket's end differs. Tensors start at
 * multiples of 64 elements, buckets and shares at multiples of 1024 ("blocks").
 * Parameters, gradients and moments all use this layout. Padding is zero and
 * stays zero.
 */
#ifndef TRAINER_PARAMETERS_H
#define TRAINER_PARAMETERS_H

#include "kernels/math/real.h"
#include "overlap/bucket.h"
#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEFTI_TENSOR_ALIGN_ELEMS = 64,
    WEFTI_BLOCK_ELEMS = 1024 /* what norms are summed over */
};

/* The model's sizes; head_dim * heads need not be hidden. */
typedef struct wefti_shape {
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
} wefti_shape;

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
    size_t start_elems; /* in the flat array */
    size_t bucket;
} wefti_tensor;

typedef struct wefti_bucket_blocks {
    size_t first; /* number of the bucket's first block, counted over all */
    size_t count; /* blocks that hold tensors, padding not counted */
} wefti_bucket_blocks;

typedef struct wefti_parameters {
    wefti_shape shape;
    size_t nranks;
    wefti_tensor *tensors;
    size_t tensor_count;
    wefti_bucket_extent *buckets;
    wefti_bucket_blocks *blocks; /* [bucket_count] */
    size_t bucket_count;
    size_t flat_elems; /* of the whole array, padding included */
    size_t own_elems;  /* of one rank's shares together */
    size_t block_count;
    size_t parameter_count; /* of the model, no padding */
} wefti_parameters;

/*
 * wefti_parameters_plan - lay out a model.
 *
 * bucket_bytes   a bucket is closed as soon as it holds that much; the first
 *                two at a quarter of it, the next two at half.
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_parameters_plan(const wefti_shape *shape,
                                                 size_t bucket_bytes,
                                                 size_t nranks,
                                                 wefti_parameters *plan_out);
void wefti_parameters_fini(wefti_parameters *plan);

/* wefti_parameters_init - start values; the same on every layout. */
void wefti_parameters_init(const wefti_parameters *plan, uint64_t seed,
                           real *flat_out);

/* Numbers of tensors in plan->tensors. */
size_t wefti_tensor_embedding(void);
size_t wefti_tensor_of_layer(size_t layer, wefti_layer_tensor which);
size_t wefti_tensor_final_norm(const wefti_parameters *plan);
size_t wefti_tensor_head(const wefti_parameters *plan); /* tied: embedding */

/* The first element of a rank's share of a bucket. */
size_t wefti_parameters_share(const wefti_parameters *plan, size_t bucket,
                              size_t rank);

/* Parameters in matrix products a token takes part in (N of the FLOP count). */
size_t wefti_parameters_in_matmuls(const wefti_parameters *plan);

#endif
