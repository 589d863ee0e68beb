/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe.h - a rank's place in a pipeline: its stages, their slots,
 * and the executor of its list. A model that is not cut is a pipeline of one
 * stage on one rank.
 *
 * Its communicators are the mesh's (trainer/mesh/mesh_comms.h): the line for
 * the list, the chain for other messages, data for gradients and parameters.
 *
 * A rank's parts lie in flat arrays (trainer/model/parameters.h). A stage's
 * gradients are added up in the tree of trainer/gradient.h, bucket by bucket,
 * in the order in which its W come, and reduced as trainer/pipe/pipe_reduce.h
 * says.
 */
#ifndef TRAINER_PIPE_PIPE_H
#define TRAINER_PIPE_PIPE_H

#include "trainer/mesh/mesh_comms.h"
#include "trainer/model/stage.h"
#include "trainer/pipe/pipe_batch.h"
#include "weft/bucket.h"
#include "weft/pipeline.h"

struct wefti_replica;

/* One of the schedule's stages that this rank has. */
typedef struct wefti_pipe_stage {
    int number;         /* in the schedule */
    size_t part;        /* of the plan */
    size_t first_micro; /* of its direction, in this copy */
    size_t weighed;     /* micro-batches whose W is done in this step */
    wefti_stage *stage;
} wefti_pipe_stage;

/* Buckets of a group that are reduced together, the last one first. */
typedef struct wefti_pipe_reduce {
    size_t group;
    wefti_bucket_run run;
    weft_bucket_set *set;
    bool early;  /* each goes as soon as it is final */
    size_t left; /* have not gone in this step */
} wefti_pipe_reduce;

typedef struct wefti_pipe {
    const weft_schedule *schedule; /* borrowed */
    wefti_recompute recompute;
    bool keeps_places;
    weft_schedule_info info;
    int rank;           /* in the pipeline */
    int encoder_stages; /* the first ones of the schedule */
    size_t *stage_rows; /* [stages] that each sends on; NULL: all the same */
    const wefti_mesh_comms *mesh; /* borrowed */
    wefti_pipe_stage *stages;
    size_t stage_count;
    /* By part, by group; then those of the tied embedding and its copy. */
    wefti_pipe_reduce *reduces;
    size_t reduce_count;
    wefti_context_link link; /* to ranks that share its sequences */
    wefti_workspace workspace;
    real **arenas; /* [slots] */
    size_t slots;
    size_t slot_bytes;
    real **kept; /* [kept_count]: inputs for RECOMPUTE, slots for RELOAD */
    size_t kept_count;
    size_t kept_bytes;
    size_t buffer_bytes; /* the executor's, all */
    weft_pipeline *pipeline;
    wefti_pipe_batch batch; /* of a step; [1] of ranks without an end */
    /* [tokens][hidden]: from stage to stage of the chain; NULL: there is one */
    real *rows[2];
    real *tied; /* [vocab][hidden]: the other end's; or NULL */
    wefti_node_link links[WEFTI_LINKS];
    struct wefti_experts *experts; /* of other ranks; NULL: all are here */
    /* Of the last rehearsal of a pass between steps; 0: there was none. */
    size_t met_sequences, met_length;
    weft_bucket_mode mode;
} wefti_pipe;

/* What flows between stages, for the executor: chunks of so many rows. */
typedef struct wefti_pipe_config {
    const weft_schedule *schedule; /* lowered */
    size_t chunk_rows;             /* 0: a micro-batch at once */
    /* Stages that the layers of the model's encoder are cut into, the first
     * ones: a stage is of one branch. */
    int encoder_stages;
    /* [stages of the schedule]: ms that take compute's place; NULL: none do. */
    const weft_stage_cost *waits;
    bool beside[WEFTI_LINKS];  /* what nodes exchange runs beside compute */
    wefti_recompute recompute; /* instead of activations that are kept */
    bool keeps_places;         /* of activations that no one needs any more */
} wefti_pipe_config;

/*
 * wefti_pipe_layers - which layers stage part of stages has, of the model's
 * chain, those of an encoder in the first encoder_stages: as evenly as they go.
 */
