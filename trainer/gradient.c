/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/gradient.c - the tree of micro-batch gradients as a binary counter.
 */
#include "trainer/gradient.h"

#include "base/check.h"
#include "kernels/math/math_stream.h"
#include "trainer/model/storage.h"

enum { CACHED_ELEMS = 16384 };

/* A full subtree of 2^k waits only where a later micro-batch follows. */
size_t wefti_gradient_count_levels(size_t count)
{
    size_t levels = 0;
    while (levels < 32 && ((size_t)1 << levels) < count) {
        levels++;
    }
    return levels;
}

weft_status wefti_gradient_init(wefti_gradient *gradient,
                                const wefti_gradient *given)
{
    *gradient = *given;
    weft_status status = WEFT_OK;
    size_t levels = wefti_gradient_count_levels(given->count);
    while (status == WEFT_OK && gradient->level_count < levels) {
        status = wefti_storage_alloc_on(
            given->device, given->compute, given->plan->flat_elems,
            &gradient->levels[gradient->level_count]);
        gradient->level_count++;
    }
    if (status != WEFT_OK) {
        wefti_gradient_fini(gradient);
    }
    return status;
}

void wefti_gradient_fini(wefti_gradient *gradient)
{
    for (size_t i = 0; i < gradient->level_count; i++) {
        wefti_storage_free_on(gradient->device, gradient->levels[i]);
    }
    *gradient = (wefti_gradient){0};
}

static bool is_last(const wefti_gradient *gradient, size_t number)
{
    return number + 1 >= gradient->count;
}

/* An even number that is not the last begins a subtree: level 0 is free. */
real *wefti_gradient_place(const wefti_gradient *gradient, size_t number)
{
    return is_last(gradient, number) || number % 2 != 0 ? gradient->leaf
                                                        : gradient->levels[0];
}

/* to = level + leaf, of elems from start on. */
static weft_status add(const wefti_gradient *gradient, real *to, size_t level,
                       size_t start, size_t elems)
{
    const wefti_math_tensor sum =
        wefti_math_flat(to + start, WEFTI_REAL_DTYPE, elems);
    const wefti_math_tensor left = wefti_math_flat(
        gradient->levels[level] + start, WEFTI_REAL_DTYPE, elems);
    const wefti_math_tensor right =
        wefti_math_flat(gradient->leaf + start, WEFTI_REAL_DTYPE, elems);
    return wefti_stream_add(gradient->compute, &sum, &left, &right);
}

/*
 * Level k holds the neighbour on the left where bit k of number is set. An
 * inner micro-batch carries as far as the ones go without a gap, and its last
 * sum goes straight to the level where it waits; the last one has no neighbour
 * on the right, ever, and collects them all.
 */
static weft_status carry(const wefti_gradient *gradient, size_t number,
                         size_t start, size_t elems)
{
    const bool last = is_last(gradient, number);
    weft_status status = WEFT_OK;
    for (size_t level = 0; number >> level && status == WEFT_OK; level++) {
        const bool here = (number >> level) & 1;
        const bool on = (number >> (level + 1)) & 1;
        if (here) {
            real *to =
                last || on ? gradient->leaf : gradient->levels[level + 1];
            status = add(gradient, to, level, start, elems);
        }
        if (!last && !(here && on)) {
            break;
        }
    }
    return status;
}

weft_status wefti_gradient_add(const wefti_gradient *gradient, size_t bucket,
                               size_t number)
{
    WEFTI_ASSERT(number < gradient->count);
    const weft_bucket_extent *extent = &gradient->plan->buckets[bucket];
    const size_t elems = extent->share_elems * gradient->plan->nranks;
    /* On the host, what one sum has written the next one reads from a cache. */
    const size_t step = gradient->compute ? elems : CACHED_ELEMS;
    weft_status status = WEFT_OK;
    for (size_t at = 0; at < elems && status == WEFT_OK; at += step) {
        const size_t left = elems - at;
        status = carry(gradient, number, extent->start_elems + at,
                       left < step ? left : step);
    }
    return status;
}

double wefti_gradient_tree_sum(const double *values, size_t count)
{
    if (count < 2) {
        return count == 0 ? 0.0 : values[0];
    }
    size_t left = 1;
    while (left * 2 < count) {
        left *= 2;
    }
    return wefti_gradient_tree_sum(values, left) +
           wefti_gradient_tree_sum(values + left, count - left);
}
