/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/letters.c - queues of point-to-point operations, one per ordered pair.
 *
 * Only the oldest of a queue moves. A letter is the one-track pattern below:
 * chunks of a fixed size through the pair's staging, at least one message, so
 * that an empty letter carries its signature too.
 */
#include "comm/letters.h"

#include "base/error.h"
#include "comm/op.h"
#include "comm/track.h"

#include <stdlib.h>

static bool supports(const wefti_problem *problem)
{
    return problem->collective == WEFT_COLLECTIVE_SEND ||
           problem->collective == WEFT_COLLECTIVE_RECV;
}

static size_t step_count(const wefti_problem *problem, int track)
{
    if (track > 0) {
        return 0;
    }
    size_t chunk = problem->chunk_elems;
    return problem->count ? (problem->count - 1) / chunk + 1 : 1;
}

static void step_at(const wefti_problem *problem, int track, size_t index,
                    wefti_step *step_out)
{
    (void)track;
    size_t begin = index * problem->chunk_elems;
    size_t left = problem->count - begin;
    bool send = problem->collective == WEFT_COLLECTIVE_SEND;
    *step_out = (wefti_step){
        .kind = send ? WEFTI_STEP_SEND : WEFTI_STEP_RECV,
        .src = send ? WEFTI_BUFFER_SEND : WEFTI_BUFFER_NONE,
        .dst = send ? WEFTI_BUFFER_NONE : WEFTI_BUFFER_RECV,
        .peer = problem->root,
        .src_elem = begin,
        .dst_elem = begin,
        .elems = left < problem->chunk_elems ? left : problem->chunk_elems,
    };
}

static int slots(const wefti_problem *problem, int channel)
{
    (void)problem;
    return channel == 0 ? WEFTI_LETTER_SLOTS : 0;
}

static const wefti_pattern letter_pattern = {
    .name = "letter",
    .supports = supports,
    .step_count = step_count,
    .step_at = step_at,
    .slots = slots,
};

weft_status wefti_letters_init(weft_comm *comm)
{
    size_t ranks = (size_t)comm->nranks;
    comm->letters = calloc(WEFTI_LETTERS, sizeof(*comm->letters));
    comm->outgoing = calloc(ranks, sizeof(*comm->outgoing));
    comm->incoming = calloc(ranks, sizeof(*comm->incoming));
    wefti_slot *records =
        calloc((size_t)WEFTI_LETTERS * WEFTI_LETTER_SLOTS, sizeof(*records));
    uint64_t *arrived =
        calloc((size_t)WEFTI_LETTERS * WEFTI_GATE_CHUNKS_MAX, sizeof(*arrived));
    comm->letter_records = records;
    comm->letter_arrived = arrived;
    if (!comm->letters || !comm->outgoing || !comm->incoming || !records ||
        !arrived) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for point-to-point operations");
    }
    for (int i = WEFTI_LETTERS - 1; i >= 0; i--) {
        wefti_op *op = &comm->letters[i];
        op->ring = WEFTI_RING_LETTERS;
        op->slot_records[0] = records + (size_t)i * WEFTI_LETTER_SLOTS;
        op->gate_arrived = arrived + (size_t)i * WEFTI_GATE_CHUNKS_MAX;
        op->next = comm->letters_free;
        comm->letters_free = op;
    }
    return WEFT_OK;
}

void wefti_letters_fini(weft_comm *comm)
{
    free(comm->letters);
    free(comm->outgoing);
    free(comm->incoming);
    free(comm->letter_records);
    free(comm->letter_arrived);
}

wefti_op *wefti_letters_take(weft_comm *comm, const weft_op *desc,
                             uint64_t epoch, bool on_stream)
{
    wefti_op *op = comm->letters_free;
    if (!op) {
        return NULL;
    }
    comm->letters_free = op->next;
    bool send = desc->collective == WEFT_COLLECTIVE_SEND;
    wefti_letters *queue =
        &(send ? comm->outgoing : comm->incoming)[desc->root];
    op->number = ++queue->posted;
    op->turn++;
    wefti_op_init(comm, op, desc, epoch, on_stream);
    /* Both sides sign as the sender does. */
    weft_op signed_as = *desc;
    signed_as.collective = WEFT_COLLECTIVE_SEND;
    op->signature = wefti_signature_pack(&signed_as, 0);
    op->choice.pattern = &letter_pattern;
    op->problem.chunk_elems =
        WEFTI_LETTER_BYTES / weft_dtype_bytes(desc->dtype);
    op->slots[0] = WEFTI_LETTER_SLOTS;
    wefti_track_start_all(op);
    op->state = WEFTI_OP_POSTED;
    op->next = NULL;
    if (queue->last) {
        queue->last->next = op;
    } else {
        queue->first = op;
    }
    queue->last = op;
    comm->letters_pending++;
    return op;
}

static bool advance_queue(weft_comm *comm, wefti_letters *queue)
{
    bool moved = false;
    while (queue->first) {
        wefti_op *op = queue->first;
        if (op->state != WEFTI_OP_FREE) {
            moved |= wefti_op_advance(comm, op);
        }
        if (op->state != WEFTI_OP_FREE) {
            break;
        }
        queue->first = op->next;
        if (!queue->first) {
            queue->last = NULL;
        }
        op->next = comm->letters_free;
        comm->letters_free = op;
        comm->letters_pending--;
    }
    return moved;
}

bool wefti_letters_advance(weft_comm *comm)
{
    bool moved = false;
    for (int peer = 0; peer < comm->nranks && comm->letters_pending; peer++) {
        moved |= advance_queue(comm, &comm->outgoing[peer]);
        moved |= advance_queue(comm, &comm->incoming[peer]);
    }
    return moved;
}
