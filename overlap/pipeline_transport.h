/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_transport.h - the buffers of a pipeline, and how messages
 * come into them and leave them.
 *
 *   take -> (receive | the compute fills it, in chunks) -> send -> take
 *
 * Each ordered pair of ranks has a stream of its own, so that no message waits
 * for one of another pair. A group of messages needs no list of its own: all
 * are posted before any is waited for.
 *
 * Four gates stand for all buffers: chunks that arrived, chunks that are ready
 * to be sent, buffers that have been sent, and those that compute is done with.
 * Each use of a buffer is its next epoch in all four. Whoever computes waits
 * and signals: a stream, or without one (NULL) the caller, who knows when it is
 * done.
 */
#ifndef OVERLAP_PIPELINE_TRANSPORT_H
#define OVERLAP_PIPELINE_TRANSPORT_H

#include "overlap/pipeline_record.h"
#include "weft/bucket.h"

typedef struct wefti_pipeline_transport {
    weft_comm *comm;
    weft_device *device;
    weft_stream *compute;  /* or NULL */
    unsigned char *memory; /* [buffers][stride_bytes] */
    size_t buffers, stride_bytes;
    size_t rows, chunk_rows, row_elems;
    size_t chunks; /* of a buffer, at most */
    weft_dtype dtype;
    weft_gate *arrived, *ready; /* [buffers][chunks] */
    weft_gate *sent, *used;     /* [buffers] */
    uint64_t *epochs;           /* [buffers] uses so far */
    int32_t *receivers;         /* [buffers] the rank it is being sent to; -1 */
    size_t *coming; /* [buffers] chunks of the message posted to it; 0: none */
    weft_bucket_mode mode; /* overlap/pipeline_mode.h */
    int ranks;
    weft_stream **out, **in; /* [ranks]; NULL: no message ever */
} wefti_pipeline_transport;

/* Which way rows go, if they go. */
typedef enum wefti_rows_way {
    WEFTI_ROWS_LOCAL, /* from a stage to the next on this rank */
    WEFTI_ROWS_INCOMING,
    WEFTI_ROWS_OUTGOING
} wefti_rows_way;

/* What ties rows to their buffer while an action uses them. */
struct weft_rows_tie {
    wefti_pipeline_transport *transport;
    wefti_pipeline_record *record;
    int buffer;
    wefti_rows_way way;
    weft_schedule_wait wait; /* what it is to wait for them */
    int from;
    size_t rows; /* that there are */
    size_t done; /* chunks waited for, or signalled */
};

/*
 * wefti_pipeline_transport_init - of config count comm, device, rows,
 * row_elems, dtype and chunk_rows. Also after a failure to be finished.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status
wefti_pipeline_transport_init(wefti_pipeline_transport *transport,
                              const weft_pipeline_config *config, int buffers);
void wefti_pipeline_transport_fini(wefti_pipeline_transport *transport);

/*
 * wefti_pipeline_transport_open - opens the stream to or from peer, if it is
 * not open.
 */
WEFT_NODISCARD weft_status wefti_pipeline_transport_open(
    wefti_pipeline_transport *transport, int peer, bool out);

/*
 * wefti_pipeline_transport_take - buffer may be written, by compute or by what
 * comes from a peer (-1: none): what was sent from it has gone, and compute is
 * done with what was in it. Blocks: until then, unless there is a stream.
 */
WEFT_NODISCARD weft_status wefti_pipeline_transport_take(
    wefti_pipeline_transport *transport, wefti_pipeline_record *record,
    int buffer, int peer);

/* What compute has been given to do with these buffers is all there is. */
WEFT_NODISCARD weft_status wefti_pipeline_transport_release(
    wefti_pipeline_transport *transport, const int32_t *buffers, size_t count);

/* Posts one message of so many rows to or from peer, in chunks; the buffer has
 * been taken. */
WEFT_NODISCARD weft_status
wefti_pipeline_transport_post(wefti_pipeline_transport *transport, int buffer,
                              int peer, bool send, size_t rows);

/* BLOCKING: what has been posted has gone or come. Blocks: until then, unless
 * there is a stream. */
WEFT_NODISCARD weft_status wefti_pipeline_transport_clear(
    wefti_pipeline_transport *transport, wefti_pipeline_record *record);

/* All that has been posted has gone or come, and compute has ended. Blocks:
 * until then. */
WEFT_NODISCARD weft_status
wefti_pipeline_transport_settle(wefti_pipeline_transport *transport);

static inline void *
wefti_pipeline_transport_data(const wefti_pipeline_transport *transport,
                              int buffer)
{
    return transport->memory + (size_t)buffer * transport->stride_bytes;
}

#endif
