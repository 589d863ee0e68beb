/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/replica.h - one rank's copy of the model in training: the parameters
 * of its parts of the model (trainer/pipe/pipe.h), in groups that it shares
 * with the ranks that have the same ones (trainer/parameter_group.h), and what
 * it computes them with.
 *
 * All ranks make the same calls in the same order.
 */
#ifndef TRAINER_REPLICA_H
#define TRAINER_REPLICA_H

#include "trainer/data/data.h"
#include "trainer/ema_code.h"
#include "trainer/overlap_verdict.h"
#include "trainer/parameter_group.h"
#include "trainer/pipe/pipe.h"
#include "trainer/step_sums.h"
#include "weft/ledger.h"

struct wefti_ema;
struct wefti_expert_place;
struct wefti_pause;
struct wefti_saver;

/* Of this process, before its ledger and its replica were made: what it held
 * (trainer/footprint.h), and what of it communicators were made with. */
typedef struct wefti_replica_before {
    uint64_t held_bytes, comms_bytes;
} wefti_replica_before;

/*
 * comm, device, ledger, data   borrowed; ledger may be NULL.
 * encoder_data                 likewise: the bytes of the model's encoder, in
 *                              windows of encoder_seq, split as data is; NULL
 *                              where it has none
 * mesh                         its sizes, but dp; pp is the schedule's
 * micro_batch                  sequences of one pass
 * global_batch                 sequences of one step, all ranks together: a
 *                              multiple of micro_batch, one each at least
 */
typedef struct wefti_replica_config {
    weft_comm *comm;
    weft_device *device;
    weft_ledger *ledger;
    const wefti_data *data, *encoder_data;
    wefti_mesh mesh;
    wefti_model_shape shape;
    wefti_optimizer_config optimizer;
    size_t micro_batch;
    size_t global_batch;
    size_t bucket_bytes;
    uint64_t seed;
    wefti_start start;
    bool packs; /* sequences have several documents, which document_end ends */
    int32_t document_end;
    bool sequence_parallel; /* ranks of a layer share the residual's rows */
    bool copies; /* a copy of its state will be taken for checkpoints */
    size_t balance_every; /* steps between two balancings of experts; 0: none */
    double balance_rate;  /* by which a bias moves */
    bool expert_overlap;  /* exchanges of experts run beside compute */
    size_t expert_slots;  /* that experts are placed in; 0: they stay */
    bool offload;         /* the optimizer's state lies in the host's memory */
    wefti_ema_format ema; /* trainer/ema.h */
    double ema_decay;
    wefti_pipe_config pipe;
    wefti_replica_before before;
    wefti_overlap_verdict overlap; /* classes that have fallen back block */
} wefti_replica_config;

typedef struct wefti_replica {
    wefti_replica_config config;
    weft_stream *compute; /* NULL: the host computes, here and now */
    size_t rank, nranks;  /* of the job */
    size_t copy, copies;  /* of the model */
    wefti_mesh_comms mesh;
    weft_comm *kv_sharers; /* ranks of a layer with the same heads of keys;
                              NULL: this one alone */
    wefti_parameters plan;
    wefti_pipe pipe;
    struct wefti_pause *pause; /* inside steps; NULL: in tests and trials */
    struct wefti_ema *ema;     /* of the weights; NULL: none */
    struct wefti_expert_place *place; /* of experts; NULL: they stay */
    struct wefti_saver *saver; /* NULL: nothing is saved beside the training */
    wefti_parameter_group groups[WEFTI_TENSOR_GROUPS_MOST]; /* the plan's */
    wefti_step_sums sums;
    int32_t *window;        /* [seq + 1]: a sequence, before it is cut */
    uint64_t step;          /* steps done */
    uint64_t next_sequence; /* of the training data */
    wefti_score *score;     /* what it posts and awaits; NULL: not noted */
    weft_span span;         /* of the compute going on */
    const char *label;      /* of that span */
    const char *stopped;    /* its label, while a node waits for others */
    int64_t save_ns;        /* stood still to save, in this step */
    int64_t save_wait_ns;   /* of it until the last one was written */
    int failed;       /* 1 + the rank that all know to have failed; 0: none */
    weft_fault fault; /* of communicators that are gone; 0, OK: none */
} wefti_replica;

/* Tokens of a sequence that this rank has. */
size_t wefti_replica_length(const wefti_replica *replica);

/* Micro-batches of this copy in a step. */
size_t wefti_replica_count_micro(const wefti_replica *replica);

/* Micro-batches that are added up on this rank in a step, of each stage. */
size_t wefti_replica_count_passes(const wefti_replica *replica);

/* Until what is queued on compute has run, and the host has the state that it
 * has of the optimizer. */
WEFT_NODISCARD weft_status wefti_replica_wait(const wefti_replica *replica);

