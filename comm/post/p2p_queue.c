/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/p2p_queue.c - queues of point-to-point operations, up to three per
 * ordered pair, which hold each other up in nothing.
 *
 * Only the oldest of a queue moves, once its stream has come to it. One chunk
 * from host memory that has room, or is there, when it is the oldest passes at
 * once, without an operation; in an empty queue before it is queued. Any other
 * is the one-list pattern below: chunks of a fixed size through the pair's
 * staging, at least one message, so that an empty message carries its signature
 * too.
 */
#include "comm/post/p2p_queue.h"

#include "base/error.h"
#include "base/relax.h"
#include "comm/core/wake.h"
#include "comm/engine/copies.h"
#include "comm/engine/engine.h"
#include "comm/engine/op.h"
#include "comm/engine/ticket.h"
#include "comm/steps/area.h"
#include "comm/steps/op_life.h"
#include "comm/steps/step_list.h"
#include "comm/steps/unstaged.h"
#include "kernels/wire/reduce.h"

#include <stdlib.h>

enum {
    MESSAGES_PER_PUSH = 64, /* so that no pair starves the others */
    LOOKS_AT_ONCE = 100,    /* some microseconds */
    LOOKED_BYTES = 262144,  /* that may pass meanwhile */
    LONG_PIECES = 2,        /* of a message, at least */
    GATED_PARTS = 16
};

static bool supports(const wefti_problem *problem)
{
    return problem->collective == WEFT_COLLECTIVE_SEND ||
           problem->collective == WEFT_COLLECTIVE_RECV;
}

static size_t step_count(const wefti_problem *problem, int list)
{
    if (list > 0) {
        return 0;
    }
    size_t chunk = problem->chunk_elems;
    return problem->count ? (problem->count - 1) / chunk + 1 : 1;
}

static void step_at(const wefti_problem *problem, int list, size_t index,
                    wefti_step *step_out)
{
    (void)list;
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
    return channel == 0 ? WEFTI_P2P_SLOTS : 0;
}

static const wefti_pattern message_pattern = {
    .name = "message",
    .supports = supports,
    .step_count = step_count,
    .step_at = step_at,
    .slots = slots,
};

static weft_status allocate(weft_comm *comm, wefti_p2p_queues *own)
{
    const size_t queues = 2 * (size_t)comm->nranks;
    own->ops = calloc(queues, sizeof(*own->ops));
    own->list = calloc(queues, sizeof(*own->list));
    own->records =
        calloc(queues * WEFTI_P2P_REMOTE_SLOTS, sizeof(*own->records));
    own->arrived =
        calloc(queues * WEFTI_GATE_CHUNKS_MAX, sizeof(*own->arrived));
    if (!own->ops || !own->list || !own->records || !own->arrived) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for point-to-point operations");
    }
    comm->heap_bytes +=
        queues * (sizeof(*own->ops) + sizeof(*own->list) +
                  WEFTI_P2P_REMOTE_SLOTS * sizeof(*own->records) +
                  WEFTI_GATE_CHUNKS_MAX * sizeof(*own->arrived));
    return WEFT_OK;
}

static void release_memory(wefti_p2p_queues *own)
{
    free(own->ops);
    free(own->list);
    free(own->records);
    free(own->arrived);
    own->ops = NULL;
    own->list = NULL;
    own->records = NULL;
    own->arrived = NULL;
}

static void make_lists(weft_comm *comm, int queue)
{
    const wefti_gate_watcher watcher = {.woken = wefti_engine_signalled,
                                        .context = comm->engine};
    wefti_p2p_queues *own = &comm->queues[queue];
    for (size_t i = 0; i < 2 * (size_t)comm->nranks; i++) {
        wefti_op *op = &own->ops[i];
        op->op_slot = WEFTI_OP_SLOT_P2P + queue;
        op->slot_records[0] = own->records + i * WEFTI_P2P_REMOTE_SLOTS;
        op->gate_arrived = own->arrived + i * WEFTI_GATE_CHUNKS_MAX;
        op->watcher = op->writable_watcher = watcher;
        own->list[i].op = op;
    }
}

