/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/documents.c - runs of tokens, by where they begin.
 */
#include "trainer/model/documents.h"

void wefti_documents_find(const int32_t *tokens, size_t count,
                          int32_t end_token, uint32_t *starts_out)
{
    *starts_out++ = 0;
    for (size_t i = 0; i + 1 < count; i++) {
        if (tokens[i] == end_token) {
            *starts_out++ = (uint32_t)i + 1;
        }
    }
    *starts_out = (uint32_t)count;
}

void wefti_documents_whole(size_t count, uint32_t *starts_out)
{
    starts_out[0] = 0;
    starts_out[1] = (uint32_t)count;
}

bool wefti_document_next(wefti_document_walk *walk, size_t *sequence_out,
                         const uint32_t **start_out)
{
    const wefti_documents *all = walk->documents;
    if (walk->sequence >= walk->sequences) {
        return false;
    }
    *sequence_out = walk->sequence;
    *start_out =
        walk->next ? walk->next : all->starts + walk->sequence * all->stride;
    const bool last = (*start_out)[1] >= walk->tokens;
    walk->next = last ? NULL : *start_out + 1;
    walk->sequence += last;
    return true;
}

/* [first, end) of a place's tokens, clipped to the block's. */
typedef struct run {
    size_t first, end;
} run;

static run clip(const wefti_context *context, size_t seq, size_t place,
                const uint32_t start[2], size_t block_first, size_t block_count)
{
    run own = {wefti_context_before(context, seq, place, start[0]),
               wefti_context_before(context, seq, place, start[1])};
    const size_t block_end = block_first + block_count;
    own.first = own.first > block_first ? own.first : block_first;
    own.end = own.end < block_end ? own.end : block_end;
    return own;
}

wefti_context_block wefti_documents_cut(const wefti_context *context,
                                        size_t seq, size_t owner,
                                        const wefti_context_block *seen,
                                        const uint32_t start[2])
{
    const run queries = clip(context, seq, wefti_context_place(context), start,
                             seen->query, seen->queries);
    const run keys = clip(context, seq, owner, start, seen->key, seen->keys);
    if (queries.first >= queries.end || keys.first >= keys.end) {
        return (wefti_context_block){0};
    }
    return (wefti_context_block){
        .query = queries.first,
        .queries = queries.end - queries.first,
        .key = keys.first,
        .keys = keys.end - keys.first,
        .causal = seen->causal,
        .offset = seen->offset + (int64_t)(queries.first - seen->query) -
                  (int64_t)(keys.first - seen->key)};
}
