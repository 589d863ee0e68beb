/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_batch.h - the micro-batches of a step on their way to where
 * they are computed, and their losses on the way back.
 *
 *   tokens, targets --send--> device: F ... cross entropy
 *                                               |
 *                                            losses --total--> by sequence
 *
 * Nothing here waits: the host writes what send copies when it has waited for
 * the stream.
 */
#ifndef TRAINER_PIPE_PIPE_BATCH_H
#define TRAINER_PIPE_PIPE_BATCH_H

#include "trainer/program/program_run.h"

/* Arrays are [count][sequences][length]; the host's are pinned, and its losses
 * are those of one micro-batch, for passes between steps. */
typedef struct wefti_pipe_batch {
    weft_device *device;
    weft_stream *compute;
    size_t count;             /* micro-batches */
    size_t sequences, length; /* of one, at most */
    int32_t *tokens, *targets;
    int32_t *host_tokens, *host_targets;
    size_t stride;    /* of starts, below; 0: sequences are one document each */
    uint32_t *starts; /* [count][sequences][stride], as wefti_documents says */
    real *losses;     /* of tokens, in nats */
    real *host_losses;
    bool *measured; /* [count] since the last total */
} wefti_pipe_batch;

/*
 * wefti_pipe_batch_init - of given count device, compute, count, sequences,
 * length and stride.
 *
 * Returns     OK | ERR_NO_MEMORY: to be finished all the same.
 */
WEFT_NODISCARD weft_status wefti_pipe_batch_init(wefti_pipe_batch *batch,
                                                 const wefti_pipe_batch *given);
void wefti_pipe_batch_fini(wefti_pipe_batch *batch);

/* What it takes, on the host and on the device together. */
size_t wefti_pipe_batch_bytes(const wefti_pipe_batch *batch);

/* Where the host writes a micro-batch before it is sent. */
int32_t *wefti_pipe_batch_tokens(const wefti_pipe_batch *batch, size_t micro);
int32_t *wefti_pipe_batch_targets(const wefti_pipe_batch *batch, size_t micro);
/* Of one of its sequences, whole; NULL where they are one document each. */
uint32_t *wefti_pipe_batch_starts(const wefti_pipe_batch *batch, size_t micro,
                                  size_t sequence);

/* Sends micro-batches 0 .. count - 1. */
WEFT_NODISCARD weft_status wefti_pipe_batch_send(const wefti_pipe_batch *batch,
                                                 size_t count);

/* One of them, as passes get it. */
wefti_micro_batch wefti_pipe_batch_get(const wefti_pipe_batch *batch,
                                       size_t micro);

/* Where its losses are left, now. */
real *wefti_pipe_batch_measure(wefti_pipe_batch *batch, size_t micro);

/*
 * wefti_pipe_batch_total - the losses of sequences, each the sum of its tokens'
 * in order, of those that were measured; others stay. Queued.
 *
 * totals     [count][sequences] of the device; NULL: they are not wanted
 */
WEFT_NODISCARD weft_status wefti_pipe_batch_total(wefti_pipe_batch *batch,
                                                  double *totals);

/* The same sum of what is in the host's losses. */
double wefti_pipe_batch_loss(const wefti_pipe_batch *batch, size_t sequence);

#endif
