/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/step.c - the steps, as resumable state.
 *
 *   START --own ready gate--> [FETCH] --> READY --peers, room--> [STORE] -->
 * done
 *
 * FETCH brings a source from device memory the host cannot read into the
 * track's bounce (SEND: straight into the staged message); STORE takes the
 * result back. Both are stream copies, watched through comm->copied, and do
 * not occur for host memory.
 *
 * What this rank gives to a pre-multiplied sum is multiplied on its way: into
 * the staged message, or into the bounce where it is folded or widened here.
 */
#include "comm/step.h"

#include "base/check.h"
#include "comm/op.h"
#include "kernels/wire/fold.h"

static size_t elem_bytes(const wefti_op *op, wefti_buffer buffer)
{
    bool wide =
        buffer == WEFTI_BUFFER_SCRATCH && !wefti_reduction_is(op->desc.redop);
    return wide ? wefti_wide_bytes(op->desc.dtype)
                : weft_dtype_bytes(op->desc.dtype);
}

static unsigned char *target(const wefti_op *op, const wefti_track *track,
                             wefti_buffer buffer, size_t elem)
{
    unsigned char *begin =
        buffer == WEFTI_BUFFER_SCRATCH ? track->scratch : op->desc.recv;
    return begin + elem * elem_bytes(op, buffer);
}

static const unsigned char *source(const wefti_op *op, const wefti_track *track,
                                   wefti_buffer buffer, size_t elem)
{
    if (buffer != WEFTI_BUFFER_SEND) {
        return target(op, track, buffer, elem);
    }
    return (const unsigned char *)op->desc.send + elem * elem_bytes(op, buffer);
}

static unsigned char *bounce(const wefti_track *track)
{
    return track->scratch + WEFTI_SCRATCH_BYTES / 2;
}

static bool on_device(const weft_comm *comm, const void *pointer)
{
    return wefti_device_owns(comm->device, pointer);
}

/* Queues a copy on the communicator's stream; copy_done tells when it is. */
static void copy_post(weft_comm *comm, wefti_op *op, wefti_track *track,
                      void *dst, const void *src, size_t bytes)
{
    size_t chunk = wefti_op_copy_chunk(comm, op, track);
    track->copy_epoch++;
    weft_status status =
        weft_device_copy(comm->device, dst, src, bytes, comm->copies);
    if (status == WEFT_OK) {
        status = weft_gate_signal(comm->copied, chunk, track->copy_epoch,
                                  comm->copies);
    }
    if (status != WEFT_OK) {
        wefti_op_fail(comm, op, status, "the device refused a copy");
    }
}

static bool copy_done(weft_comm *comm, wefti_op *op, const wefti_track *track)
{
    return wefti_gate_reached(
        comm->copied, wefti_op_copy_chunk(comm, op, track), track->copy_epoch);
}

bool wefti_step_find_shut(const wefti_op *op, const wefti_step *step,
                          size_t *chunk_out)
{
    if (!op->desc.ready || step->src != WEFTI_BUFFER_SEND || step->elems == 0) {
        return false;
    }
    size_t first = step->src_elem / op->gate_elems;
    size_t last = (step->src_elem + step->elems - 1) / op->gate_elems;
    for (size_t chunk = first; chunk <= last; chunk++) {
        if (!wefti_gate_reached(op->desc.ready, op->desc.ready_chunk + chunk,
                                op->epoch)) {
            *chunk_out = chunk;
            return true;
        }
    }
    return false;
}

/* Whether the chunks of the send buffer that the step reads may be read. */
static bool source_ready(const wefti_op *op, const wefti_step *step)
{
    size_t chunk;
    return !wefti_step_find_shut(op, step, &chunk);
}

/* Counts what has been written and announces gate chunks that are complete. */
static void result_arrived(wefti_op *op, const wefti_step *step)
{
    if (!op->desc.arrived || step->dst != WEFTI_BUFFER_RECV ||
        op->gate_elems == SIZE_MAX) {
        return;
    }
    size_t total = wefti_op_recv_elems(op);
    size_t at = step->dst_elem;
    size_t end = at + step->elems;
    while (at < end) {
        size_t chunk = at / op->gate_elems;
        size_t chunk_begin = chunk * op->gate_elems;
        size_t chunk_end = total - chunk_begin < op->gate_elems
                               ? total
                               : chunk_begin + op->gate_elems;
        size_t stop = end < chunk_end ? end : chunk_end;
        op->gate_arrived[chunk] += stop - at;
        if (op->gate_arrived[chunk] == chunk_end - chunk_begin) {
            weft_status status = weft_gate_signal(
                op->desc.arrived, op->desc.arrived_chunk + chunk, op->epoch,
                NULL);
            WEFTI_ASSERT(status == WEFT_OK);
            (void)status;
        }
        at = stop;
    }
}

