/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/mem/mem_op.c - put, signal and wait.
 *
 *              no stream                       stream
 *   local put  the caller copies, or has its   the stream copies; a device's,
 *              device copy                     from host memory: the engine
 *   signal     the caller raises the cell      an operation of the engine
 *   wait       looks, then the engine          the engine
 *   remote     the engine                      the engine
 *
 * An operation of the engine starts when its stream has come to it, in the
 * order of posting. Which store pairs with which load: comm/mem/mem.h.
 */
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/control/fault.h"
#include "comm/core/live.h"
#include "comm/mem/mem.h"
#include "comm/post/op_check.h"
#include "comm/post/p2p_queue.h"
#include "comm/watch/cause.h"
#include "comm/watch/peer_life.h"
#include "comm/watch/waits.h"
#include "kernels/wire/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_NS = 20000000,     /* between looks whether a local peer lives */
    LOCAL_BYTES = 256 << 10 /* that the engine copies in one push */
};

static weft_status check_place(const weft_mem *mem, int peer, bool any,
                               const weft_stream *stream)
{
    if (!mem) {
        return wefti_error(WEFT_ERR_INVALID,
                           "mem is NULL: allowed is a weft_mem");
    }
    if (!wefti_comm_is_live(mem->comm)) {
        return wefti_comm_refuse(mem->comm, "the memory's communicator");
    }
    int least = any ? WEFT_MEM_ANY_PEER : 0;
    if (peer < least || peer >= mem->comm->nranks) {
        return wefti_error(WEFT_ERR_INVALID, "peer %d: allowed is %d..%d", peer,
                           least, mem->comm->nranks - 1);
    }
    return stream ? wefti_check_stream(stream, mem->comm) : WEFT_OK;
}

static weft_status check_slot(int slot)
{
    return slot >= 0 && slot < WEFT_MEM_SLOTS
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID, "slot %d: allowed is 0..%d",
                             slot, WEFT_MEM_SLOTS - 1);
}

static weft_status check_put(const weft_mem *mem, size_t dst_offset,
                             const void *src, size_t count, weft_dtype dtype,
                             int peer, size_t *bytes_out)
{
    size_t elem_bytes = weft_dtype_bytes(dtype);
    if (elem_bytes == 0) {
        return wefti_error(WEFT_ERR_INVALID, "dtype %d: allowed is 0..%d",
                           (int)dtype, WEFT_DTYPE_COUNT - 1);
    }
    if (__builtin_mul_overflow(count, elem_bytes, bytes_out) ||
        dst_offset > mem->bytes || *bytes_out > mem->bytes - dst_offset) {
        return wefti_error(WEFT_ERR_INVALID,
                           "dst_offset %zu and %zu %s: allowed is within the "
                           "%zu bytes of rank %d's memory",
                           dst_offset, count, weft_dtype_text(dtype),
                           mem->bytes, peer);
    }
    if (*bytes_out && !src) {
        return wefti_error(WEFT_ERR_INVALID,
                           "src is NULL: allowed is a buffer of %zu bytes",
                           *bytes_out);
    }
    if (*bytes_out && wefti_mem_is_local(mem, peer)) {
        uintptr_t from = (uintptr_t)src;
        uintptr_t to = (uintptr_t)wefti_mem_get_data(mem, peer) + dst_offset;
        if (from < to + *bytes_out && to < from + *bytes_out) {
            return wefti_error(WEFT_ERR_INVALID,
                               "src %p overlaps dst_offset %zu of rank %d's "
                               "memory: allowed is apart",
                               src, dst_offset, peer);
        }
    }
    return WEFT_OK;
}

/* Before what goes to a rank of another domain. */
static weft_status open_staging(const weft_mem *mem, int peer)
{
    return wefti_p2p_staging_open(mem->comm, peer, WEFTI_OP_SLOT_P2P,
                                  WEFTI_MEM_CHANNEL);
}