/* Bytes to the host's memory from the device's or back, after that. */
WEFT_NODISCARD weft_status wefti_replica_copy(const wefti_replica *replica,
                                              void *dst, const void *src,
                                              size_t bytes);

/*
 * The number of a copy's first micro-batch in a step. Copies share them as
 * evenly as they go; copy copies: how many there are.
 */
size_t wefti_replica_first_micro(const wefti_replica *replica, size_t copy);

/* Whether only a communicator fails so. */
bool wefti_replica_is_fault(weft_status status);

/* Tokens, the first of them an encoder's, and targets, as the numbers of this
 * rank's part of the vocabulary: what is another's is negative. Targets NULL:
 * none. */
void wefti_replica_localize(const wefti_replica *replica, size_t encoded,
                            int32_t *tokens, int32_t *targets, size_t count);

/* Of sequences first .. of the training data, what this rank has, as one of the
 * pipe's micro-batches, before it is sent. */
void wefti_replica_load(const wefti_replica *replica, uint64_t first,
                        size_t micro);

/* Validation windows first .. first + count - 1 as the first micro-batch. */
wefti_micro_batch wefti_replica_load_windows(const wefti_replica *replica,
                                             size_t first, size_t count);

/*
 * wefti_replica_mesh - the mesh of so many ranks that train as config says;
 * a schedule with two directions mirrors it.
 *
 * Returns     as wefti_mesh_make and weft_schedule_get_info.
 */
WEFT_NODISCARD weft_status wefti_replica_mesh(
    const wefti_replica_config *config, int nranks, wefti_mesh *mesh_out);

/*
 * wefti_replica_init - collective over comm.
 *
 * Returns     OK | ERR_NO_MEMORY (also where the ranks of a host need more than
 *             it has: nothing has been taken then) | ERR_SYSTEM | ERR_INVALID |
 *             the communicator's fault.
 */
WEFT_NODISCARD weft_status
wefti_replica_init(wefti_replica *replica, const wefti_replica_config *config);

/*
 * What the replica has of communicators of its own: see fini. parts: but for
 * the one on which what is being written is agreed upon.
 */
void wefti_replica_abort(wefti_replica *replica);
void wefti_replica_abort_parts(wefti_replica *replica);

/* The fault of the job's communicator or of one of those, but for saving. */
bool wefti_replica_find_fault(const wefti_replica *replica,
                              weft_fault *fault_out);

/* After a failure of a communicator: abort it first. */
void wefti_replica_fini(wefti_replica *replica);

/* The first element of a tensor that is here, and of its gradient. */
void *wefti_replica_values(const wefti_replica *replica,
                           const wefti_tensor *tensor);
real *wefti_replica_gradient(const wefti_replica *replica,
                             const wefti_tensor *tensor);

/*
 * What is here of a tensor, on the host as real. set is of all ranks that have
 * it, with the same values; round makes this rank's shares what their masters,
 * set from outside, are rounded to.
 *
 * Returns     OK | ERR_NO_MEMORY | as weft_device_copy.
 */
WEFT_NODISCARD weft_status wefti_replica_get(const wefti_replica *replica,
                                             const wefti_tensor *tensor,
                                             real *to);
WEFT_NODISCARD weft_status wefti_replica_set(const wefti_replica *replica,
                                             const wefti_tensor *tensor,
                                             const real *from);
WEFT_NODISCARD weft_status wefti_replica_round(const wefti_replica *replica);

/*
 * wefti_replica_settle - wait until all parameters of the last step are here.
 */
WEFT_NODISCARD weft_status wefti_replica_settle(wefti_replica *replica);

/*
 * wefti_replica_gather - get the other ranks' shares of the parameters, and
 * wait for them: after this rank's own have been set from outside.
 */
WEFT_NODISCARD weft_status wefti_replica_gather(wefti_replica *replica,
                                                weft_bucket_mode mode);

/*
 * wefti_replica_evaluate - mean loss over the validation windows, in nats a
 * token; NAN where there are none. The ranks share the work.
 */
WEFT_NODISCARD weft_status wefti_replica_evaluate(wefti_replica *replica,
                                                  double *loss_out);

/*
 * Compute spans of this rank: at most one is open. work_begin ends the one
 * before; work_end is for what is not compute. label is a literal.
 */
void wefti_replica_work_begin(wefti_replica *replica, const char *label);
void wefti_replica_work_end(wefti_replica *replica);

/* Within a call of the score: a bucket of a set. */
void wefti_replica_note_bucket(const wefti_replica *replica,
                               wefti_score_kind kind,
                               const weft_bucket_set *set, size_t bucket);

/*
 * wefti_replica_use - the hook of every forward pass: waits where the bucket of
 * a tensor has not arrived yet, and meanwhile no compute goes on: neither this
 * rank's span nor the executor's action.
 */
WEFT_NODISCARD weft_status wefti_replica_use(void *replica, size_t tensor);

#endif
