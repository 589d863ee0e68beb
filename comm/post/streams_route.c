/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/streams_route.c - the route streams: the device's stream carries
 * operations out by copies, kernels and marks of its own.
 */
#include "comm/post/carried_route.h"
#include "comm/streams/streams.h"

static bool is_there(const weft_comm *comm)
{
    return comm->streams != NULL;
}

static const char *find_obstacle(const weft_comm *comm, const weft_op *op,
                                 const wefti_shape *shape)
{
    return !wefti_work_has(op->collective)
               ? "streams carry out no barriers and no v forms"
           : !shape->reduces ? NULL
           : wefti_redop_is_user(op->redop) || op->redop == WEFT_REDOP_PREMULSUM
               ? "the device has no kernel for this reduction"
           : !comm->streams->reduces
               ? "not all ranks' devices run kernels that reduce"
               : NULL;
}

static weft_stream *get_stream(const weft_comm *comm)
{
    return comm->streams->stream;
}

static weft_status carry(const wefti_carried *handed, weft_stream *stream)
{
    return wefti_streams_carry(handed->comm->streams, &handed->prepared->desc,
                               stream);
}

static weft_status capture(const wefti_carried *handed, weft_stream *stream)
{
    return wefti_streams_capture(handed->comm->streams, &handed->prepared->desc,
                                 stream);
}

const wefti_carrier wefti_carrier_streams = {
    .name = "streams",
    .by = "streams",
    .digest = WEFTI_CHOICE_STREAMS,
    .whole = "move all parts in one order",
    .taken = "WEFT_ROUTE=streams: the stream that it is posted on carries it "
             "out, where its buffers are in device memory",
    .is_there = is_there,
    .find_obstacle = find_obstacle,
    .stream = get_stream,
    .carry = carry,
    .capture = capture};