static wefti_path path_to(const wefti_op *op, const wefti_step *step, int peer)
{
    return (wefti_path){peer, op->ring, step->channel};
}

/* A message of the step's size from peer, its signature checked. */
static bool look_for(weft_comm *comm, wefti_op *op, const wefti_step *step,
                     int peer, wefti_incoming *message)
{
    bool wide = step->dst == WEFTI_BUFFER_SCRATCH;
    size_t bytes = step->elems * elem_bytes(op, wide ? WEFTI_BUFFER_SCRATCH
                                                     : WEFTI_BUFFER_RECV);
    if (!wefti_op_check_peer(comm, op, peer) ||
        !wefti_fabric_peek(&comm->fabric, path_to(op, step, peer), message,
                           &comm->engine->due_ns)) {
        return false;
    }
    if (op->ring == WEFTI_RING_LETTERS &&
        !wefti_signature_equal(message->signature, op->signature)) {
        wefti_op_report_mismatch(comm, op, peer, message->signature);
        return false;
    }
    if (!wefti_op_check_bytes(comm, op, peer, message->bytes, bytes)) {
        return false;
    }
    if (message->ready_ns > op->piece.ready_ns) {
        op->piece.ready_ns = message->ready_ns;
    }
    return true;
}

static void take(weft_comm *comm, wefti_op *op, const wefti_step *step,
                 int peer, size_t bytes)
{
    op->piece.bytes += bytes;
    wefti_fabric_release(&comm->fabric, path_to(op, step, peer));
}

/* Whether peer has read the message that a slot remembers. */
static bool slot_read_by(weft_comm *comm, const wefti_op *op, int channel,
                         const wefti_slot *slot, int peer)
{
    wefti_path path = {peer, op->ring, channel};
    uint64_t sequence = slot->number;
    if (slot->peer == WEFTI_ALL_PEERS) {
        uint64_t later = op->sends[channel] - 1 - slot->number;
        sequence = wefti_fabric_posted(&comm->fabric, path) - later;
    }
    return wefti_fabric_read_by(&comm->fabric, path) >= sequence;
}

/* The first peer that keeps the next slot of the channel busy; -1: it is free.
 */
static int slot_blocker(weft_comm *comm, wefti_op *op, int channel)
{
    uint64_t sends = op->sends[channel];
    if (sends < (uint64_t)op->slots[channel]) {
        return -1;
    }
    const wefti_slot *slot =
        &op->slot_records[channel][sends % (uint64_t)op->slots[channel]];
    if (slot->peer != WEFTI_ALL_PEERS) {
        return slot_read_by(comm, op, channel, slot, slot->peer) ? -1
                                                                 : slot->peer;
    }
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (peer != comm->rank &&
            !slot_read_by(comm, op, channel, slot, peer)) {
            return peer;
        }
    }
    return -1;
}

/* The first addressee whose ring is full; -1: none. */
static int ring_blocker(weft_comm *comm, const wefti_op *op,
                        const wefti_step *step)
{
    int first = step->peer == WEFTI_ALL_PEERS ? 0 : step->peer;
    int end = step->peer == WEFTI_ALL_PEERS ? comm->nranks : step->peer + 1;
    for (int peer = first; peer < end; peer++) {
        bool self = peer == comm->rank && step->peer == WEFTI_ALL_PEERS;
        if (!self &&
            !wefti_fabric_has_room(&comm->fabric, path_to(op, step, peer))) {
            return peer;
        }
    }
    return -1;
}

static void *staging(weft_comm *comm, const wefti_op *op,
                     const wefti_step *step)
{
    size_t slot =
        (size_t)(op->sends[step->channel] % (uint64_t)op->slots[step->channel]);
    size_t offset = slot * op->slot_bytes;
    if (op->ring == WEFTI_RING_LETTERS) {
        offset = (size_t)(wefti_fabric_posted(&comm->fabric,
                                              path_to(op, step, step->peer)) %
                          WEFTI_LETTER_SLOTS);
    } else if (step->channel > 0) {
        offset += WEFTI_WINDOW_BYTES / 2;
    }
    return wefti_fabric_stage(&comm->fabric, path_to(op, step, step->peer),
                              op->window, offset);
}

