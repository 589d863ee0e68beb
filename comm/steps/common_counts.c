/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/common_counts.c - a peer's row is read after its entry's number
 * was loaded (comm/steps/agree.c), and stands until every rank has completed
 * the operation.
 */
#include "comm/steps/common_counts.h"

#include "comm/control/fault.h"
#include "comm/pattern/shape.h"

#include <stdio.h>

enum { WORDS_MOST = WEFTI_PAYLOAD_BYTES / (int)sizeof(uint64_t) };

bool wefti_op_has_common_counts(const wefti_op *op)
{
    return op->desc.collective == WEFT_COLLECTIVE_ALLGATHERV ||
           op->desc.collective == WEFT_COLLECTIVE_REDUCESCATTERV;
}

static bool gathers(const wefti_op *op)
{
    return op->desc.collective == WEFT_COLLECTIVE_ALLGATHERV;
}

/* [nranks] what comes from each rank, or what goes to each. */
static const size_t *counts_of(const wefti_op *op)
{
    return gathers(op) ? op->problem.recv_counts : op->problem.send_counts;
}

/* Ranks of a word of the row. */
static int ranks_each(int nranks)
{
    return (nranks - 1) / WORDS_MOST + 1;
}

static int count_words(int nranks)
{
    return (nranks - 1) / ranks_each(nranks) + 1;
}

size_t wefti_common_counts_bytes(int nranks)
{
    return (size_t)count_words(nranks) * sizeof(uint64_t);
}

/* Each step is a bijection: arrays that differ in one place never have the same
 * digest, others with a probability of 2^-64. */
static uint64_t digest_of(const size_t *counts, int nranks)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    for (int rank = 0; rank < nranks; rank++) {
        digest = (digest ^ counts[rank]) * UINT64_C(0x9e3779b97f4a7c15);
        digest ^= digest >> 32;
    }
    return digest;
}

uint64_t wefti_common_counts_pack(const size_t *counts, int nranks,
                                  uint64_t *row_out)
{
    const int each = ranks_each(nranks);
    for (int rank = 0; rank < nranks; rank++) {
        const uint64_t before = rank % each ? row_out[rank / each] : 0;
        row_out[rank / each] = before + counts[rank];
    }
    return digest_of(counts, nranks);
}

static uint64_t *row_of(weft_comm *comm, wefti_entry *entry)
{
    return (uint64_t *)(void *)wefti_entry_payload(
        entry, wefti_common_counts_bytes(comm->nranks));
}

static uint64_t *own_row(weft_comm *comm, const wefti_op *op)
{
    return row_of(comm, wefti_shared_get_entry(&comm->fabric.shared, comm->rank,
                                               op->number));
}

size_t wefti_common_counts_declare(weft_comm *comm, wefti_op *op)
{
    op->signature.count = wefti_common_counts_pack(counts_of(op), comm->nranks,
                                                   own_row(comm, op));
    return wefti_common_counts_bytes(comm->nranks);
}

/* The word that says most: of one of both, or the first that differs; -1: none
 * does. */
static int find_different(const wefti_op *op, int peer, const uint64_t *own,
                          const uint64_t *theirs)
{
    const int nranks = op->problem.nranks;
    const int both[] = {peer / ranks_each(nranks),
                        op->problem.rank / ranks_each(nranks)};
    for (int i = 0; i < 2; i++) {
        if (own[both[i]] != theirs[both[i]]) {
            return both[i];
        }
    }
    for (int word = 0; word < count_words(nranks); word++) {
        if (own[word] != theirs[word]) {
            return word;
        }
    }
    return -1;
}

/* A count that one of both sends and the other expects. */
static void describe_pair(const wefti_op *op, int peer, bool sends,
                          uint64_t sent, uint64_t expected, char *text_out,
                          size_t text_bytes)
{
    const int from = sends ? peer : op->problem.rank;
    const int to = sends ? op->problem.rank : peer;
    snprintf(text_out, text_bytes,
             "rank %d posted %s with %llu %s for rank %d, rank %d expects %llu",
             from, weft_collective_text(op->desc.collective),
             (unsigned long long)sent, weft_dtype_text(op->desc.dtype), to, to,
             (unsigned long long)expected);
}

/* A count of neither, or a sum of several. */
static void describe_other(const wefti_op *op, int peer, int word,
                           uint64_t theirs, uint64_t own, char *text_out,
                           size_t text_bytes)
{
    const int nranks = op->problem.nranks, each = ranks_each(nranks);
    const int first = word * each;
    const int last = first + each < nranks ? first + each - 1 : nranks - 1;
    char ranks[48];
    snprintf(ranks, sizeof(ranks),
             first < last ? "ranks %d to %d together" : "rank %d", first, last);
    snprintf(text_out, text_bytes,
             "rank %d posted %s with %llu %s %s %s, rank %d with %llu", peer,
             weft_collective_text(op->desc.collective),
             (unsigned long long)theirs, weft_dtype_text(op->desc.dtype),
             gathers(op) ? "from" : "for", ranks, op->problem.rank,
             (unsigned long long)own);
}

void wefti_common_counts_text(const wefti_op *op, int peer, const uint64_t *own,
                              const uint64_t *theirs, char *text_out,
                              size_t text_bytes)
{
    const int rank = op->problem.rank;
    const int word = find_different(op, peer, own, theirs);
    const bool of_both = word == peer || word == rank;
    if (word < 0) {
        snprintf(text_out, text_bytes,
                 "rank %d posted %s with other counts than rank %d", peer,
                 weft_collective_text(op->desc.collective), rank);
    } else if (of_both && ranks_each(op->problem.nranks) == 1) {
        const bool sends = gathers(op) == (word == peer);
        describe_pair(op, peer, sends, sends ? theirs[word] : own[word],
                      sends ? own[word] : theirs[word], text_out, text_bytes);
    } else {
        describe_other(op, peer, word, theirs[word], own[word], text_out,
                       text_bytes);
    }
}

void wefti_common_counts_report(weft_comm *comm, const wefti_op *op, int peer,
                                wefti_entry *entry)
{
    const uint64_t *own = own_row(comm, op);
    char text[192];
    wefti_common_counts_text(op, peer, own, entry ? row_of(comm, entry) : own,
                             text, sizeof(text));
    wefti_fault_publish(comm, WEFT_ERR_MISMATCH, peer, op->number,
                        "operation #%llu on \"%s\" differs: %s",
                        (unsigned long long)op->number, comm->name, text);
}