wefti_layer_run wefti_pipe_layers(const wefti_model_shape *shape,
                                  int encoder_stages, int stages, int part);

/* Rows of tokens of the residual that this rank has. */
size_t wefti_pipe_rows(const struct wefti_replica *replica, size_t tokens);

/*
 * wefti_pipe_place - which parts this rank of the mesh has; then the replica
 * can be planned. The mesh's comms are connected before open.
 *
 * sequences   of a micro-batch
 * parts_out   [stages of the schedule]
 */
WEFT_NODISCARD weft_status wefti_pipe_place(
    wefti_pipe *pipe, const wefti_pipe_config *config,
    const wefti_mesh_comms *mesh, const wefti_model_shape *shape,
    size_t sequences, wefti_layer_run *parts_out, size_t *part_count_out);

/*
 * wefti_pipe_estimate - what open will take for activations and the executor's
 * buffers; the replica has been planned.
 */
WEFT_NODISCARD weft_status wefti_pipe_estimate(const wefti_pipe *pipe,
                                               const wefti_pipe_config *config,
                                               struct wefti_replica *replica,
                                               double *bytes_out);

/* Of it, rows of experts that come from other ranks. */
double wefti_pipe_expert_bytes(const wefti_pipe *pipe,
                               const struct wefti_replica *replica,
                               size_t slots);

/* wefti_pipe_open - everything else, when the replica has its arrays. */
WEFT_NODISCARD weft_status wefti_pipe_open(wefti_pipe *pipe,
                                           const wefti_pipe_config *config,
                                           struct wefti_replica *replica);

/*
 * wefti_pipe_rehearse - all that the stages compute in a step, once, on zero
 * tokens and without other ranks: what a device does at the first time of it
 * alone is done then. Gradients are zero afterwards. Waits for what it has
 * queued; nothing where the replica has no stream.
 */
WEFT_NODISCARD weft_status wefti_pipe_rehearse(struct wefti_replica *replica);

/*
 * wefti_pipe_rehearse_pass - the same of a pass forwards between steps, with
 * all its parameters there, if ranks exchange rows inside of it and its shape
 * is not the last one's. Queued.
 */
WEFT_NODISCARD weft_status wefti_pipe_rehearse_pass(
    struct wefti_replica *replica, const wefti_stage_pass *pass);

/* Legal on what is zero, or was opened in part. */
void wefti_pipe_fini(wefti_pipe *pipe);

/*
 * wefti_pipe_train - all micro-batches of a step, as the list says. Parameters
 * that are still under way are awaited where they are first used.
 */
WEFT_NODISCARD weft_status wefti_pipe_train(struct wefti_replica *replica,
                                            weft_bucket_mode reduce);

/*
 * wefti_pipe_total_losses - losses of the micro-batches since the last time go
 * to their places in the step's sums, on the ranks that have the last stage.
 * Queued.
 */
WEFT_NODISCARD weft_status
wefti_pipe_total_losses(struct wefti_replica *replica);

/* Whether an action adds a micro-batch's gradients of a stage. */
bool wefti_pipe_adds(const weft_action *action, int stage);

/* This rank's share of a bucket's gradients is the sum of all. */
WEFT_NODISCARD weft_status wefti_pipe_reduced(
    const struct wefti_replica *replica, size_t group, size_t bucket);

/*
 * wefti_pipe_evaluate - one micro-batch through all stages, between steps; the
 * ranks of a pipeline together. It is in the host's arrays of the first
 * micro-batch; of batch its sizes count. Waits for what it has queued.
 *
 * losses_out   [sequences], written where the last stage is; NULL: not wanted
 * logits_out   likewise, [tokens][vocab] of the device, of its part of the
 *              vocabulary, else NULL is stored; valid until the next pass.
 *              NULL: not wanted
 */
WEFT_NODISCARD weft_status wefti_pipe_evaluate(struct wefti_replica *replica,
                                               const wefti_micro_batch *batch,
                                               double *losses_out,
                                               const void **logits_out);

/* The rank of the chain that has the last stage's logits. */
int wefti_pipe_last(const wefti_pipe *pipe);

#endif