static void post_staged(weft_comm *comm, wefti_op *op, const wefti_step *step,
                        const void *data, size_t bytes)
{
    wefti_outgoing outgoing = {data, bytes, op->piece.posted_ns, op->signature};
    int channel = step->channel;
    wefti_slot *slot = &op->slot_records[channel][op->sends[channel] %
                                                  (uint64_t)op->slots[channel]];
    bool all = step->peer == WEFTI_ALL_PEERS;
    int first = all ? 0 : step->peer;
    int end = all ? comm->nranks : step->peer + 1;
    for (int peer = first; peer < end; peer++) {
        if (all && peer == comm->rank) {
            continue;
        }
        wefti_path path = path_to(op, step, peer);
        wefti_fabric_post(&comm->fabric, path, &outgoing);
        *slot = (wefti_slot){peer, wefti_fabric_posted(&comm->fabric, path)};
        op->piece.bytes += bytes;
    }
    if (all) {
        *slot = (wefti_slot){WEFTI_ALL_PEERS, op->sends[channel]};
    }
    op->sends[channel]++;
}

/* Whether the step reads this rank's own data to a pre-multiplied sum. */
static bool scales(const wefti_op *op, const wefti_step *step)
{
    return op->desc.scale && step->src == WEFTI_BUFFER_SEND;
}

static void scale(const wefti_op *op, const wefti_step *step, void *dst,
                  const void *src)
{
    wefti_scale(dst, src, op->desc.scale, step->elems, op->desc.dtype);
}

static wefti_wait send_step(weft_comm *comm, wefti_op *op, wefti_track *track)
{
    const wefti_step *step = &track->step;
    size_t bytes = step->elems * elem_bytes(op, step->src);
    const void *src = source(op, track, step->src, step->src_elem);
    if (track->phase == WEFTI_PHASE_START) {
        if (!source_ready(op, step)) {
            return WEFTI_WAIT_GATE;
        }
        wefti_op_piece_open(op);
        int blocker = ring_blocker(comm, op, step);
        if (blocker < 0) {
            blocker = slot_blocker(comm, op, step->channel);
        }
        if (blocker >= 0) {
            track->peer = blocker;
            return WEFTI_WAIT_PEER;
        }
        if (on_device(comm, src)) {
            copy_post(comm, op, track, staging(comm, op, step), src, bytes);
            track->phase = WEFTI_PHASE_FETCH;
        } else if (scales(op, step)) {
            scale(op, step, staging(comm, op, step), src);
        } else {
            wefti_copy(staging(comm, op, step), src, bytes);
        }
    }
    if (track->phase == WEFTI_PHASE_FETCH) {
        if (!copy_done(comm, op, track)) {
            return WEFTI_WAIT_DEVICE;
        }
        if (scales(op, step)) {
            void *staged = staging(comm, op, step);
            scale(op, step, staged, staged);
        }
    }
    post_staged(comm, op, step, staging(comm, op, step), bytes);
    return WEFTI_WAIT_NOTHING;
}

/* The end of every step that writes a result: host memory is written already,
 * device memory from `from`, by a copy that this waits for. */
static wefti_wait store_result(weft_comm *comm, wefti_op *op,
                               wefti_track *track, const void *from)
{
    const wefti_step *step = &track->step;
    void *dst = target(op, track, step->dst, step->dst_elem);
    if (on_device(comm, dst)) {
        if (track->phase != WEFTI_PHASE_STORE) {
            copy_post(comm, op, track, dst, from,
                      step->elems * elem_bytes(op, step->dst));
            track->phase = WEFTI_PHASE_STORE;
        }
        if (!copy_done(comm, op, track)) {
            return WEFTI_WAIT_DEVICE;
        }
    }
    return WEFTI_WAIT_NOTHING;
}

