/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/parameters.h - where every parameter lies, in one flat array
 * for each group of tensors, and how the arrays are cut into buckets and
 * shares.
 *
 *   tensors in order of use:  embedding | layer 0 | layer 1 | ... | norm | head
 *   of one group, in buckets: [---- 0 ----][------ 1 ------] ...
 *   each bucket:              tensor tensor ... pad | share 0 | share 1 | ...
 *
 * A group is what the same ranks have as replicas of each other: dense tensors
 * are one, experts another. Each has its own array, buckets and numbers of
 * buckets, and is reduced and gathered on its own.
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
#include "trainer/model/expert_map.h"
#include "trainer/model/tensor_list.h"
#include "weft/bucket.h"
#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEFTI_BLOCK_ELEMS = 1024, /* what norms are summed over */
    WEFTI_TENSOR_ALIGN_ELEMS = WEFTI_BLOCK_ELEMS
};

/* One of the model's tensors, and where this rank has it. */
typedef struct wefti_tensor {
    wefti_tensor_info info;
    size_t first_block;   /* number in the whole model */
    bool copy;            /* of the embedding, whose blocks it shares */
    bool here;            /* else all below is nothing */
    size_t part, parts;   /* that are here, of so many */
    size_t rows, columns; /* that are here: all, of one that is not split */
    size_t square_block;  /* number of the first here, for the norm */
    /* Of slots that are here, of slot_elems each, whole blocks: experts, and
     * numbers among their replicas, of which the first counts. NULL: there is
     * no map, experts are those of the part, in order. */
    const int32_t *experts, *replicas;
    size_t slot_elems;
    /*
     * From this element on sharers ranks in a row have the same, and of these
     * one counts it, and saves it. Blocks of squares begin there anew.
     */
    size_t shared_elems, sharers;
    bool counts;
    size_t start_elems; /* in its group's array */
    size_t bucket;      /* of its group's */
    bool opens;         /* the first of its bucket */
} wefti_tensor;

/* What of a tensor is in a rank's share of its bucket, from a block's start. */
typedef struct wefti_tensor_share {
    size_t start_elems;  /* in the group's array */
    size_t own_elems;    /* in an array of the rank's shares alone */
    size_t offset_elems; /* in what is here of the tensor */
    size_t elems;
    size_t padded_elems; /* to the end of its last block, which is zero there */
} wefti_tensor_share;

/* Elements that lie together both here and in the whole tensor. */
typedef struct wefti_tensor_stretch {
    size_t here, whole; /* the first one */
    size_t elems;
} wefti_tensor_stretch;

/*
 * A run of the chain's layers, all of one branch; with the branch's first one
 * goes its embedding, with the last one its end: of the decoder the final norm
 * and the head.
 */
typedef struct wefti_layer_run {
    size_t first_layer, layers_end;
} wefti_layer_run;

typedef struct wefti_bucket_run {
    size_t first, end;
} wefti_bucket_run;

/* The array of one group. */
typedef struct wefti_group_plan {
    size_t nranks; /* that have the same of it, and a share each */
    weft_bucket_extent *buckets;
    size_t bucket_count;
    wefti_bucket_run *parts; /* [part_count] its buckets of each part */
    size_t flat_elems;       /* of the whole array, padding included */
    size_t own_elems;        /* of one rank's shares together */
} wefti_group_plan;

/* Ranks that share each layer, and this one's number. */
typedef struct wefti_tensor_parallel {
    size_t part, parts; /* 0 parts count as 1 */
    bool sequence;      /* they share the rows of the residual too */
} wefti_tensor_parallel;

typedef struct wefti_parameters {
    wefti_model_shape shape;
    wefti_model_shape own;     /* what of heads, ffn and vocab is here */
    wefti_model_shape encoder; /* likewise of that branch, if there is one */
    wefti_tensor_parallel tensor;
    wefti_tensor *tensors; /* all of the model's */
    size_t tensor_count;
    size_t *modules;        /* the first tensor of each */
    wefti_layer_run *parts; /* in order of layers */
    size_t part_count;
    bool copies_head;    /* tied, and cut: see above */
    size_t expert_parts; /* 1: all experts are here */
    size_t expert_slots; /* of all parts: more than experts with replicas */
    wefti_expert_map expert_map; /* of layers; zeros: they are in order */
    wefti_group_plan groups[WEFTI_TENSOR_GROUPS_MOST];
    size_t group_count;
    size_t bucket_count, flat_elems, own_elems; /* of all groups */
    size_t block_count;                         /* of the model */
    size_t parameter_count; /* of the model, no padding, no copy */
} wefti_parameters;