weft_status wefti_p2p_staging_open(weft_comm *comm, int peer, int op_slot,
                                   int channel)
{
    const int area = wefti_p2p_area(op_slot, channel);
    weft_status status = WEFT_OK;
    if (!wefti_fabric_is_remote(&comm->fabric, peer) ||
        wefti_fabric_get_outgoing(&comm->fabric, peer, area)) {
        return WEFT_OK;
    }
    pthread_mutex_lock(&comm->queues_lock);
    if (!wefti_fabric_get_outgoing(&comm->fabric, peer, area)) {
        wefti_mapping *opened;
        status = wefti_fabric_open_outgoing(&comm->fabric, peer, area, &opened);
        if (status == WEFT_OK) {
            wefti_copies_pin(comm, opened);
        }
    }
    pthread_mutex_unlock(&comm->queues_lock);
    return status;
}

/* Alone with the queue. */
static weft_status make_queue(weft_comm *comm, int queue)
{
    wefti_p2p_queues *own = &comm->queues[queue];
    weft_status status = allocate(comm, own);
    if (status != WEFT_OK) {
        release_memory(own);
        return status;
    }
    make_lists(comm, queue);
    atomic_store(&own->made, true);
    return WEFT_OK;
}

weft_status wefti_p2p_queues_init(weft_comm *comm)
{
    pthread_mutex_init(&comm->queues_lock, NULL);
    return make_queue(comm, 0);
}

weft_status wefti_p2p_queues_open(weft_comm *comm, int queue)
{
    if (atomic_load_explicit(&comm->queues[queue].made, memory_order_acquire)) {
        return WEFT_OK;
    }
    pthread_mutex_lock(&comm->queues_lock);
    weft_status status = atomic_load(&comm->queues[queue].made)
                             ? WEFT_OK
                             : make_queue(comm, queue);
    pthread_mutex_unlock(&comm->queues_lock);
    return status;
}

void wefti_p2p_queues_fini(weft_comm *comm)
{
    for (int queue = 0; queue < WEFT_P2P_QUEUES; queue++) {
        release_memory(&comm->queues[queue]);
    }
}

static wefti_p2p_queue *queue_of(weft_comm *comm,
                                 const wefti_p2p_message *message)
{
    const weft_op *desc = &message->desc;
    int first = desc->collective == WEFT_COLLECTIVE_SEND ? 0 : comm->nranks;
    return &comm->queues[message->queue].list[first + desc->root];
}

/* What goes out goes first: peers may be waiting for it. */
static void list_busy(weft_comm *comm, wefti_p2p_queue *queue,
                      const weft_op *desc)
{
    wefti_p2p_queue **link = &comm->busy_queues;
    while (desc->collective == WEFT_COLLECTIVE_RECV && *link) {
        link = &(*link)->next_busy;
    }
    queue->busy = true;
    queue->next_busy = *link;
    *link = queue;
}

static wefti_batch *batch_of(wefti_request *request)
{
    return (wefti_batch *)request;
}

static void refuse(weft_comm *comm, const wefti_request *request)
{
    const wefti_batch *batch = (const wefti_batch *)request;
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->messages[i].desc.arrived) {
            wefti_gate_fail(batch->messages[i].desc.arrived, comm->failed,
                            comm->fault.text);
        }
    }
}

/* Both sides sign as the sender does. */
static wefti_signature sign(const weft_op *desc)
{
    weft_op signed_as = *desc;
    signed_as.collective = WEFT_COLLECTIVE_SEND;
    return wefti_signature_pack(&signed_as, 0);
}

static wefti_signature sign_carried(const wefti_p2p_message *message)
{
    wefti_signature made = sign(&message->desc);
    made.kind |= (uint64_t)message->carried << 24 |
                 (uint64_t)(message->behind & 0xffffff) << 32;
    return made;
}

static size_t bytes_of(const weft_op *desc)
{
    return desc->count * weft_dtype_bytes(desc->dtype);
}

