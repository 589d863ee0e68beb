/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/launch.h - the CUDA kernels of kernels/wire: their names and
 * arguments, as whoever launches them must know. The host's functions beside
 * which they stand (reduce.h, pack.h) are the truth: each kernel gives the same
 * bits.
 *
 * Launch shape, of all: any grid, in x only; blocks of 32 to
 * WEFTI_LAUNCH_THREADS threads, a multiple of 32, in x only; no dynamic shared
 * memory. A kernel does its work however few blocks there are, so the grid is
 * the budget: one block keeps at most one multiprocessor busy. The result does
 * not depend on the shape.
 *
 * Every kernel takes one argument, its structure below, by value. Pointers are
 * of memory that the device may access, of any alignment; the kernels are
 * fastest where all of them have the same address modulo 16, and slowest where
 * one is not aligned to its element. None of them uses memory of its own, waits
 * for another block, or accesses memory outside its arguments' ranges.
 */
#ifndef KERNELS_WIRE_LAUNCH_H
#define KERNELS_WIRE_LAUNCH_H

#include "weft/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEFTI_LAUNCH_THREADS = 256, /* of a block, at most */
    WEFTI_LAUNCH_SOURCES = 64   /* of a reduction, at most */
};

/*
 * wefti_reduce_<dtype> - wefti_reduce, for each type by the text of
 * weft/types.h.
 *
 * dst may be one of the sources. More sources than there is room for: reduce
 * groups of WEFTI_LAUNCH_SOURCES in the wide type and then those, which is the
 * same tree, as long as all groups but the last are full.
 */
typedef struct wefti_reduce_args {
    void *dst;
    size_t elems;
    int32_t redop;         /* weft_redop, one that applies to the type */
    uint32_t source_count; /* 1 to WEFTI_LAUNCH_SOURCES */
    const void *sources[WEFTI_LAUNCH_SOURCES];
} wefti_reduce_args;

/*
 * wefti_widen_<dtype>   wefti_widen, of f16, bf16, f8e4m3 and f8e5m2: other
 *                       types are their own wide type.
 * wefti_narrow_<dtype>  wefti_narrow with AVG where divisor is the number of
 *                       sources, else (0) with any other reduction. Of all
 *                       types.
 *
 * dst may equal src only where the element sizes are equal, else they must not
 * overlap.
 */
typedef struct wefti_cast_args {
    void *dst;
    const void *src;
    size_t elems;
    uint32_t divisor; /* narrow only */
} wefti_cast_args;

/* wefti_scale_<dtype> - wefti_scale. dst may equal src. */
typedef struct wefti_scale_args {
    void *dst;
    const void *src;
    const void *scalar;
    size_t elems;
} wefti_scale_args;

/* wefti_copy_bytes - wefti_copy. */
typedef struct wefti_copy_args {
    void *dst;
    const void *src;
    size_t bytes;
} wefti_copy_args;

/*
 * wefti_pack_bytes, wefti_unpack_bytes - wefti_pack, wefti_unpack (pack.h).
 *
 * pieces  piece_count of them in memory that the device may read.
 */
typedef struct wefti_pack_args {
    void *packed;
    const struct wefti_piece *pieces;
    size_t piece_count;
} wefti_pack_args;

/*
 * wefti_rows_<verb>, wefti_rows_<verb>_<dtype> of f32, bf16 and f16 - rows of
 * tokens to the ranks of their experts over one hop, and back, as
 * overlap/moe_core.h has them; they run one after another on a stream.
 *
 * route    which ranks a token goes to, and as which of their rows
 * pack     rows of from to out, with a header where header_bytes is not 0
 * arrive   how many rows have come
 * unpack   their headers
 * order    which row of its expert each of their slots is
 * expand   rows of in to those of to
 * part     the same, weighted, and products with those of other; NULL: none
 * reduce   the sum of a row's slots to in; from NULL: their products
 * finish   the sum of a token's rows to to; of_slots: of each slot the product
 *
 * Rows are row_bytes long, a multiple of 4, as are the beginnings of parts.
 * gone and come are bytes for each rank. What there is too much of, or what is
 * no expert, sets trouble; then gone says more than there ever is room for.
 */
typedef struct wefti_rows_args {
    size_t nranks, experts, experts_here, slots; /* slots: at most 32 */
    size_t hidden, tokens, capacity;
    size_t row_bytes, header_bytes;
    size_t out_bytes, in_bytes, rows_most; /* of these arrays */
    int32_t rank;
    int32_t quantised; /* f8e4m3 with scales on the way, else as in memory */
    int32_t rounded; /* sums on their way are of the kernel's type, else f32 */
    int32_t weighted, of_slots;
    const int32_t *nodes, *turns; /* [nranks] node, and place in order */
    void *out, *in;
    const size_t *out_begins, *in_begins; /* [nranks] */
    const int32_t *expert;                /* [tokens][slots] */
    const float *weight;                  /* likewise; NULL: 1 */
    int32_t *kept_experts;                /* what was kept of these two */
    float *kept_weights;
    int32_t *sent;                 /* [tokens][slots] which row of its rank's */
    size_t *out_rows;              /* [nranks] */
    size_t *firsts;                /* [nranks + 1] of the rows that have come */
    int32_t *here;                 /* [rows][slots] this rank's expert; -1 */
    int32_t *places;               /* [rows][slots] in the experts' rows; -1 */
    float *row_weights, *products; /* [rows][slots] */
    int32_t *expert_rows;          /* [experts_here] */
    int32_t *trouble;
    size_t *gone;       /* [nranks] */
    const size_t *come; /* [nranks] */
    const void *from, *other;
    void *to;
} wefti_rows_args;

#ifdef __cplusplus
}
#endif

#endif