/*
 * wefti_parameters_plan - lay out a whole decoder; each group has nranks.
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
 * wefti_parameters_plan_list - lay out what a rank has of a model that may be
 * cut.
 *
 * list        any tensors, with the shape's layers and two ends
 * nranks      [list's groups]
 * parts       part_count, in order of layers, apart
 * cut         the model is on several ranks, or several parts of this one
 *
 * expert_part, expert_parts   of tensors that are split by expert this rank has
 *             the rows of one part of so many; each has whole blocks
 * expert_slots   0: experts are in order; else the plan has a map of so many
 *             slots, and each expert has whole blocks
 * tensor      of tensors that are split otherwise it has one part of so many;
 *             heads, ffn and vocab divide
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_INVALID (what cannot be split so).
 */
typedef struct wefti_parameters_config {
    wefti_model_shape shape;
    size_t bucket_bytes;
    size_t nranks[WEFTI_TENSOR_GROUPS_MOST];
    size_t expert_part, expert_parts;
    size_t expert_slots;
    wefti_tensor_parallel tensor;
    const wefti_layer_run *parts;
    size_t part_count;
    bool cut;
} wefti_parameters_config;
WEFT_NODISCARD weft_status wefti_parameters_plan_list(
    const wefti_parameters_config *config, const wefti_tensor_list *list,
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

/*
 * wefti_parameters_init - start values; the same on every layout. Norms start
 * at 1.
 *
 * values_out   [groups] flat
 */
void wefti_parameters_init(const wefti_parameters *plan, uint64_t seed,
                           const wefti_start *start, real *const *values_out);

/* Of the encoder, which come first. */
static inline size_t wefti_encoder_modules(const wefti_model_shape *shape)
{
    return shape->encoder_layers > 0 ? shape->encoder_layers + 2 : 0;
}

/* Whether a run is of the encoder, and whether it has its branch's first and
 * last layer. */
typedef struct wefti_layer_ends {
    bool encoder, first, last;
} wefti_layer_ends;

wefti_layer_ends wefti_layer_run_ends(const wefti_model_shape *shape,
                                      const wefti_layer_run *run);

/* Numbers of tensors in plan->tensors; the decoder's embedding. */
size_t wefti_tensor_embedding(const wefti_parameters *plan);
/* The first of a layer's, of the chain. */
size_t wefti_tensor_of_layer(const wefti_parameters *plan, size_t layer);
/* Modules are an encoder's, the embedding, then layers: which of the decoder's
 * layers has a tensor. */
static inline size_t wefti_tensor_decoder_layer(const wefti_parameters *plan,
                                                const wefti_tensor *tensor)
{
    return tensor->info.module - wefti_encoder_modules(&plan->shape) - 1;
}
size_t wefti_tensor_final_norm(const wefti_parameters *plan);
size_t
wefti_tensor_bridge(const wefti_parameters *plan); /* the encoder's end */
/* Tied: the embedding, or its copy. */
size_t wefti_tensor_head(const wefti_parameters *plan);

/* Elements of a tensor that are here. */
size_t wefti_tensor_here_elems(const wefti_tensor *tensor);

/* Where begins what of a share, or of what is here, does not count. */
static inline size_t wefti_tensor_counted_end(const wefti_tensor *tensor,
                                              size_t end)
{
    return tensor->counts || tensor->shared_elems > end ? end
                                                        : tensor->shared_elems;
}

/* The number of the block of squares in which an element that is here counts,
 * and up to which element it and those behind it have numbers in a row. */
size_t wefti_tensor_square_block(const wefti_tensor *tensor, size_t here,
                                 size_t *end_out);

/* Whether another slot has the same experts' elements and counts them, up to
 * which element that holds. */
bool wefti_tensor_is_replica(const wefti_tensor *tensor, size_t here,
                             size_t *end_out);

/* Blocks of squares that a tensor has in the whole model. */
size_t wefti_tensor_square_blocks(const wefti_parameters *plan,
                                  const wefti_tensor *tensor);

/* The stretch that begins at an element of what is here. */
wefti_tensor_stretch wefti_tensor_find(const wefti_tensor *tensor, size_t here);

/* What is here out of the whole tensor, or back into it; of an expert's
 * replicas the first, so that the ranks' parts overlap nowhere. */
void wefti_tensor_take(const wefti_tensor *tensor, const real *whole,
                       real *here_out);
void wefti_tensor_put(const wefti_tensor *tensor, const real *here,
                      real *whole_out);

/* Elements of the largest tensor. */
size_t wefti_parameters_largest(const wefti_parameters *plan);

/* wefti_tensor_cut - whether a rank has any of a tensor in its shares. */
bool wefti_tensor_cut(const wefti_parameters *plan, const wefti_tensor *tensor,
                      size_t rank, wefti_tensor_share *share_out);

#endif
