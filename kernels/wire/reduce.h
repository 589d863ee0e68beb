/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/reduce.h - all the arithmetic that collectives do.
 *
 * What each reduction means for each type is said in weft/types.h. "Wide" is
 * the type partial results have: f32 for floats narrower than that, else the
 * type itself. All calls take any alignment and any number of elements.
 *
 * Pre-multiplied sums: whoever contributes elements multiplies them first, by
 * wefti_scale; from then on PREMULSUM is SUM here.
 *
 * Threads     any.  Blocks: no.  Allocates: no (stack only, bounded).
 */
#ifndef KERNELS_WIRE_REDUCE_H
#define KERNELS_WIRE_REDUCE_H

#include "weft/types.h"

/* Bytes of one element of the wide type of dtype. */
size_t wefti_wide_bytes(weft_dtype dtype);

/*
 * wefti_reduce - dst[i] = finish(op over k of sources[k][i]), i in [0, elems).
 *
 * The order is the balanced tree over k: reduce(a, b) = reduce(a, m) op
 * reduce(m, b) with m - a the largest power of two below b - a. Partial results
 * stay wide; finish divides by source_count for AVG and rounds to dtype once.
 *
 * dst           [elems] of dtype; may be one of the sources, else must not
 *               overlap them.
 * sources       source_count (1 .. any) pointers to [elems] of dtype, borrowed
 *               during the call.
 * redop         one that applies to dtype (weft_redop_applies).
 */
void wefti_reduce(void *dst, const void *const *sources, size_t source_count,
                  size_t elems, weft_dtype dtype, weft_redop redop);

/*
 * Sums of two levels: each group of sources is reduced by itself and rounded to
 * dtype, then the groups' results are reduced by the same tree.
 *
 * wefti_redop_inner, _outer - the reductions of the two levels. A float's
 * average is divided at the end of the first level, so that what goes on does
 * not overflow, an integer's at the end of the second. Both divide by
 * total_count, the number of sources of all groups.
 *
 * wefti_reduce_part - one level of it: wefti_reduce, but that AVG divides by
 * total_count. PREMULSUM as above.
 *
 * wefti_reduce_groups - both levels at once. group_begins [group_count + 1]:
 * where each group begins in sources; the last is source_count.
 *
 * wefti_round - ends the first level of a wide sum: wide[i] is narrowed by
 * the inner reduction, and widened again.
 */
weft_redop wefti_redop_inner(weft_dtype dtype, weft_redop redop);
weft_redop wefti_redop_outer(weft_dtype dtype, weft_redop redop);
void wefti_reduce_part(void *dst, const void *const *sources,
                       size_t source_count, size_t total_count, size_t elems,
                       weft_dtype dtype, weft_redop redop);
void wefti_reduce_groups(void *dst, const void *const *sources,
                         const int *group_begins, size_t group_count,
                         size_t elems, weft_dtype dtype, weft_redop redop);
void wefti_round(void *wide, size_t total_count, size_t elems, weft_dtype dtype,
                 weft_redop redop);

/*
 * wefti_reduce_nodes - one level of which some is added up already: each source
 * is one rank's elements, or the wide, unfinished result of as many ranks as
 * are a node of the tree over all.
 *
 *      ranks     0   1   2 3   4 5 6 7        begins 0 1 2 4 8
 *      sources   .   .    =       =           . of dtype, = wide
 *
 * dst           [elems]; may be no source.
 * begins        [source_count + 1] the first rank of each; source i has begins
 *               [i + 1] - begins[i] ranks, and is wide if that is more than 1.
 * total_count   what AVG divides by. 0: dst becomes wide, unfinished.
 */
void wefti_reduce_nodes(void *dst, const void *const *sources,
                        const int *begins, size_t source_count,
                        size_t total_count, size_t elems, weft_dtype dtype,
                        weft_redop redop);

/*
 * wefti_widen, _narrow - dtype to wide and back. narrow divides by
 * source_count for AVG and rounds once. dst may equal src only where the
 * element sizes are equal.
 */
void wefti_widen(void *wide_dst, const void *src, size_t elems,
                 weft_dtype dtype);
void wefti_narrow(void *dst, const void *wide_src, size_t source_count,
                  size_t elems, weft_dtype dtype, weft_redop redop);

/*
 * wefti_combine - wide_dst[i] = wide_dst[i] op wide_src[i]; not finished.
 */
void wefti_combine(void *wide_dst, const void *wide_src, size_t elems,
                   weft_dtype dtype, weft_redop redop);

/*
 * wefti_scale - dst[i] = src[i] * *scalar, rounded to dtype; integers wrap.
 *
 * scalar  one element of dtype. dst may equal src.
 */
void wefti_scale(void *dst, const void *src, const void *scalar, size_t elems,
                 weft_dtype dtype);

/*
 * wefti_copy - memcpy that does not spoil the cache: non-temporal stores from
 * a size where that pays. No overlap.
 *
 * wefti_copy_part is for one piece of a transfer into whole_bytes of memory
 * that nobody reads before the end: the size that counts is that of the whole.
 * Not for staging, which a peer reads at once: comm/fabric/stager.h.
 *
 * wefti_copy_past always passes the cache by, where the processor can.
 *
 * All may be published by a release store as soon as they have returned.
 */
void wefti_copy(void *dst, const void *src, size_t bytes);
void wefti_copy_past(void *dst, const void *src, size_t bytes);
void wefti_copy_part(void *dst, const void *src, size_t bytes,
                     size_t whole_bytes);

#endif
