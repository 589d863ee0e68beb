/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/op.h - what one operation is: its texts, its buffers, its gates.
 */
#ifndef COMM_ENGINE_OP_H
#define COMM_ENGINE_OP_H

#include "comm/core/core.h"

/* Publishes a fault that names op. */
void wefti_op_fail(weft_comm *comm, const wefti_op *op, weft_status status,
                   const char *what);

/* Whether desc has a gate of any kind. */
static inline bool wefti_op_is_gated(const weft_op *desc)
{
    return desc->ready || desc->arrived || desc->writable;
}

/* How long op may stand still, in nanoseconds. */
int64_t wefti_op_limit(const weft_comm *comm, const wefti_op *op);

/* Whether gate, which may be NULL, has failed; then so does op, named with the
 * gate's text: every epoch of it counts as reached, and what was to be made
 * before may not be there. */
bool wefti_op_find_failed(weft_comm *comm, const wefti_op *op,
                          const weft_gate *gate);

/* Marks the start of a transfer (idempotent), or its end. */
void wefti_op_piece_open(wefti_op *op);

/* What it moves was there at ready_ns, or later. */
static inline void wefti_op_piece_note(wefti_op *op, int64_t ready_ns)
{
    if (ready_ns > op->piece.ready_ns) {
        op->piece.ready_ns = ready_ns;
    }
}
void wefti_op_piece_close(weft_comm *comm, wefti_op *op, int64_t end_ns);

/* Elements of the whole receive buffer, and the gate chunks of both: at least
 * one. */
size_t wefti_op_recv_elems(const wefti_op *op);
size_t wefti_op_send_chunks(const wefti_op *op);
size_t wefti_op_recv_chunks(const wefti_op *op);

/* Of the op slots, and then the queues of messages, which one it is; and the
 * other way; and how many there can be. */
size_t wefti_op_index(const weft_comm *comm, const wefti_op *op);
const wefti_op *wefti_op_at(const weft_comm *comm, size_t index);
size_t wefti_op_count(const weft_comm *comm);

/* " in queue 1" of a message; empty in queue 0. Returns text_out. */
const char *wefti_op_queue_text(const wefti_op *op, char *text_out,
                                size_t text_bytes);

/*
 * The gate chunk of the send, or of the receive, buffer that rank's part is,
 * where a chunk is a rank's part; and how much that part has.
 */
size_t wefti_op_send_chunk(const wefti_op *op, int rank);
size_t wefti_op_recv_chunk(const wefti_op *op, int rank);
size_t wefti_op_recv_part(const wefti_op *op, int rank);

/* The first chunk of the send buffer that is not ready, or of the receive
 * buffer that may not be overwritten; false: none. */
bool wefti_op_find_shut(const wefti_op *op, size_t *chunk_out);
bool wefti_op_find_unwritable(const wefti_op *op, size_t *chunk_out);

/* Whether all of the send buffer is ready. */
bool wefti_op_all_ready(const wefti_op *op);

/* Announces one chunk of the receive buffer, or all. */
void wefti_op_raise_arrived(const wefti_op *op, size_t chunk);
void wefti_op_all_arrived(wefti_op *op);

/* 'all_reduce #417 on "world"' */
void wefti_op_text(const weft_comm *comm, const wefti_op *op, char *text_out,
                   size_t text_bytes);

#endif