static weft_status get_fault(weft_comm *comm)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&comm->engine->lock);
    if (wefti_requests_stop(comm)) {
        status = wefti_fault_status(comm);
    }
    pthread_mutex_unlock(&comm->engine->lock);
    return status;
}

/*
 * The memory of a dead peer takes what is put there as that of a living one
 * does. A peer that has destroyed its communicator may well end: what it is
 * sent after that is lost, as mem.h says.
 */
static weft_status check_life(weft_mem *mem, int peer, const char *what)
{
    weft_comm *comm = mem->comm;
    _Atomic int64_t *looked_ns = &comm->peers[peer].looked_ns;
    int64_t now_ns = wefti_clock_coarse_ns();
    if (now_ns - atomic_load_explicit(looked_ns, memory_order_relaxed) <
        LOOK_NS) {
        return WEFT_OK;
    }
    atomic_store_explicit(looked_ns, now_ns, memory_order_relaxed);
    if (!comm->engine->members || !wefti_peer_has_died(comm, peer) ||
        wefti_peer_has_left(comm, peer)) {
        return WEFT_OK;
    }
    char lost[400];
    wefti_peer_lost_text(comm, peer, "has died", lost, sizeof(lost));
    wefti_fault_publish(comm, WEFT_ERR_PEER, peer, 0,
                        "%s to rank %d on memory #%llu of \"%s\": %s", what,
                        peer, (unsigned long long)mem->id, comm->name, lost);
    return get_fault(comm);
}

uint64_t weft_mem_get_signal(const weft_mem *mem, int slot, int peer)
{
    if (!mem || slot < 0 || slot >= WEFT_MEM_SLOTS ||
        peer < WEFT_MEM_ANY_PEER || peer >= mem->comm->nranks) {
        return 0;
    }
    int first = peer == WEFT_MEM_ANY_PEER ? 0 : peer;
    int end = peer == WEFT_MEM_ANY_PEER ? mem->comm->nranks : peer + 1;
    uint64_t sum = 0;
    for (int source = first; source < end; source++) {
        sum +=
            atomic_load(wefti_mem_get_cell(mem, mem->comm->rank, source, slot));
    }
    return sum;
}

static bool has_come(const weft_mem *mem, int slot, int peer, uint64_t value)
{
    return (int64_t)(weft_mem_get_signal(mem, slot, peer) - value) >= 0;
}

static void raise_local(weft_mem *mem, int slot, int peer, uint64_t add)
{
    weft_comm *comm = mem->comm;
    atomic_fetch_add(wefti_mem_get_cell(mem, peer, comm->rank, slot), add);
    wefti_doorbell_ring(comm->bells[peer]);
}

/* "wait for rank 2's signal 5 on memory #1 of "world": 3 of 7 have come" */
static void describe_wait(const void *context, char *text_out,
                          size_t text_bytes)
{
    const wefti_mem_op *op = context;
    const weft_mem *mem = op->mem;
    char who[24] = "any rank";
    if (op->peer != WEFT_MEM_ANY_PEER) {
        snprintf(who, sizeof(who), "rank %d", op->peer);
    }
    snprintf(text_out, text_bytes,
             "wait for %s to raise slot %d of memory #%llu of \"%s\" to %llu: "
             "it is at %llu",
             who, op->slot, (unsigned long long)mem->id, mem->comm->name,
             (unsigned long long)op->value,
             (unsigned long long)weft_mem_get_signal(mem, op->slot, op->peer));
}

static void describe_remote(const void *context, char *text_out,
                            size_t text_bytes)
{
    const wefti_mem_op *op = context;
    snprintf(text_out, text_bytes,
             "%s to rank %d on memory #%llu of \"%s\": it takes nothing over",
             op->act == WEFTI_MEM_PUT ? "put" : "signal", op->peer,
             (unsigned long long)op->mem->id, op->mem->comm->name);
}

