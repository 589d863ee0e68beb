/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/step_sums.h - what all ranks must know of a step, in memory of the
 * device: squares by block for the norm, loads of experts, the losses of all
 * sequences, the times of the step before.
 *
 *   rank 0   squares of its shares | loads | its losses | its times   else 0
 *   rank 1      those of its own, in other places                     else 0
 *            --collect--> all of them, on all ranks
 *            --clip--> norm, factor --> AdamW
 *            loads, losses, times, norm --read--> host
 *
 * Each rank fills in its own places and zeros in all others, so the sum only
 * collects, exactly, and every rank then adds in the same order. Loads, whole
 * numbers, add up, and so do the losses of ranks that share a sequence, each of
 * its own tokens. All is queued on compute; the host waits in read alone.
 */
#ifndef TRAINER_STEP_SUMS_H
#define TRAINER_STEP_SUMS_H

#include "weft/comm.h"
#include "weft/device.h"

/* Times of a step that ranks exchange: step, compute, bubble. */
enum { WEFTI_STEP_TIMES = 3 };

/* Given: the first seven, which borrow. */
typedef struct wefti_step_sums {
    weft_device *device;
    weft_stream *compute; /* as in wefti_replica */
    weft_comm *comm;      /* of all ranks */
    size_t blocks;        /* squares */
    size_t experts;       /* loads: of all layers */
    size_t sequences;     /* losses */
    double most;          /* norm of the gradient used; 0: no limit */
    size_t rank, nranks;
    double *squares;   /* [blocks], on the device; the others lie behind */
    double *loads;     /* [experts] */
    double *losses;    /* [sequences] */
    double *times;     /* [nranks][WEFTI_STEP_TIMES] */
    double *norm;      /* [1] of the gradient, before clipping */
    double *factor;    /* [1] by which clipping scales it */
    double *host;      /* loads to norm, in the same order */
    weft_event *ready; /* they are there */
} wefti_step_sums;

/* What the host has read; valid until the next begin. */
typedef struct wefti_step_facts {
    const double *loads;  /* [experts]: tokens of each */
    const double *losses; /* [sequences] */
    const double *times;  /* [nranks][WEFTI_STEP_TIMES] */
    double norm;
} wefti_step_facts;

/* Returns OK | ERR_NO_MEMORY | ERR_SYSTEM: fini. */
WEFT_NODISCARD weft_status wefti_step_sums_init(wefti_step_sums *sums,
                                                const wefti_step_sums *given);
/* Also of zeros; nothing is queued that uses them. */
void wefti_step_sums_fini(wefti_step_sums *sums);

/* Zeros everywhere but in the places of this rank's times. Queued. */
WEFT_NODISCARD weft_status wefti_step_sums_begin(
    wefti_step_sums *sums, const double times[WEFTI_STEP_TIMES]);

/* One all-reduce. Queued; without a stream it is done. */
WEFT_NODISCARD weft_status wefti_step_sums_collect(wefti_step_sums *sums);

/* Norm and factor, and what the host reads on its way. Queued. */
WEFT_NODISCARD weft_status wefti_step_sums_clip(wefti_step_sums *sums);

/* What clip has sent. Blocks until it is there, whatever is queued behind. */
WEFT_NODISCARD weft_status wefti_step_sums_read(wefti_step_sums *sums,
                                                wefti_step_facts *facts_out);

#endif
