/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/context.c - positions by arithmetic.
 */
#include "trainer/model/context.h"

#include "base/check.h"

size_t wefti_context_parts(const wefti_context *context)
{
    return context->parts > 1 ? context->parts : 1;
}

size_t wefti_context_ulysses(const wefti_context *context)
{
    return context->ulysses > 1 ? context->ulysses : 1;
}

size_t wefti_context_ring(const wefti_context *context)
{
    return wefti_context_parts(context) / wefti_context_ulysses(context);
}

size_t wefti_context_place(const wefti_context *context)
{
    return context->part / wefti_context_ulysses(context);
}

static bool is_zigzag(const wefti_context *context)
{
    return context->layout == WEFTI_CONTEXT_ZIGZAG &&
           wefti_context_ring(context) > 1;
}

/* A place of a zigzag has two runs of one length, which its ranks share. */
size_t wefti_context_unit(const wefti_context *context)
{
    const size_t parts = wefti_context_parts(context);
    const bool halves =
        is_zigzag(context) && wefti_context_ulysses(context) % 2 != 0;
    return halves ? 2 * parts : parts;
}

size_t wefti_context_length(const wefti_context *context, size_t seq)
{
    WEFTI_ASSERT(seq % wefti_context_unit(context) == 0);
    return seq / wefti_context_parts(context);
}

size_t wefti_context_attended(const wefti_context *context, size_t seq)
{
    return wefti_context_length(context, seq) * wefti_context_ulysses(context);
}

size_t wefti_context_attended_position(const wefti_context *context, size_t seq,
                                       size_t i)
{
    const size_t ring = wefti_context_ring(context),
                 own = wefti_context_place(context);
    const size_t tokens = wefti_context_attended(context, seq);
    if (context->layout == WEFTI_CONTEXT_STRIPE) {
        return i * ring + own;
    }
    if (!is_zigzag(context)) {
        return own * tokens + i;
    }
    const size_t run = tokens / 2;
    return i < run ? own * run + i : (2 * ring - 1 - own) * run + i - run;
}

size_t wefti_context_position(const wefti_context *context, size_t seq,
                              size_t i)
{
    const size_t before = context->part % wefti_context_ulysses(context);
    return wefti_context_attended_position(
        context, seq, before * wefti_context_length(context, seq) + i);
}

size_t wefti_context_find(const wefti_context *context, size_t seq,
                          size_t position, size_t *index_out)
{
    const size_t ring = wefti_context_ring(context);
    const size_t tokens = wefti_context_attended(context, seq);
    const size_t length = wefti_context_length(context, seq);
    size_t place = position / tokens, i = position % tokens;
    if (context->layout == WEFTI_CONTEXT_STRIPE) {
        place = position % ring;
        i = position / ring;
    } else if (is_zigzag(context)) {
        const size_t run = tokens / 2, number = position / run;
        const bool second = number >= ring;
        place = second ? 2 * ring - 1 - number : number;
        i = position % run + (second ? run : 0);
    }
    *index_out = i % length;
    return place * wefti_context_ulysses(context) + i / length;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Of a run of count that begins at first. */
static size_t count_before(size_t position, size_t first, size_t count)
{
    return position > first ? least(position - first, count) : 0;
}

size_t wefti_context_before(const wefti_context *context, size_t seq,
                            size_t place, size_t position)
{
    const size_t ring = wefti_context_ring(context);
    const size_t tokens = wefti_context_attended(context, seq);
    if (context->layout == WEFTI_CONTEXT_STRIPE) {
        return position > place ? (position - place + ring - 1) / ring : 0;
    }
    if (!is_zigzag(context)) {
        return count_before(position, place * tokens, tokens);
    }
    const size_t half = tokens / 2;
    return count_before(position, place * half, half) +
           count_before(position, (2 * ring - 1 - place) * half, half);
}

void wefti_context_take(const wefti_context *context, size_t seq,
                        const int32_t *whole, int32_t *own)
{
    const size_t length = wefti_context_length(context, seq);
    for (size_t i = 0; i < length; i++) {
        own[i] = whole[wefti_context_position(context, seq, i)];
    }
}

wefti_context_block wefti_context_see(const wefti_context *context,
                                      size_t tokens, size_t owner)
{
    const size_t own = wefti_context_place(context);
    wefti_context_block all = {.queries = tokens, .keys = tokens};
    if (owner == own || context->layout == WEFTI_CONTEXT_STRIPE) {
        all.causal = true;
        all.offset = owner > own ? -1 : 0;
    } else if (is_zigzag(context)) {
        const size_t run = tokens / 2;
        if (owner < own) { /* its second run is behind all queries */
            all.keys = run;
        } else { /* the first run of queries is before all keys */
            all.query = run;
            all.queries = run;
        }
    } else if (owner > own) {
        return (wefti_context_block){0};
    }
    return all;
}