static wefti_wait recv_step(weft_comm *comm, wefti_op *op, wefti_track *track)
{
    const wefti_step *step = &track->step;
    size_t bytes = step->elems * elem_bytes(op, step->dst);
    void *dst = target(op, track, step->dst, step->dst_elem);
    wefti_incoming message;
    track->peer = step->peer;
    if (!look_for(comm, op, step, step->peer, &message)) {
        return WEFTI_WAIT_PEER;
    }
    wefti_op_piece_open(op);
    if (!on_device(comm, dst)) {
        size_t whole_bytes =
            wefti_op_recv_elems(op) * elem_bytes(op, step->dst);
        wefti_copy_part(dst, message.data, bytes, whole_bytes);
    }
    wefti_wait wait = store_result(comm, op, track, message.data);
    if (wait == WEFTI_WAIT_NOTHING) {
        take(comm, op, step, step->peer, bytes);
        result_arrived(op, step);
    }
    return wait;
}

/* Brings the step's own source to where the host can read it. */
static wefti_wait fetch_source(weft_comm *comm, wefti_op *op,
                               wefti_track *track, const void **source_out)
{
    const wefti_step *step = &track->step;
    const void *src = source(op, track, step->src, step->src_elem);
    *source_out = src;
    if (track->phase == WEFTI_PHASE_START) {
        if (!source_ready(op, step)) {
            return WEFTI_WAIT_GATE;
        }
        wefti_op_piece_open(op);
        if (on_device(comm, src)) {
            copy_post(comm, op, track, bounce(track), src,
                      step->elems * elem_bytes(op, step->src));
            track->phase = WEFTI_PHASE_FETCH;
        } else {
            track->phase = WEFTI_PHASE_READY;
            if (scales(op, step)) {
                scale(op, step, bounce(track), src);
            }
        }
    }
    if (track->phase == WEFTI_PHASE_FETCH) {
        if (!copy_done(comm, op, track)) {
            return WEFTI_WAIT_DEVICE;
        }
        track->phase = WEFTI_PHASE_READY;
        if (scales(op, step)) {
            scale(op, step, bounce(track), bounce(track));
        }
    }
    if (on_device(comm, src) || scales(op, step)) {
        *source_out = bounce(track);
    }
    return WEFTI_WAIT_NOTHING;
}

static wefti_wait fold_step(weft_comm *comm, wefti_op *op, wefti_track *track)
{
    const wefti_step *step = &track->step;
    void *dst = target(op, track, step->dst, step->dst_elem);
    bool stored = track->phase == WEFTI_PHASE_STORE;
    void *result = on_device(comm, dst) ? bounce(track) : dst;
    if (!stored) {
        const void *own;
        wefti_wait wait = fetch_source(comm, op, track, &own);
        if (wait != WEFTI_WAIT_NOTHING) {
            return wait;
        }
        if (track->peer < 0) {
            track->peer = 0;
        }
        for (; track->peer < comm->nranks; track->peer++) {
            wefti_incoming message = {.data = own};
            if (track->peer != comm->rank &&
                !look_for(comm, op, step, track->peer, &message)) {
                return WEFTI_WAIT_PEER;
            }
            track->sources[track->peer] = message.data;
        }
        if (wefti_reduction_is(op->desc.redop)) {
            wefti_reduction_fold(wefti_reduction_get(comm, op->desc.redop),
                                 result, track->sources, (size_t)comm->nranks,
                                 step->elems, op->desc.dtype);
        } else {
            wefti_fold(result, track->sources, (size_t)comm->nranks,
                       step->elems, op->desc.dtype, op->desc.redop);
        }
        size_t bytes = step->elems * elem_bytes(op, WEFTI_BUFFER_SEND);
        for (int peer = 0; peer < comm->nranks; peer++) {
            if (peer != comm->rank) {
                take(comm, op, step, peer, bytes);
            }
        }
    }
    wefti_wait wait = store_result(comm, op, track, result);
    if (wait == WEFTI_WAIT_NOTHING) {
        result_arrived(op, step);
    }
    return wait;
}

static wefti_wait widen_step(weft_comm *comm, wefti_op *op, wefti_track *track)
{
    const wefti_step *step = &track->step;
    const void *own;
    wefti_wait wait = fetch_source(comm, op, track, &own);
    if (wait != WEFTI_WAIT_NOTHING) {
        return wait;
    }
    if (wefti_reduction_is(op->desc.redop)) {
        wefti_copy(track->scratch, own,
                   step->elems * elem_bytes(op, step->dst));
    } else {
        wefti_widen(track->scratch, own, step->elems, op->desc.dtype);
    }
    return WEFTI_WAIT_NOTHING;
}

