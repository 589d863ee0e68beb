/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/documents.h - where the documents of a packed sequence begin,
 * and what a place's queries see of another place's keys of one of them.
 *
 *   tokens   a b . c . d e f       . ends a document
 *   starts   0     3   5       8   the last one: where the sequence ends
 *
 * Tokens of a place are in order, so a document's are a run of them in every
 * layout (trainer/model/context.h), and a block of documents is a row of
 * triangles and rectangles.
 */
#ifndef TRAINER_MODEL_DOCUMENTS_H
#define TRAINER_MODEL_DOCUMENTS_H

#include "trainer/model/context.h"

/* Of several sequences of as many tokens each; NULL starts: each is one. */
typedef struct wefti_documents {
    const uint32_t *starts; /* [sequences][stride] */
    size_t stride;
} wefti_documents;

/* Entries that a sequence of so many tokens may take. */
static inline size_t wefti_documents_stride(size_t tokens)
{
    return tokens + 1;
}

/* Where documents begin of a sequence of tokens; end_token: their last one. */
void wefti_documents_find(const int32_t *tokens, size_t count,
                          int32_t end_token, uint32_t *starts_out);

/* A sequence that is one document. */
void wefti_documents_whole(size_t count, uint32_t *starts_out);

/* All documents of so many sequences, in order. */
typedef struct wefti_document_walk {
    const wefti_documents *documents;
    size_t tokens, sequences; /* tokens: of a sequence */
    size_t sequence;          /* of the next document */
    const uint32_t *next;     /* where it begins; NULL: the sequence does */
} wefti_document_walk;

/* False: there are no more. start_out[0] and [1] are as of cut. */
bool wefti_document_next(wefti_document_walk *walk, size_t *sequence_out,
                         const uint32_t **start_out);

/*
 * wefti_documents_cut - of a block, what is in the document that begins at
 * start[0] and ends before start[1]; no queries: nothing is.
 *
 * owner    of the keys, in the ring; seq tokens are a sequence
 */
wefti_context_block wefti_documents_cut(const wefti_context *context,
                                        size_t seq, size_t owner,
                                        const wefti_context_block *seen,
                                        const uint32_t start[2]);

#endif