/* Hands over what there is room for; sets done. Whether anything moved. */
static bool push_put(wefti_mem_op *op)
{
    bool moved = true;
    if (wefti_mem_has_left(op->mem, op->peer) && op->mem->comm->fetcher != op) {
        op->bytes = 0;
    } else if (!wefti_mem_is_local(op->mem, op->peer)) {
        moved = wefti_mem_remote_put(op);
    } else if (wefti_mem_is_on_device(op->mem, op->peer)) {
        moved = wefti_mem_lent_put(op);
    } else {
        const size_t part =
            op->bytes < LOCAL_BYTES ? op->bytes : (size_t)LOCAL_BYTES;
        wefti_stager_copy(&op->mem->comm->engine->puts,
                          wefti_mem_get_data(op->mem, op->peer) +
                              op->dst_offset,
                          op->src, part);
        op->mem->comm->budget_bytes -= (int64_t)part;
        op->src += part;
        op->dst_offset += part;
        op->bytes -= part;
    }
    op->over = op->bytes == 0;
    return moved || op->over;
}

static bool push_signal(wefti_mem_op *op)
{
    if (wefti_mem_has_left(op->mem, op->peer)) {
        op->over = true;
    } else if (!wefti_mem_is_local(op->mem, op->peer)) {
        op->over =
            wefti_mem_remote_signal(op->mem, op->peer, op->slot, op->value);
    } else {
        raise_local(op->mem, op->slot, op->peer, op->value);
        op->over = true;
    }
    return op->over;
}

/* Nothing has come: the others may wonder why this rank does not. */
static void look_at_wait(weft_comm *comm, wefti_mem_op *op)
{
    int64_t before_ns = op->stall.checked_ns;
    wefti_stall_look(comm, &op->stall, op->peer, describe_wait, op);
    int64_t since_ns = op->stall.since_ns, now_ns = op->stall.checked_ns;
    if (now_ns == before_ns) {
        return;
    }
    const int64_t fresh_ns = wefti_waits_fresh_ns(comm->timeout_ns);
    wefti_wait_weight weight = WEFTI_WEIGHT_OWN;
    wefti_wait_record found = {.kind = WEFTI_WAITS_SIGNAL,
                               .peer = -1,
                               .number = (uint64_t)op->slot,
                               .count = op->value};
    if (op->peer != WEFT_MEM_ANY_PEER) {
        found.peer = comm->peers[op->peer].world_rank;
        const wefti_cause cause = wefti_cause_of_peer(comm, op->peer, fresh_ns);
        weight = cause.circle || cause.through ? WEFTI_WEIGHT_CIRCLE
                                               : WEFTI_WEIGHT_CAUSE;
    }
    wefti_waits_note(comm, op, &found, weight, since_ns, now_ns,
                     now_ns - since_ns >
                         wefti_waits_patience(comm, comm->timeout_ns) / 2);
}

static wefti_title describe(const weft_comm *comm, const wefti_request *request)
{
    static const wefti_purpose purposes[] = {
        [WEFTI_MEM_PUT] = WEFTI_PURPOSE_PUT,
        [WEFTI_MEM_SIGNAL] = WEFTI_PURPOSE_SIGNAL,
        [WEFTI_MEM_WAIT] = WEFTI_PURPOSE_WAIT};
    const wefti_mem_op *op = (const wefti_mem_op *)request;
    (void)comm;
    return (wefti_title){wefti_purpose_bits(purposes[op->act]), op->mem->id};
}

/* One push; whether anything moved. */
static bool push(weft_comm *comm, wefti_mem_op *op)
{
    bool moved = false;
    if (!wefti_request_reached(comm, &op->request)) {
        return false;
    }
    switch (op->act) {
    case WEFTI_MEM_PUT:
        moved = push_put(op);
        break;
    case WEFTI_MEM_SIGNAL:
        moved = push_signal(op);
        break;
    case WEFTI_MEM_WAIT:
        moved = op->over = has_come(op->mem, op->slot, op->peer, op->value);
        break;
    }
    if (moved) {
        op->stall = (wefti_stall){0};
    } else if (op->act == WEFTI_MEM_WAIT) {
        look_at_wait(comm, op);
    } else {
        wefti_stall_look(comm, &op->stall, op->peer, describe_remote, op);
    }
    return moved;
}