/* Whether it is one chunk between host buffers, unwatched. */
static bool is_plain(const weft_comm *comm, const wefti_p2p_message *message)
{
    const weft_op *desc = &message->desc;
    return bytes_of(desc) <= WEFTI_P2P_SLOT_BYTES && !wefti_op_is_gated(desc) &&
           !message->carried && !message->signature.cut &&
           !comm->observer.moved && !message->places.send &&
           !message->places.recv;
}

/* Whether a message of so many bytes to peer lies in its own line. */
static bool fits_line(const weft_comm *comm, int peer, size_t bytes)
{
    return bytes <= WEFTI_LINE_BYTES && comm->fabric.ns_per_byte <= 0 &&
           !wefti_fabric_is_remote(&comm->fabric, peer);
}

static void *stage_at(weft_comm *comm, wefti_fabric_path path, uint64_t slots)
{
    const uint64_t posted = wefti_fabric_posted(&comm->fabric, path);
    return wefti_fabric_stage(&comm->fabric, path, -1,
                              (size_t)(posted % slots));
}

static bool send_now(weft_comm *comm, wefti_fabric_path path,
                     const wefti_p2p_message *it)
{
    const weft_op *desc = &it->desc;
    const uint64_t slots = wefti_fabric_p2p_slots(&comm->fabric, path.peer);
    wefti_outgoing message = {.data = desc->send,
                              .bytes = bytes_of(desc),
                              .signature = it->signature,
                              .slots = (int)slots,
                              .urgent = wefti_class_is_urgent(desc->class_id)};
    if (fits_line(comm, path.peer, message.bytes)) {
        message.place = WEFTI_PLACE_LINE;
        if (!wefti_fabric_has_line(&comm->fabric, path)) {
            return false;
        }
    } else {
        if (!wefti_fabric_has_room(&comm->fabric, path)) {
            return false;
        }
        void *staged = wefti_area_take_for_message(comm, path, message.bytes);
        staged = staged ? staged : stage_at(comm, path, slots);
        wefti_stager_copy(&comm->engine->stager, staged, desc->send,
                          message.bytes);
        message.data = staged;
    }
    wefti_fabric_post(&comm->fabric, path, &message);
    return true;
}

static bool recv_now(weft_comm *comm, wefti_fabric_path path,
                     const wefti_p2p_message *it)
{
    wefti_incoming message;
    if (!wefti_fabric_peek(&comm->fabric, path, &message,
                           &comm->engine->due_ns) ||
        !wefti_signature_equal(message.signature, it->signature)) {
        return false;
    }
    wefti_copy(it->desc.recv, message.data, message.bytes);
    wefti_fabric_release(&comm->fabric, path);
    return true;
}

static void note(weft_comm *comm, uint64_t number, const weft_op *desc)
{
    wefti_comm_note(comm, number,
                    wefti_board_kind((int)desc->collective, desc->root));
}

/*
 * The common case: a message that is, or would be, the queue's first is plain,
 * and there is room for it, or it is there. Whatever is not so, a mismatch too,
 * is its operation's work.
 */
static bool pass_now(weft_comm *comm, wefti_p2p_queue *queue,
                     const wefti_p2p_message *message)
{
    const weft_op *desc = &message->desc;
    const wefti_fabric_path path = {desc->root, queue->op->op_slot, 0};
    const bool send = desc->collective == WEFT_COLLECTIVE_SEND;
    if (!is_plain(comm, message) || !(send ? send_now(comm, path, message)
                                           : recv_now(comm, path, message))) {
        return false;
    }
    comm->budget_bytes -= (int64_t)bytes_of(desc);
    note(comm, ++queue->number, desc);
    return true;
}

static void append(weft_comm *comm, wefti_p2p_queue *queue,
                   wefti_p2p_message *message)
{
    message->next = NULL;
    if (queue->first) {
        queue->last->next = message;
    } else {
        queue->first = message;
    }
    queue->last = message;
    if (!queue->busy) {
        list_busy(comm, queue, &message->desc);
    }
    comm->messages_pending++;
}