static wefti_wait combine_step(weft_comm *comm, wefti_op *op,
                               wefti_track *track)
{
    const wefti_step *step = &track->step;
    wefti_incoming message;
    track->peer = step->peer;
    if (!look_for(comm, op, step, step->peer, &message)) {
        return WEFTI_WAIT_PEER;
    }
    if (wefti_reduction_is(op->desc.redop)) {
        wefti_reduction_combine(wefti_reduction_get(comm, op->desc.redop),
                                track->scratch, message.data, step->elems,
                                op->desc.dtype);
    } else {
        wefti_combine(track->scratch, message.data, step->elems, op->desc.dtype,
                      op->desc.redop);
    }
    take(comm, op, step, step->peer, message.bytes);
    return WEFTI_WAIT_NOTHING;
}

static wefti_wait narrow_step(weft_comm *comm, wefti_op *op, wefti_track *track)
{
    const wefti_step *step = &track->step;
    void *dst = target(op, track, step->dst, step->dst_elem);
    void *result = on_device(comm, dst) ? bounce(track) : dst;
    if (wefti_reduction_is(op->desc.redop)) {
        wefti_copy(dst, track->scratch,
                   step->elems * elem_bytes(op, step->dst));
    } else if (track->phase != WEFTI_PHASE_STORE) {
        wefti_narrow(result, track->scratch, (size_t)comm->nranks, step->elems,
                     op->desc.dtype, op->desc.redop);
    }
    wefti_wait wait = store_result(comm, op, track, result);
    if (wait == WEFTI_WAIT_NOTHING) {
        result_arrived(op, step);
    }
    return wait;
}

static wefti_wait copy_step(weft_comm *comm, wefti_op *op, wefti_track *track)
{
    const wefti_step *step = &track->step;
    if (!op->desc.recv) {
        return WEFTI_WAIT_NOTHING; /* a root that does not want its own data */
    }
    size_t bytes = step->elems * elem_bytes(op, step->dst);
    const void *src = source(op, track, step->src, step->src_elem);
    void *dst = target(op, track, step->dst, step->dst_elem);
    if (track->phase == WEFTI_PHASE_START) {
        if (!source_ready(op, step)) {
            return WEFTI_WAIT_GATE;
        }
        wefti_op_piece_open(op);
        if (src != dst && (on_device(comm, src) || on_device(comm, dst))) {
            copy_post(comm, op, track, dst, src, bytes);
            track->phase = WEFTI_PHASE_STORE;
        } else if (src != dst) {
            wefti_copy(dst, src, bytes);
        }
    }
    if (track->phase == WEFTI_PHASE_STORE && !copy_done(comm, op, track)) {
        return WEFTI_WAIT_DEVICE;
    }
    result_arrived(op, step);
    return WEFTI_WAIT_NOTHING;
}

wefti_wait wefti_step_advance(weft_comm *comm, wefti_op *op, wefti_track *track)
{
    switch (track->step.kind) {
    case WEFTI_STEP_COPY:
        return copy_step(comm, op, track);
    case WEFTI_STEP_SEND:
        return send_step(comm, op, track);
    case WEFTI_STEP_RECV:
        return recv_step(comm, op, track);
    case WEFTI_STEP_FOLD:
        return fold_step(comm, op, track);
    case WEFTI_STEP_WIDEN:
        return widen_step(comm, op, track);
    case WEFTI_STEP_COMBINE:
        return combine_step(comm, op, track);
    case WEFTI_STEP_NARROW:
        return narrow_step(comm, op, track);
    }
    return WEFTI_WAIT_NOTHING;
}

bool wefti_step_drained(weft_comm *comm, const wefti_op *op)
{
    for (int channel = 0; channel < WEFTI_CHANNELS; channel++) {
        uint64_t sends = op->sends[channel];
        uint64_t slots = (uint64_t)op->slots[channel];
        for (uint64_t back = 0; back < sends && back < slots; back++) {
            const wefti_slot *slot =
                &op->slot_records[channel][(sends - 1 - back) % slots];
            bool all = slot->peer == WEFTI_ALL_PEERS;
            int first = all ? 0 : slot->peer;
            int end = all ? comm->nranks : slot->peer + 1;
            for (int peer = first; peer < end; peer++) {
                if (!(all && peer == comm->rank) &&
                    !slot_read_by(comm, op, channel, slot, peer)) {
                    return false;
                }
            }
        }
    }
    return true;
}
