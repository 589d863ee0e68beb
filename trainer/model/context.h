/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/context.h - which tokens of a sequence a rank has where ranks
 * share each one, and who of them needs what of whom; arithmetic alone.
 *
 *   parts = ring * ulysses: a ring of groups. The layout spreads tokens over
 *   the ring's places; the ranks of a place (neighbours) have its tokens in
 *   equal runs.
 *
 *   place 0 1 2 ..   contiguous   |  0  |  1  |  2  |  3  |
 *                    zigzag       |0 |1 |2 |3 |3 |2 |1 |0 |
 *                    stripe       |0123|0123|0123|...
 *
 * In attention a rank has the queries of all of its place, of some of the
 * heads, and sees the keys of one place after the other. Whatever the layout,
 * tokens of a place are in order; so what a place sees of another's is a
 * triangle or a rectangle of the two.
 *
 * Source: Li et al. 2023 (zigzag, as in Megatron-LM); Brandon et al. 2023
 * (stripes, arXiv 2311.09431); Fang, Zhao 2024 (ring by ulysses, arXiv
 * 2405.07719).
 */
#ifndef TRAINER_MODEL_CONTEXT_H
#define TRAINER_MODEL_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum wefti_context_layout {
    WEFTI_CONTEXT_CONTIGUOUS,
    WEFTI_CONTEXT_ZIGZAG,
    WEFTI_CONTEXT_STRIPE
} wefti_context_layout;

/* Zeros: a rank has whole sequences. */
typedef struct wefti_context {
    size_t parts, part; /* this rank's; parts 0 is 1 */
    size_t ulysses;     /* of the parts, those of a place; 0 is 1 */
    wefti_context_layout layout;
} wefti_context;

/* How many ranks share a sequence, and of them a place; the ring's places. */
size_t wefti_context_parts(const wefti_context *context);
size_t wefti_context_ulysses(const wefti_context *context);
size_t wefti_context_ring(const wefti_context *context);

/* This rank's place in the ring. */
size_t wefti_context_place(const wefti_context *context);

/* What the length of a sequence has to be a multiple of. */
size_t wefti_context_unit(const wefti_context *context);

/* Tokens of a sequence of so many that a rank has, and that a place has. */
size_t wefti_context_length(const wefti_context *context, size_t seq);
size_t wefti_context_attended(const wefti_context *context, size_t seq);

/* Where in the sequence this rank's i-th token stands; its place's i-th. */
size_t wefti_context_position(const wefti_context *context, size_t seq,
                              size_t i);
size_t wefti_context_attended_position(const wefti_context *context, size_t seq,
                                       size_t i);

/* How many tokens of a place stand before a position. */
size_t wefti_context_before(const wefti_context *context, size_t seq,
                            size_t place, size_t position);

/* Which part has the token at a position, and which of its own that is. */
size_t wefti_context_find(const wefti_context *context, size_t seq,
                          size_t position, size_t *index_out);

/* This rank's of seq items: own[i] = whole[position of i]. */
void wefti_context_take(const wefti_context *context, size_t seq,
                        const int32_t *whole, int32_t *own);

/*
 * Of a place's queries, and another's keys, those that see each other: all
 * keys, or with causal key j where j <= i + offset, counted from the firsts.
 */
typedef struct wefti_context_block {
    size_t query, queries; /* 0 queries: none sees any key */
    size_t key, keys;
    bool causal;
    int64_t offset;
} wefti_context_block;

/* tokens of a place; owner: of the keys, in the ring. */
wefti_context_block wefti_context_see(const wefti_context *context,
                                      size_t tokens, size_t owner);

#endif