/* Takes a finished operation out and lets its poster, or stream, go on. */
static void end(weft_comm *comm, wefti_mem_op **link, weft_status status)
{
    wefti_mem_op *op = *link;
    *link = op->next;
    wefti_request_end(comm, &op->request, status);
}

/* In the order of posting, so none is more urgent than another. */
static bool advance(weft_comm *comm, bool urgent)
{
    if (urgent) {
        return false;
    }
    bool moved = comm->mems_engaged && wefti_mem_remote_receive(comm);
    wefti_mem_op **link = &comm->mem_ops;
    while (*link) {
        moved |= push(comm, *link);
        if ((*link)->over) {
            end(comm, link, WEFT_OK);
        } else {
            link = &(*link)->next;
        }
    }
    comm->mem_ops_end = link;
    return moved;
}

static void fail(weft_comm *comm)
{
    while (comm->mem_ops) {
        end(comm, &comm->mem_ops, comm->failed);
    }
    comm->mem_ops_end = &comm->mem_ops;
}

static void submit(weft_comm *comm, wefti_request *request)
{
    wefti_mem_op *op = (wefti_mem_op *)request;
    op->next = NULL;
    if (!comm->mem_ops) {
        comm->mem_ops_end = &comm->mem_ops;
    }
    *comm->mem_ops_end = op;
    comm->mem_ops_end = &op->next;
}

static void push_all(weft_comm *comm, wefti_request *request)
{
    (void)request;
    advance(comm, false);
}

static bool are_done(const weft_comm *comm)
{
    return comm->mem_ops == NULL;
}

const wefti_request_kind wefti_mem_op_kind = {.submit = submit,
                                              .push = push_all,
                                              .describe = describe,
                                              .advance = advance,
                                              .fail = fail,
                                              .are_done = are_done};

/* Another operation may be what the fault tells of: then it also says what
 * this rank waited for. */
static weft_status tell_fault(weft_comm *comm, const wefti_mem_op *op)
{
    weft_status status = wefti_fault_status(comm);
    char what[160];
    describe_wait(op, what, sizeof(what));
    size_t named = strcspn(what, ":"); /* then come counts, which move */
    if (op->act != WEFTI_MEM_WAIT ||
        strncmp(comm->fault.text, what, named) == 0) {
        return status;
    }
    return wefti_error(status, "%s; here: %s", comm->fault.text, what);
}

static weft_status post(wefti_mem_op *op, weft_stream *stream)
{
    weft_comm *comm = op->mem->comm;
    op->request.kind = &wefti_mem_op_kind;
    if (!stream) {
        weft_status status = wefti_request_run(comm, &op->request);
        return status == WEFT_OK || !op->request.done ? status
                                                      : tell_fault(comm, op);
    }
    wefti_mem_op *queued = malloc(sizeof(*queued));
    if (!queued) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for an operation");
    }
    *queued = *op;
    queued->request.block = queued;
    return wefti_request_queue(comm, &queued->request, stream, NULL);
}

/* Bytes to a local peer: by the caller, or by the stream. */
static weft_status copy_local(const wefti_mem_op *op, weft_stream *stream)
{
    weft_comm *comm = op->mem->comm;
    void *dst = wefti_mem_get_data(op->mem, op->peer) + op->dst_offset;
    if (stream) {
        return weft_device_copy(wefti_stream_get_device(stream), dst, op->src,
                                op->bytes, stream);
    }
    if (op->src_on_device || wefti_mem_is_on_device(op->mem, op->peer)) {
        return weft_device_copy(comm->device, dst, op->src, op->bytes, NULL);
    }
    wefti_stager_copy(&comm->engine->puts, dst, op->src, op->bytes);
    return WEFT_OK;
}

