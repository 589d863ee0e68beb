/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/footprint.h - the memory of a rank's replica: what its plan says, and
 * by how much the process has really grown.
 *
 * Counted are the arrays that grow with model and batch. Not counted, but in
 * what is measured: communicators' shared memory, the ledger's records, stacks
 * of streams, scratch of the matrix library.
 */
#ifndef TRAINER_FOOTPRINT_H
#define TRAINER_FOOTPRINT_H

#include "trainer/replica.h"

#include <stdio.h>

/* In bytes. */
typedef struct wefti_footprint {
    size_t parameters_bytes;
    size_t gradients_bytes;   /* of a micro-batch, and sums of them */
    size_t moments_bytes;     /* of this rank's shares */
    size_t activations_bytes; /* slots, or the whole model's; scratch */
    size_t buffers_bytes;     /* between stages */
    size_t average_bytes;     /* of the weights, on the host */
    size_t copy_bytes;        /* of the state, while a checkpoint is written */
} wefti_footprint;

/*
 * wefti_footprint_check - all ranks, when the replica is planned and nothing of
 * it has been taken: whether every host can have what its ranks need
 * (trainer/memory_need.h).
 *
 * Returns     OK | ERR_NO_MEMORY: of the first rank of a host that cannot the
 *             text has the estimate and the limit, of the others which that is
 * | the communicator's fault.
 */
WEFT_NODISCARD weft_status wefti_footprint_check(wefti_replica *replica);

/* A line about it, of rank 0. */
void wefti_footprint_print(const wefti_replica *replica, FILE *file);

/* What this process has resident now; 0 where the kernel does not say. */
uint64_t wefti_footprint_resident_bytes(void);

/*
 * wefti_footprint_compare - planned_out: the sum of the plan. grown_out: by how
 * much more this process has had resident at most than before the replica was
 * opened.
 */
void wefti_footprint_compare(const wefti_replica *replica,
                             uint64_t *planned_out, uint64_t *grown_out);

#endif
