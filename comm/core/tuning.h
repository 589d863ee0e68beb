/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/tuning.h - what a job may be told of algorithms, chunks and levels.
 */
#ifndef COMM_CORE_TUNING_H
#define COMM_CORE_TUNING_H

#include "comm/core/algorithm.h"
#include "weft/op.h"

#include <stdbool.h>

/* What carries operations out: weft's engine, step by step, or where they can
 * the stream that a collective is posted on, or NCCL, messages too. */
typedef enum wefti_route_kind {
    WEFTI_ROUTE_STEPS,
    WEFTI_ROUTE_STREAMS,
    WEFTI_ROUTE_NCCL
} wefti_route_kind;

/* What ranks of one host read where it lies, of large messages. */
typedef enum wefti_single_copy {
    WEFTI_SINGLE_COPY_OFF,
    WEFTI_SINGLE_COPY_MAPPED, /* memory that they have mapped */
    WEFTI_SINGLE_COPY_ON      /* other processes' too */
} wefti_single_copy;

/*
 * Rank 0's settings, sent to every rank when the job is made.
 *
 * allowed   per collective: the algorithms it may take; 0: all
 */
typedef struct wefti_tuning {
    uint32_t chunk_bytes; /* 0: by size */
    wefti_algorithms allowed[WEFT_COLLECTIVE_COUNT];
    double emulate_gbps;
    bool machines;       /* hosts describe themselves */
    bool measure_net;    /* when ranks that share no memory meet */
    bool names_rails;    /* WEFT_NET_INTERFACE has several */
    bool sum_flat;       /* sums ignore which ranks share memory */
    bool nccl_shared;    /* NCCL says itself whether ranks may share a GPU */
    uint8_t single_copy; /* wefti_single_copy */
    uint8_t route;       /* wefti_route_kind */
} wefti_tuning;

/*
 * wefti_tuning_read - from WEFT_ALGO, WEFT_CHUNK_BYTES, WEFT_NET_RATES,
 * WEFT_NET_INTERFACE, WEFT_MACHINES, WEFT_SINGLE_COPY, WEFT_SUM_FLAT,
 * WEFT_ROUTE, WEFT_NCCL_SHARED_GPU and WEFT_EMULATE_GBPS.
 *
 * Returns     OK | ERR_INVALID: the text names variable, value and what is
 *             allowed.
 */
WEFT_NODISCARD weft_status wefti_tuning_read(wefti_tuning *tuning_out);

#endif
