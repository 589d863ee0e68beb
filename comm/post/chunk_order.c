/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/chunk_order.c - in which order an operation reads and writes its
 * gate chunks: the pattern's steps, walked through without a communicator's
 * state.
 *
 *   list 0   SEND 5   SEND 9   SEND 6   SEND 10     ready of rank 0 of 3:
 *   list 1   REDUCE 1            REDUCE 2               5 9 1 6 10 2
 *
 * Lists run side by side, so that the next step is that of the list which has
 * the least part of its steps behind it, the lower one where two have equally
 * little. What a COPY moves is no other rank's: what it alone reads can be made
 * last, what it alone writes comes first.
 */
#include "weft/op.h"

#include "base/check.h"
#include "base/error.h"
#include "comm/engine/op.h"
#include "comm/post/p2p_queue.h"
#include "comm/post/post.h"
#include "comm/steps/op_life.h"
#include "comm/steps/step_gates.h"
#include "comm/steps/step_list.h"

#include <stdlib.h>

/* Keys: a step's place among all; LATE more behind all others; NONE: no step
 * has the chunk. */
#define LATE (SIZE_MAX / 2 + 1)
#define NONE SIZE_MAX

typedef struct entry {
    size_t key, chunk;
} entry;

typedef struct order {
    const wefti_op *op;
    bool send; /* of the ready gate; else of the arrived one */
    entry *entries;
    size_t count;
} order;

/* How far the walk is in one list. */
typedef struct cursor {
    wefti_step_place at;
    size_t passed, total;
} cursor;

/* A chunk is first read by its first step, and written when its last is done.
 */
static void note_step(order *self, const wefti_step *step, size_t place)
{
    const wefti_buffer buffer = self->send ? step->src : step->dst;
    size_t first, last;
    if (buffer != (self->send ? WEFTI_BUFFER_SEND : WEFTI_BUFFER_RECV) ||
        step->elems == 0) {
        return;
    }
    const bool own = step->kind == WEFTI_STEP_COPY &&
                     step->src == WEFTI_BUFFER_SEND &&
                     step->dst == WEFTI_BUFFER_RECV;
    const size_t key = own == self->send ? LATE + place : place;
    wefti_step_get_chunks(self->op, step, self->send, &first, &last);
    for (size_t chunk = first; chunk <= last; chunk++) {
        entry *at = &self->entries[chunk];
        if (at->key == NONE || (self->send ? key < at->key : key > at->key)) {
            at->key = key;
        }
    }
}

static size_t count_steps(const wefti_op *op, int t)
{
    size_t total = 0;
    wefti_step_place at = wefti_step_list_begin(op, t);
    while (wefti_step_list_settle(op, t, &at)) {
        total += at.count;
        at.next = at.count;
    }
    return total;
}

/* The list whose step is next; LISTS: all are at their end. Equal parts are
 * equal as doubles too. */
static int next_list(const cursor lists[WEFTI_STEP_LISTS])
{
    int next = WEFTI_STEP_LISTS;
    double least = 0;
    for (int t = 0; t < WEFTI_STEP_LISTS; t++) {
        const cursor *list = &lists[t];
        if (list->passed == list->total) {
            continue;
        }
        const double part = (double)(list->passed + 1) / (double)list->total;
        if (next == WEFTI_STEP_LISTS || part < least) {
            next = t;
            least = part;
        }
    }
    return next;
}

static void walk(order *self)
{
    cursor lists[WEFTI_STEP_LISTS];
    for (int t = 0; t < WEFTI_STEP_LISTS; t++) {
        lists[t] = (cursor){.at = wefti_step_list_begin(self->op, t),
                            .total = count_steps(self->op, t)};
    }
    int t;
    for (size_t place = 0; (t = next_list(lists)) < WEFTI_STEP_LISTS; place++) {
        wefti_step step;
        (void)wefti_step_list_settle(self->op, t, &lists[t].at);
        wefti_step_list_get_step(self->op, t, &lists[t].at, &step);
        note_step(self, &step, place);
        lists[t].at.next++;
        lists[t].passed++;
    }
}

static int compare(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key)
                            : (x->chunk > y->chunk) - (x->chunk < y->chunk);
}

/* Messages and what has no steps go through their chunks from end to end. */
static void sort(order *self)
{
    const wefti_op *op = self->op;
    const bool down = op->desc.chunk_order == WEFT_CHUNK_ORDER_DESCENDING;
    for (size_t i = 0; i < self->count; i++) {
        const size_t key = down ? self->count - 1 - i : i;
        self->entries[i] =
            (entry){wefti_choice_has_steps(&op->choice) ? NONE : key, i};
    }
    if (wefti_choice_has_steps(&op->choice)) {
        walk(self);
    }
    qsort(self->entries, self->count, sizeof(*self->entries), compare);
}

/* What the operation would be in an op slot, without its gates. */
static wefti_op *make_op(const wefti_prepared *prepared, const weft_comm *comm)
{
    wefti_op *op = calloc(1, sizeof(*op));
    size_t *counts = calloc(4 * (size_t)comm->nranks, sizeof(*counts));
    if (!op || !counts) {
        free(op);
        free(counts);
        return NULL;
    }
    op->counts = counts;
    op->desc = prepared->desc;
    op->role = prepared->role;
    if (!wefti_op_is_p2p(&prepared->desc)) {
        op->choice = prepared->choice;
    }
    wefti_op_measure(comm, op);
    wefti_op_take_choice(comm, op);
    return op;
}

static weft_status fill(order *self, size_t *chunks_out, size_t room)
{
    if (room < self->count) {
        return room == 0 ? WEFT_OK
                         : wefti_error(WEFT_ERR_INVALID,
                                       "room %zu: allowed is 0, or at least "
                                       "the operation's %zu chunks",
                                       room, self->count);
    }
    self->entries = calloc(self->count + 1, sizeof(*self->entries));
    if (!self->entries) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu chunks",
                           self->count);
    }
    sort(self);
    WEFTI_ASSERT(chunks_out || self->count == 0);
    for (size_t i = 0; i < self->count; i++) {
        chunks_out[i] = self->entries[i].chunk;
    }
    free(self->entries);
    return WEFT_OK;
}

static weft_status find(const weft_op *desc, const weft_comm *comm, bool send,
                        size_t *chunks_out, size_t room, size_t *count_out)
{
    wefti_prepared prepared;
    if (!count_out || (!chunks_out && room > 0)) {
        return wefti_error(WEFT_ERR_INVALID, "%s is NULL: allowed is %s",
                           count_out ? "chunks_out" : "count_out",
                           count_out ? "room for the chunks, or room 0"
                                     : "a place for their number");
    }
    weft_status status = wefti_post_prepare(desc, 1, comm, &prepared);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_op *op = make_op(&prepared, comm);
    if (!op) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d ranks",
                           comm->nranks);
    }
    order self = {.op = op, .send = send};
    self.count = !send            ? wefti_op_recv_chunks(op)
                 : op->role.sends ? wefti_op_send_chunks(op)
                                  : 0;
    *count_out = self.count;
    status = fill(&self, chunks_out, room);
    free(op->counts);
    free(op);
    return status;
}

weft_status weft_op_ready_order(const weft_op *op, weft_comm *comm,
                                size_t *chunks_out, size_t room,
                                size_t *count_out)
{
    return find(op, comm, true, chunks_out, room, count_out);
}

weft_status weft_op_arrived_order(const weft_op *op, weft_comm *comm,
                                  size_t *chunks_out, size_t room,
                                  size_t *count_out)
{
    return find(op, comm, false, chunks_out, room, count_out);
}