weft_status weft_mem_put(weft_mem *mem, size_t dst_offset, const void *src,
                         size_t count, weft_dtype dtype, int peer,
                         weft_stream *stream)
{
    wefti_mem_op op = {.mem = mem,
                       .act = WEFTI_MEM_PUT,
                       .peer = peer,
                       .src = src,
                       .dst_offset = dst_offset};
    weft_status status = check_place(mem, peer, false, stream);
    if (status == WEFT_OK) {
        status = check_put(mem, dst_offset, src, count, dtype, peer, &op.bytes);
    }
    if (status == WEFT_OK && op.bytes > 0) {
        status = wefti_check_place(mem->comm, "src", src, &op.src_on_device);
    }
    if (status == WEFT_OK && wefti_fault_is_published(mem->comm)) {
        status = get_fault(mem->comm);
    }
    if (status == WEFT_OK && op.bytes > 0) {
        status = open_staging(mem, peer);
    }
    if (status != WEFT_OK || op.bytes == 0) {
        return status;
    }
    wefti_comm_note(mem->comm, mem->id,
                    wefti_board_kind(WEFTI_BOARD_PUT, peer));
    if (!wefti_mem_is_local(mem, peer)) {
        return post(&op, stream);
    }
    status = check_life(mem, peer, "put");
    if (status != WEFT_OK || wefti_mem_has_left(mem, peer)) {
        return status; /* else it is lost */
    }
    /* A device's stream may make its poster wait for a copy of host memory. */
    const bool by_engine = stream && mem->comm->copies && !op.src_on_device;
    return by_engine ? post(&op, stream) : copy_local(&op, stream);
}

weft_status weft_mem_signal(weft_mem *mem, int slot, uint64_t add, int peer,
                            weft_stream *stream)
{
    weft_status status = check_place(mem, peer, false, stream);
    if (status == WEFT_OK) {
        status = check_slot(slot);
    }
    if (status == WEFT_OK && (add == 0 || add > INT64_MAX)) {
        status = wefti_error(WEFT_ERR_INVALID, "add %llu: allowed is 1..2^63-1",
                             (unsigned long long)add);
    }
    if (status == WEFT_OK && wefti_fault_is_published(mem->comm)) {
        status = get_fault(mem->comm);
    }
    if (status == WEFT_OK && wefti_mem_is_local(mem, peer)) {
        status = check_life(mem, peer, "signal");
    }
    if (status == WEFT_OK) {
        status = open_staging(mem, peer);
    }
    if (status != WEFT_OK) {
        return status;
    }
    wefti_comm_note(mem->comm, mem->id,
                    wefti_board_kind(WEFTI_BOARD_SIGNAL, peer));
    if (!stream && wefti_mem_is_local(mem, peer)) {
        raise_local(mem, slot, peer, add);
        return WEFT_OK;
    }
    wefti_mem_op op = {.mem = mem,
                       .act = WEFTI_MEM_SIGNAL,
                       .peer = peer,
                       .slot = slot,
                       .value = add};
    return post(&op, stream);
}

weft_status weft_mem_wait(weft_mem *mem, int slot, uint64_t value, int peer,
                          weft_stream *stream)
{
    weft_status status = check_place(mem, peer, true, stream);
    if (status == WEFT_OK) {
        status = check_slot(slot);
    }
    if (status != WEFT_OK) {
        return status;
    }
    wefti_comm_note(mem->comm, mem->id,
                    wefti_board_kind(WEFTI_BOARD_WAIT, peer));
    if (!stream && has_come(mem, slot, peer, value)) {
        return WEFT_OK;
    }
    wefti_mem_op op = {.mem = mem,
                       .act = WEFTI_MEM_WAIT,
                       .peer = peer,
                       .slot = slot,
                       .value = value};
    return post(&op, stream);
}
