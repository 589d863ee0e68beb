/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/context_link.h - by what the ranks that share a sequence
 * exchange keys and heads; one for all stages of a rank, because a rank attends
 * in one pass at a time.
 */
#ifndef TRAINER_MODEL_CONTEXT_LINK_H
#define TRAINER_MODEL_CONTEXT_LINK_H

#include "kernels/math/real.h"
#include "trainer/model/tensor_list.h"
#include "weft/comm.h"
#include "weft/ledger.h"
#include "weft/ring.h"

/* Zeros: sequences are whole. */
typedef struct wefti_context_link {
    weft_device *device;   /* borrowed */
    weft_stream *compute;  /* borrowed; NULL: the host, here and now */
    weft_ledger *ledger;   /* borrowed; NULL: none */
    weft_comm *all;        /* borrowed: the ranks that share a sequence */
    weft_comm *ring;       /* all, or one of its own; NULL: a single place */
    weft_comm *ulysses;    /* likewise: of a place; NULL: a single rank */
    weft_ring *keys;       /* F: both ways */
    weft_ring *keys_again; /* I: one way, as sums go */
    weft_ring *sums;
    void *own, *own_sum; /* [tokens of a place][2][kv_heads][head_dim] */
    real *slopes;        /* of bf16, of one place's keys; or NULL */
    size_t elems;        /* of each */
    weft_dtype dtype;    /* of own, own_sum and what comes round */
} wefti_context_link;

/*
 * wefti_context_link_open - collective over the ranks that share a sequence.
 *
 * given        of it device, compute, ledger and all, by part, are read
 * sequences    of a micro-batch, at most
 *
 * Returns      OK | as weft_comm_split, weft_ring_create: finish it all the
 *              same.
 */
WEFT_NODISCARD weft_status wefti_context_link_open(
    wefti_context_link *link, const wefti_context_link *given,
    const wefti_model_shape *shape, size_t sequences);
void wefti_context_link_close(wefti_context_link *link);

/* After a failure: ranks that wait go on. */
void wefti_context_link_abort(wefti_context_link *link);

/* Bytes that it takes, or will. */
size_t wefti_context_link_bytes(const wefti_model_shape *shape,
                                size_t sequences);

#endif