/* Appends the messages of a batch to their queues, but for those that pass at
 * once. */
static void submit(weft_comm *comm, wefti_request *request)
{
    wefti_batch *batch = batch_of(request);
    batch->left = 0;
    batch->status = WEFT_OK;
    for (size_t i = 0; i < batch->count; i++) {
        wefti_p2p_message *message = &batch->messages[i];
        wefti_p2p_queue *queue = queue_of(comm, message);
        message->batch = batch;
        message->signature =
            message->carried ? sign_carried(message) : sign(&message->desc);
        if (message->carried) {
            request->ticket->unmet++;
        }
        if (queue->first || request->ticket ||
            !pass_now(comm, queue, message)) {
            append(comm, queue, message);
            batch->left++;
        }
    }
    if (batch->left == 0) {
        wefti_request_end(comm, request, WEFT_OK);
    }
}

/*
 * How long its pieces are, as both ends know. To another domain, whose word
 * costs more, those of a message of several are longer; but what a gate holds
 * back in GATED_PARTS still leaves part by part.
 */
static size_t piece_bytes(const weft_comm *comm, const weft_op *desc)
{
    const size_t bytes = bytes_of(desc), least = WEFTI_P2P_REMOTE_BYTES;
    const bool cut = desc->gate_elems && desc->gate_elems < desc->count;
    const size_t part =
        cut ? desc->gate_elems * weft_dtype_bytes(desc->dtype) : bytes;
    const bool longer = wefti_fabric_is_remote(&comm->fabric, desc->root) &&
                        bytes >= LONG_PIECES * least &&
                        (part >= least || bytes >= GATED_PARTS * least);
    return longer ? WEFTI_P2P_REMOTE_BYTES : WEFTI_P2P_SLOT_BYTES;
}

/* Makes the queue's operation carry out its first message. */
static void load(weft_comm *comm, wefti_p2p_queue *queue)
{
    const wefti_p2p_message *message = queue->first;
    const weft_op *desc = &message->desc;
    wefti_op *op = queue->op;
    op->number = ++queue->number;
    note(comm, op->number, desc);
    wefti_role role =
        wefti_role_of(desc->collective, desc->dtype, desc->root, comm->rank);
    wefti_op_init(comm, op, desc, &role, message->epoch);
    op->places = message->places;
    op->state = WEFTI_OP_POSTED;
    op->signature = message->signature;
    if (message->carried) {
        op->choice = (wefti_choice){.chunk_elems = 1,
                                    .digest = message->carried,
                                    .route = comm->tuning.route};
        op->ticket = message->batch->request.ticket;
        op->brief = message->next && message->next->carried &&
                    message->next->batch == message->batch && !desc->arrived;
        op->lists[0].wait = WEFTI_WAIT_GATE;
        return;
    }
    op->choice = (wefti_choice){.pattern = &message_pattern};
    op->problem.chunk_elems = piece_bytes(comm, desc) / role.elem_bytes;
    op->slots[0] = (int)wefti_fabric_p2p_slots(&comm->fabric, desc->root);
    op->unstaged = wefti_unstaged_choose(comm, op);
    wefti_step_lists_start(op);
}

/* One message less; the last one ends the batch. */
static void leave_batch(weft_comm *comm, wefti_batch *batch, weft_status status)
{
    comm->messages_pending--;
    if (status != WEFT_OK) {
        batch->status = status;
    }
    if (--batch->left == 0) {
        wefti_request_end(comm, &batch->request, batch->status);
    }
}

/* The first message of the batch at the head of its queue; there is one: only
 * such a message asks. */
static wefti_title describe(const weft_comm *comm, const wefti_request *request)
{
    const wefti_p2p_queue *queue = comm->busy_queues;
    while (&queue->first->batch->request != request) {
        queue = queue->next_busy;
    }
    return (wefti_title){(uint64_t)queue->first->desc.collective,
                         queue->number + 1};
}

