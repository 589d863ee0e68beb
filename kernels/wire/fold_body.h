/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/fold_body.h - the loops of one element type and one reduction;
 * fold_table.h includes it once for each pair, with these names defined:
 *
 *   FOLD_NAME(verb)    the function's name
 *   FOLD_ELEM          element in memory, of any alignment
 *   FOLD_WIDE          partial result
 *   FOLD_WIDE_MEMORY   the same in memory, of any alignment
 *   FOLD_LOAD(x)       element to partial result
 *   FOLD_JOIN(a, b)    the reduction
 *   FOLD_DONE(x, n)    partial result of n sources to element
 *
 * Up to four sources one loop reads them all and writes the element. More are
 * folded block by block, so that partial results never leave the first-level
 * cache, each block down the same tree.
 */

/* One loop per number of sources; PUT takes the partial result of element i. */
#define FOLD_STRAIGHT(PUT)                                                     \
    switch (source_count) {                                                    \
    case 1:                                                                    \
        FOLD_INDEPENDENT                                                       \
        for (size_t i = 0; i < elems; i++) {                                   \
            PUT(FOLD_LOAD(a[i]));                                              \
        }                                                                      \
        break;                                                                 \
    case 2:                                                                    \
        FOLD_INDEPENDENT                                                       \
        for (size_t i = 0; i < elems; i++) {                                   \
            PUT(FOLD_JOIN(FOLD_LOAD(a[i]), FOLD_LOAD(b[i])));                  \
        }                                                                      \
        break;                                                                 \
    case 3:                                                                    \
        FOLD_INDEPENDENT                                                       \
        for (size_t i = 0; i < elems; i++) {                                   \
            FOLD_WIDE ab = FOLD_JOIN(FOLD_LOAD(a[i]), FOLD_LOAD(b[i]));        \
            PUT(FOLD_JOIN(ab, FOLD_LOAD(c[i])));                               \
        }                                                                      \
        break;                                                                 \
    default:                                                                   \
        FOLD_INDEPENDENT                                                       \
        for (size_t i = 0; i < elems; i++) {                                   \
            FOLD_WIDE ab = FOLD_JOIN(FOLD_LOAD(a[i]), FOLD_LOAD(b[i]));        \
            FOLD_WIDE cd = FOLD_JOIN(FOLD_LOAD(c[i]), FOLD_LOAD(d[i]));        \
            PUT(FOLD_JOIN(ab, cd));                                            \
        }                                                                      \
        break;                                                                 \
    }

/* out = fold of 1 to FOLD_STRAIGHT_MOST sources from element `at` on. */
static void FOLD_NAME(leaf)(FOLD_WIDE *out, const void *const *sources,
                            size_t source_count, size_t at, size_t elems)
{
    const FOLD_ELEM *a = (const FOLD_ELEM *)sources[0] + at;
    const FOLD_ELEM *b = (const FOLD_ELEM *)sources[source_count > 1] + at;
    const FOLD_ELEM *c =
        (const FOLD_ELEM *)sources[source_count > 2 ? 2 : 0] + at;
    const FOLD_ELEM *d =
        (const FOLD_ELEM *)sources[source_count > 3 ? 3 : 0] + at;

#define FOLD_PUT(x) out[i] = (x)
    FOLD_STRAIGHT(FOLD_PUT)
#undef FOLD_PUT
}

/* dst = finished fold of 1 to FOLD_STRAIGHT_MOST sources. */
static void FOLD_NAME(straight)(FOLD_ELEM *dst, const void *const *sources,
                                size_t source_count, size_t elems)
{
    const FOLD_ELEM *a = sources[0];
    const FOLD_ELEM *b = sources[source_count > 1];
    const FOLD_ELEM *c = sources[source_count > 2 ? 2 : 0];
    const FOLD_ELEM *d = sources[source_count > 3 ? 3 : 0];

#define FOLD_PUT(x) dst[i] = FOLD_DONE(x, source_count)
    FOLD_STRAIGHT(FOLD_PUT)
#undef FOLD_PUT
}

static void FOLD_NAME(combine)(void *wide_dst, const void *wide_src,
                               size_t elems)
{
    FOLD_WIDE_MEMORY *dst = wide_dst;
    const FOLD_WIDE_MEMORY *src = wide_src;

    FOLD_INDEPENDENT
    for (size_t i = 0; i < elems; i++) {
        dst[i] = FOLD_JOIN(dst[i], src[i]);
    }
}

/* out = the balanced tree over the sources, at most one block of it. */
static void FOLD_NAME(tree)(FOLD_WIDE *out, const void *const *sources,
                            size_t source_count, size_t at, size_t elems)
{
    if (source_count <= FOLD_STRAIGHT_MOST) {
        FOLD_NAME(leaf)(out, sources, source_count, at, elems);
        return;
    }
    size_t low_count = split(source_count);
    _Alignas(64) FOLD_WIDE high[FOLD_BLOCK_BYTES / sizeof(FOLD_WIDE)];
    FOLD_NAME(tree)(out, sources, low_count, at, elems);
    FOLD_NAME(tree)
    (high, sources + low_count, source_count - low_count, at, elems);
    FOLD_NAME(combine)(out, high, elems);
}

static void FOLD_NAME(fold)(void *dst_start, const void *const *sources,
                            size_t source_count, size_t elems)
{
    if (source_count <= FOLD_STRAIGHT_MOST) {
        FOLD_NAME(straight)(dst_start, sources, source_count, elems);
        return;
    }
    enum { BLOCK_ELEMS = FOLD_BLOCK_BYTES / sizeof(FOLD_WIDE) };
    _Alignas(64) FOLD_WIDE low[BLOCK_ELEMS];
    _Alignas(64) FOLD_WIDE high[BLOCK_ELEMS];
    size_t low_count = split(source_count);

    for (size_t at = 0; at < elems; at += BLOCK_ELEMS) {
        FOLD_ELEM *dst = (FOLD_ELEM *)dst_start + at;
        size_t block_elems =
            elems - at < BLOCK_ELEMS ? elems - at : BLOCK_ELEMS;
        FOLD_NAME(tree)(low, sources, low_count, at, block_elems);
        FOLD_NAME(tree)
        (high, sources + low_count, source_count - low_count, at, block_elems);
        FOLD_INDEPENDENT
        for (size_t i = 0; i < block_elems; i++) {
            dst[i] = FOLD_DONE(FOLD_JOIN(low[i], high[i]), source_count);
        }
    }
}

static void FOLD_NAME(narrow)(void *dst_start, const void *wide_src,
                              size_t source_count, size_t elems)
{
    FOLD_ELEM *dst = dst_start;
    const FOLD_WIDE_MEMORY *src = wide_src;

    (void)source_count; /* used by AVG only */
    FOLD_INDEPENDENT
    for (size_t i = 0; i < elems; i++) {
        dst[i] = FOLD_DONE(src[i], source_count);
    }
}

#undef FOLD_STRAIGHT
#undef FOLD_NAME
#undef FOLD_JOIN
#undef FOLD_DONE
