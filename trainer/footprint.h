/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/footprint.h - the memory of a rank's replica: what its plan says, and
 * what the rank really holds.
 *
 * Both are of what is this rank's alone: its private memory, and of what ranks
 * of a host share its own part, whichever of them has written there. What peers
 * own and this process has mapped to read it in place is theirs; pages of
 * program files are nobody's.
 *
 * Planned are the arrays that grow with model and batch, what communicators and
 * the ledger are made with, what messages are staged in where they are copied,
 * and the list of what is saved. Not planned, but in what is measured: stacks
 * of streams, scratch of the matrix library, lists of nodes.
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
    size_t books_bytes;       /* communicators, ledger, what is saved where */
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

/* What this rank holds now, in a process of its own; 0 where the kernel does
 * not say. comm: any of its communicators. */
uint64_t wefti_footprint_held_bytes(weft_comm *comm);

/*
 * wefti_footprint_compare - planned_out: the sum of the plan. grown_out: by how
 * much more this rank holds than before ledger and replica were made
 * (config.before).
 */
void wefti_footprint_compare(const wefti_replica *replica,
                             uint64_t *planned_out, uint64_t *grown_out);

#endif
