/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/gradient.h - the sum of the micro-batch gradients of one step, of a
 * group of parameters, added in one balanced binary tree over the micro-batch
 * number.
 *
 *   numbers   0   1   2   3   4   5   6
 *              \ /     \ /     \ /    |
 *               +-- + --+       +- + -+        split at the largest power of
 *                   +---------- + ---+         two: what comes first is full
 *
 * Rank r has a run of numbers, and weft's collectives add the ranks in the
 * same kind of tree. So where a rank's run is a power of two, the whole is the
 * one tree over the global numbers, whatever the layout: the sum has the same
 * bits.
 *
 * A finished subtree of 2^k micro-batches waits in level k for its neighbour,
 * like the digits of a binary counter.
 */
#ifndef TRAINER_GRADIENT_H
#define TRAINER_GRADIENT_H

#include "trainer/model/parameters.h"
#include "weft/device.h"

enum { WEFTI_GRADIENT_LEVELS_MOST = 32 };

typedef struct wefti_gradient {
    weft_device *device;
    weft_stream *compute;         /* as in wefti_replica */
    const wefti_group_plan *plan; /* borrowed */
    size_t count;                 /* micro-batches of this rank in a step */
    size_t level_count;
    real *leaf; /* flat: a micro-batch with a neighbour, at last the sum */
    real *levels[WEFTI_GRADIENT_LEVELS_MOST]; /* flat */
} wefti_gradient;

/* How many levels the tree of so many micro-batches takes, beside its leaf. */
size_t wefti_gradient_count_levels(size_t count);

/*
 * wefti_gradient_init - buffers for given count micro-batches a step, all
 * zero; of it also count device, compute, plan and leaf, which is flat and
 * zero.
 *
 * Returns     as wefti_storage_alloc_on.
 */
WEFT_NODISCARD weft_status wefti_gradient_init(wefti_gradient *gradient,
                                               const wefti_gradient *given);
void wefti_gradient_fini(wefti_gradient *gradient);

/*
 * wefti_gradient_place - where the gradients of micro-batch number (0 .. count
 * - 1; leaf, too, for what comes later) are to be written: to leaf, or straight
 * to the level where they wait.
 */
real *wefti_gradient_place(const wefti_gradient *gradient, size_t number);

/*
 * wefti_gradient_add - take a bucket of micro-batch number (0 .. count - 1, in
 * order) from its place. After the last one leaf holds the bucket's sum.
 * Queued.
 */
WEFT_NODISCARD weft_status wefti_gradient_add(const wefti_gradient *gradient,
                                              size_t bucket, size_t number);

/* The same tree over plain numbers. */
double wefti_gradient_tree_sum(const double *values, size_t count);

#endif