/* loads: what does not pass at once is its operation's work now. */
static bool advance_queue(weft_comm *comm, wefti_p2p_queue *queue, bool loads)
{
    bool moved = false;
    for (int i = 0; queue->first && i < MESSAGES_PER_PUSH &&
                    (i == 0 || comm->budget_bytes > 0);
         i++) {
        wefti_p2p_message *message = queue->first;
        wefti_op *op = queue->op;
        if (op->state == WEFTI_OP_FREE) {
            queue->ahead =
                !wefti_request_reached(comm, &message->batch->request);
            if (queue->ahead) {
                break;
            }
            if (pass_now(comm, queue, message)) {
                moved = true;
                queue->first = message->next;
                queue->ahead = false; /* until it is looked at */
                leave_batch(comm, message->batch, WEFT_OK);
                continue;
            }
            if (!loads) {
                break;
            }
            load(comm, queue);
        }
        moved |= wefti_op_advance(comm, op);
        if (op->state != WEFTI_OP_FREE) {
            break;
        }
        queue->first = message->next;
        queue->ahead = false;
        leave_batch(comm, message->batch, op->status);
    }
    return moved;
}

static bool is_urgent(const wefti_p2p_queue *queue)
{
    return wefti_class_is_urgent(queue->first->desc.class_id);
}

/* One push for all pairs. */
static bool advance_all(weft_comm *comm, bool urgent, bool loads)
{
    bool moved = false;
    wefti_p2p_queue **link = &comm->busy_queues;
    while (*link) {
        wefti_p2p_queue *queue = *link;
        if (!urgent || is_urgent(queue)) {
            moved |= advance_queue(comm, queue, loads);
        }
        if (queue->first) {
            link = &queue->next_busy;
        } else {
            queue->busy = false;
            *link = queue->next_busy;
        }
    }
    return moved;
}

static bool advance(weft_comm *comm, bool urgent)
{
    return advance_all(comm, urgent, true);
}

/* Whether all that is left of it may pass without another's help. */
static bool passes_soon(const weft_comm *comm, const wefti_batch *batch)
{
    bool soon = wefti_engine_spins(comm->engine) &&
                comm->fabric.ns_per_byte <= 0 && !comm->fabric.net;
    for (size_t i = 0; soon && i < batch->count; i++) {
        soon = is_plain(comm, &batch->messages[i]);
    }
    return soon;
}

/*
 * Looks for what is to come a few times before the lock is given back, and an
 * operation is made of it: the peer has mostly just been called too. Bounded,
 * because others may want the lock.
 */
static void push(weft_comm *comm, wefti_request *request)
{
    const wefti_batch *batch = batch_of(request);
    const bool spin = batch->left > 0 && passes_soon(comm, batch);
    const int64_t budget_bytes = comm->budget_bytes;
    comm->budget_bytes = 0; /* of each queue one message a look, and not many */
    for (int look = 0; spin && look < LOOKS_AT_ONCE && batch->left > 0 &&
                       comm->budget_bytes > -LOOKED_BYTES;
         look++) {
        if (!advance_all(comm, false, false)) {
            wefti_relax();
        }
    }
    comm->budget_bytes = budget_bytes;
    if (batch->left > 0) {
        advance(comm, false);
    }
}

static void fail(weft_comm *comm)
{
    for (wefti_p2p_queue *queue = comm->busy_queues; queue;
         queue = queue->next_busy) {
        if (wefti_op_pending(queue->op)) {
            wefti_op_finish(comm, queue->op, comm->failed);
        }
        while (queue->first) {
            wefti_p2p_message *message = queue->first;
            queue->first = message->next;
            if (message->desc.arrived) {
                wefti_gate_fail(message->desc.arrived, comm->failed,
                                comm->fault.text);
            }
            leave_batch(comm, message->batch, comm->failed);
        }
    }
}

static bool are_done(const weft_comm *comm)
{
    return comm->messages_pending == 0;
}

const wefti_request_kind wefti_batch_kind = {.submit = submit,
                                             .push = push,
                                             .refuse = refuse,
                                             .describe = describe,
                                             .advance = advance,
                                             .fail = fail,
                                             .are_done = are_done};
