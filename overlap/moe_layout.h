/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/moe_layout.h - which rank sends a token's row to which, over one hop
 * and over two. Arithmetic only: no memory but its own, no clock, no I/O.
 *
 *      ranks      0  1  2 | 3  4        two nodes, of 3 ranks and of 2
 *      index      0  1  2   0  1
 *
 *      one hop    source --> each rank with an expert of the token
 *      two hops   source --> the relay of each such node --> its such ranks
 *
 * The relay of a source in its own node is itself; elsewhere the rank with its
 * index there, modulo how many there are.
 */
#ifndef OVERLAP_MOE_LAYOUT_H
#define OVERLAP_MOE_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEFTI_MOE_HOPS_MOST = 2 };

typedef struct wefti_moe_layout {
    int nranks, node_count, hops;
    int experts, slots;
    size_t tokens; /* the most of a rank */
    int *nodes;    /* [nranks] numbered by their lowest ranks */
    int *indices;  /* [nranks] of each rank in its node */
    int *members;  /* [nranks] node by node, ascending in each */
    int *begins;   /* [node_count + 1] in members */
} wefti_moe_layout;

/*
 * wefti_moe_layout_init - fills in nodes, indices, members and begins; the
 * other fields are set by the caller, hops 0 becomes 1 or 2.
 *
 * firsts   [nranks] the lowest rank of each rank's node.
 *
 * Returns  whether there was memory for it; fini gives it back.
 */
bool wefti_moe_layout_init(wefti_moe_layout *layout, const int *firsts);
void wefti_moe_layout_fini(wefti_moe_layout *layout);

/* The rank of an expert; -1: there is none of that number. */
int wefti_moe_owner(const wefti_moe_layout *layout, int32_t expert);

/* The rank through which a source's rows go into a node. */
int wefti_moe_relay(const wefti_moe_layout *layout, int source, int node);

/* How many rows may go from a rank to another at most, in hop 0 or 1. */
size_t wefti_moe_most_rows(const wefti_moe_layout *layout, int hop, int from,
                           int to);

/* To which rank a row for an expert goes from a rank in a hop; -1: to none. */
int wefti_moe_next(const wefti_moe_layout *layout, int hop, int from,
                   int32_t expert);

/*
 * wefti_moe_targets - to which ranks rank `from` sends a token's row in a hop.
 *
 * experts      [slots]; what is no expert counts as none.
 * targets_out  [slots] by node, ascending in each node.
 *
 * Returns      how many there are.
 */
int wefti_moe_targets(const wefti_moe_layout *layout, int hop, int from,
                      const int32_t *experts, int *targets_out);

#endif
