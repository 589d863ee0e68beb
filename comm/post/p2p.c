/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/p2p.c - point-to-point operations and lists of them, checked and
 * posted.
 *
 * A list becomes a batch of messages (comm/post/p2p_queue.h), in one allocation
 * that lives until all are done; a short one on no stream lives on the caller's
 * stack.
 */
#include "comm/post/p2p.h"

#include "base/error.h"
#include "base/sized.h"
#include "comm/core/live.h"
#include "comm/post/carried_route.h"
#include "comm/post/op_check.h"

#include <stdlib.h>
#include <string.h>

enum {
    FEW = 8, /* parts that need no allocation */
    PLAIN_ELEMS = 64 << 10
};

/* A buffer of a list, to be compared with the others. */
typedef struct extent {
    uintptr_t begin, end;
    size_t part;
    bool written;
} extent;

static int by_begin(const void *left, const void *right)
{
    const extent *a = left, *b = right;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* qsort takes longer for two than all else that a small message takes. */
static void sort(extent *extents, size_t count)
{
    if (count > FEW) {
        qsort(extents, count, sizeof(*extents), by_begin);
        return;
    }
    for (size_t i = 1; i < count; i++) {
        const extent moved = extents[i];
        size_t at = i;
        for (; at > 0 && extents[at - 1].begin > moved.begin; at--) {
            extents[at] = extents[at - 1];
        }
        extents[at] = moved;
    }
}

/* Room for count messages behind the batch; NULL: no memory. */
static wefti_batch *make_batch(size_t count)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, sizeof(wefti_p2p_message), &bytes) ||
        __builtin_add_overflow(bytes, sizeof(wefti_batch), &bytes)) {
        return NULL;
    }
    wefti_batch *batch = malloc(bytes);
    if (batch) {
        *batch = (wefti_batch){
            .request = {.kind = &wefti_batch_kind, .block = batch},
            .messages = (wefti_p2p_message *)(batch + 1),
            .count = count};
    }
    return batch;
}

static weft_status no_memory(size_t count)
{
    return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a list of %zu parts",
                       count);
}

/* How they go, and the queues that they go through. */
static weft_status make_ready(weft_comm *comm, wefti_p2p_message *messages,
                              size_t count, size_t *carried_out)
{
    weft_status status =
        wefti_route_choose_messages(comm, messages, count, carried_out);
    for (size_t i = 0; status == WEFT_OK && i < count; i++) {
        const int queue = messages[i].queue;
        const weft_op *desc = &messages[i].desc;
        status = wefti_p2p_queues_open(comm, queue);
        if (status == WEFT_OK && desc->collective == WEFT_COLLECTIVE_SEND) {
            status = wefti_p2p_staging_open(comm, desc->root,
                                            WEFTI_OP_SLOT_P2P + queue, 0);
        }
    }
    return status;
}

/* Those of count messages that the route carries; NULL: no memory. */
static wefti_p2p_message *copy_carried(const wefti_p2p_message *messages,
                                       size_t count, size_t carried)
{
    wefti_p2p_message *copies = calloc(carried, sizeof(*copies));
    size_t used = 0;
    for (size_t i = 0; copies && i < count; i++) {
        if (messages[i].carried) {
            copies[used++] = messages[i];
        }
    }
    return copies;
}

/* Some of them, or all, are carried by the stream, else by one of the route's
 * behind a handle. */
static weft_status post_carried(const wefti_p2p_message *messages, size_t count,
                                size_t carried, weft_comm *comm,
                                weft_stream *stream, weft_request **handle_out)
{
    wefti_p2p_message *copies = copy_carried(messages, count, carried);
    wefti_batch *batch = make_batch(count);
    if (!copies || !batch) {
        free(copies);
        free(batch);
        return no_memory(count);
    }
    memcpy(batch->messages, messages, count * sizeof(*messages));
    batch->request.shared = stream && carried < count;
    wefti_carried_list handed = {comm, copies, carried};
    weft_status status =
        wefti_request_carry(comm, &batch->request, stream,
                            wefti_carrier_of(comm->tuning.route)->stream(comm),
                            handle_out, wefti_carried_queue_list, &handed);
    free(copies);
    return status;
}

weft_status wefti_p2p_post_messages(wefti_p2p_message *messages, size_t count,
                                    weft_comm *comm, weft_stream *stream,
                                    weft_request **handle_out)
{
    size_t carried = 0;
    weft_status status = make_ready(comm, messages, count, &carried);
    if (status != WEFT_OK) {
        return status;
    }
    if (carried) {
        return post_carried(messages, count, carried, comm, stream, handle_out);
    }
    if (!stream && !handle_out) {
        wefti_batch batch = {.request.kind = &wefti_batch_kind,
                             .messages = messages,
                             .count = count};
        return wefti_request_run(comm, &batch.request);
    }
    wefti_batch *batch = make_batch(count);
    if (!batch) {
        return no_memory(count);
    }
    memcpy(batch->messages, messages, count * sizeof(*messages));
    return wefti_request_queue(comm, &batch->request, stream, handle_out);
}

/*
 * Whether nothing is wrong with a part, which is small and has nothing that few
 * have: most are, and the questions below take longer than such a message.
 * Whatever else there is, they answer: a field that weft_p2p gets has to be its
 * default here, and go on in fill_plain.
 */
static bool is_plain(const weft_p2p *part, const weft_comm *comm)
{
    return (part->kind == WEFT_P2P_SEND || part->kind == WEFT_P2P_RECV) &&
           part->buffer && part->count <= PLAIN_ELEMS && !comm->copies &&
           !part->ready && !part->arrived && !part->writable &&
           !part->gate_elems &&
           part->chunk_order == WEFT_CHUNK_ORDER_ASCENDING &&
           (unsigned)part->dtype < WEFT_DTYPE_COUNT &&
           (unsigned)part->peer < (unsigned)comm->nranks &&
           (unsigned)part->class_id < WEFT_CLASS_COUNT &&
           (unsigned)part->queue < WEFT_P2P_QUEUES;
}

static void fill_plain(const weft_p2p *part, uint64_t epoch,
                       wefti_p2p_message *message_out)
{
    const bool send = part->kind == WEFT_P2P_SEND;
    const bool unnamed = part->class_id == WEFT_CLASS_COMPUTE;
    message_out->queue = part->queue;
    message_out->carried = 0;
    message_out->epoch = epoch ? epoch : part->epoch;
    message_out->places = (wefti_op_places){false, false};
    message_out->desc = (weft_op){
        .size_bytes = sizeof(message_out->desc),
        .collective = send ? WEFT_COLLECTIVE_SEND : WEFT_COLLECTIVE_RECV,
        .send = send ? part->buffer : NULL,
        .recv = send ? NULL : part->buffer,
        .count = part->count,
        .dtype = part->dtype,
        .root = part->peer,
        .class_id = unnamed ? WEFT_CLASS_DP : part->class_id,
        .label = part->label,
        .timeout_ms = part->timeout_ms};
}

/* Fills *message_out; an error's text does not name the part yet. */
static weft_status check_part(const weft_p2p *part, uint64_t epoch,
                              const weft_comm *comm,
                              wefti_p2p_message *message_out)
{
    bool send = part->kind == WEFT_P2P_SEND;
    if (!send && part->kind != WEFT_P2P_RECV) {
        return wefti_error(WEFT_ERR_INVALID, "kind %d: allowed is 0..1",
                           (int)part->kind);
    }
    const char *wrong = !send            ? part->ready ? "ready" : NULL
                        : part->arrived  ? "arrived"
                        : part->writable ? "writable"
                                         : NULL;
    if (wrong) {
        return wefti_error(WEFT_ERR_INVALID,
                           "a %s with a gate %s: allowed is %s",
                           send ? "SEND" : "RECV", wrong,
                           send ? "ready" : "arrived, writable");
    }
    if (part->count && !part->buffer) {
        return wefti_error(WEFT_ERR_INVALID,
                           "buffer is NULL: allowed is one of %zu %s",
                           part->count, weft_dtype_text(part->dtype));
    }
    if (part->queue < 0 || part->queue >= WEFT_P2P_QUEUES) {
        return wefti_error(WEFT_ERR_INVALID, "queue %d: allowed is 0..%d",
                           part->queue, WEFT_P2P_QUEUES - 1);
    }
    message_out->queue = part->queue;
    message_out->carried = 0;
    weft_op *op = &message_out->desc;
    *op = (weft_op){.size_bytes = sizeof(*op),
                    .collective =
                        send ? WEFT_COLLECTIVE_SEND : WEFT_COLLECTIVE_RECV,
                    .send = send ? part->buffer : NULL,
                    .recv = send ? NULL : part->buffer,
                    .count = part->count,
                    .dtype = part->dtype,
                    .root = part->peer,
                    .ready = part->ready,
                    .arrived = part->arrived,
                    .gate_elems = part->gate_elems,
                    .ready_chunk = part->ready_chunk,
                    .arrived_chunk = part->arrived_chunk,
                    .class_id = part->class_id,
                    .label = part->label,
                    .timeout_ms = part->timeout_ms,
                    .chunk_order = part->chunk_order,
                    .writable = part->writable,
                    .writable_chunk = part->writable_chunk};
    message_out->epoch = epoch ? epoch : part->epoch;
    wefti_role role; /* looked up again when its turn comes */
    return wefti_check_op(op, message_out->epoch, comm, &role,
                          &message_out->places);
}

/* Whether a part that is written shares bytes with any other. */
static weft_status check_apart(extent *extents, size_t count)
{
    const extent *last = NULL, *last_written = NULL; /* ending furthest on */
    sort(extents, count);
    for (size_t i = 0; i < count; i++) {
        const extent *at = &extents[i];
        const extent *other = at->written ? last : last_written;
        if (other && at->begin < other->end) {
            return wefti_error(WEFT_ERR_INVALID,
                               "list[%zu]: its buffer overlaps that of "
                               "list[%zu]: allowed is apart, or two SENDs",
                               at->part, other->part);
        }
        if (!last || at->end > last->end) {
            last = at;
        }
        if (at->written && (!last_written || at->end > last_written->end)) {
            last_written = at;
        }
    }
    return WEFT_OK;
}

/* A send and a receive, and no byte that both have. */
static bool is_apart_pair(const wefti_p2p_message *a,
                          const wefti_p2p_message *b)
{
    const bool sends = a->desc.collective == WEFT_COLLECTIVE_SEND;
    const weft_op *from = sends ? &a->desc : &b->desc;
    const weft_op *to = sends ? &b->desc : &a->desc;
    const uintptr_t out = (uintptr_t)from->send, in = (uintptr_t)to->recv;
    return from->collective != to->collective &&
           (out + from->count * weft_dtype_bytes(from->dtype) <= in ||
            in + to->count * weft_dtype_bytes(to->dtype) <= out);
}

static weft_status check_overlaps(const wefti_p2p_message *messages,
                                  size_t count)
{
    if (count == 1 ||
        (count == 2 && is_apart_pair(&messages[0], &messages[1]))) {
        return WEFT_OK;
    }
    extent few[FEW];
    extent *extents = few;
    size_t used = 0;
    if (count > FEW && !(extents = calloc(count, sizeof(*extents)))) {
        return no_memory(count);
    }
    for (size_t i = 0; i < count; i++) {
        const weft_op *desc = &messages[i].desc;
        bool written = desc->collective == WEFT_COLLECTIVE_RECV;
        uintptr_t begin = (uintptr_t)(written ? desc->recv : desc->send);
        size_t bytes = desc->count * weft_dtype_bytes(desc->dtype);
        if (bytes) {
            extents[used++] = (extent){begin, begin + bytes, i, written};
        }
    }
    weft_status status = check_apart(extents, used);
    if (extents != few) {
        free(extents);
    }
    return status;
}

/* The part of a caller that was compiled against any weft: as given, or what
 * *part_out is made then. */
static weft_status read_part(const weft_p2p **at, size_t stride,
                             weft_p2p *part_out)
{
    const weft_p2p *part = *at;
    if (part->size_bytes == sizeof(*part) && stride == sizeof(*part)) {
        return WEFT_OK;
    }
    *at = part_out;
    weft_status status =
        wefti_sized_read("weft_p2p", part, offsetof(weft_p2p, ready), part_out,
                         sizeof(*part_out));
    if (status == WEFT_OK && part->size_bytes != stride) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "size_bytes %zu: allowed is %zu, the same in all "
                             "parts",
                             part->size_bytes, stride);
    }
    return status;
}

weft_status wefti_p2p_check(const weft_p2p *list, size_t list_count,
                            uint64_t epoch, const weft_comm *comm,
                            wefti_p2p_message *messages_out)
{
    size_t stride = list->size_bytes;
    const unsigned char *at = (const unsigned char *)list;
    for (size_t i = 0; i < list_count; i++, at += stride) {
        weft_p2p own;
        const weft_p2p *part = (const void *)at;
        weft_status status = read_part(&part, stride, &own);
        if (status == WEFT_OK && is_plain(part, comm)) {
            fill_plain(part, epoch, &messages_out[i]);
        } else if (status == WEFT_OK) {
            status = check_part(part, epoch, comm, &messages_out[i]);
        }
        if (status != WEFT_OK) {
            return wefti_error(status, "list[%zu]: %s", i, weft_error_text());
        }
    }
    return check_overlaps(messages_out, list_count);
}

/* A list of a few parts, here and now: no allocation. */
static weft_status post_few(const weft_p2p *list, size_t list_count,
                            weft_comm *comm)
{
    wefti_p2p_message messages[FEW];
    weft_status status = wefti_p2p_check(list, list_count, 0, comm, messages);
    return status == WEFT_OK
               ? wefti_p2p_post_messages(messages, list_count, comm, NULL, NULL)
               : status;
}

static weft_status check_list(const weft_p2p *list, size_t list_count,
                              const weft_comm *comm)
{
    if (!wefti_comm_is_live(comm)) {
        return wefti_comm_refuse(comm, "comm");
    }
    return list || list_count == 0
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "list is NULL: allowed is list_count parts");
}

/* A list in a block of its own. */
static weft_status post_block(const weft_p2p *list, size_t list_count,
                              weft_comm *comm, weft_stream *stream,
                              weft_request **handle_out)
{
    wefti_batch *batch = make_batch(list_count);
    if (!batch) {
        return no_memory(list_count);
    }
    weft_status status =
        list_count ? wefti_p2p_check(list, list_count, 0, comm, batch->messages)
                   : WEFT_OK;
    size_t carried = 0;
    if (status == WEFT_OK) {
        status = make_ready(comm, batch->messages, list_count, &carried);
    }
    if (status == WEFT_OK && carried) {
        status = post_carried(batch->messages, list_count, carried, comm,
                              stream, handle_out);
    }
    if (status != WEFT_OK || carried) {
        free(batch);
        return status;
    }
    if (stream || handle_out) {
        return wefti_request_queue(comm, &batch->request, stream, handle_out);
    }
    batch->request.block = NULL;
    status = wefti_request_run(comm, &batch->request);
    free(batch);
    return status;
}

weft_status weft_p2p_post(const weft_p2p *list, size_t list_count,
                          weft_comm *comm, weft_stream *stream)
{
    weft_status status = check_list(list, list_count, comm);
    if (status == WEFT_OK && stream) {
        status = wefti_check_stream(stream, comm);
    }
    if (status != WEFT_OK || list_count == 0) {
        return status;
    }
    return !stream && list_count <= FEW
               ? post_few(list, list_count, comm)
               : post_block(list, list_count, comm, stream, NULL);
}

weft_status weft_p2p_begin(const weft_p2p *list, size_t list_count,
                           weft_comm *comm, weft_request **request_out)
{
    weft_status status = wefti_request_check_out(request_out);
    if (status == WEFT_OK) {
        status = check_list(list, list_count, comm);
    }
    return status == WEFT_OK
               ? post_block(list, list_count, comm, NULL, request_out)
               : status;
}

weft_status wefti_p2p_begin_round(weft_comm *comm, int queue, const char *label)
{
    if (comm->rounds[queue]) {
        return wefti_error(WEFT_ERR_INVALID,
                           "a round of \"%s\" is under way in queue %d of "
                           "\"%s\": allowed is another queue, 0 .. %d, or to "
                           "end it before",
                           comm->rounds[queue], queue, comm->name,
                           WEFT_P2P_QUEUES - 1);
    }
    comm->rounds[queue] = label;
    return WEFT_OK;
}

void wefti_p2p_end_round(weft_comm *comm, int queue)
{
    comm->rounds[queue] = NULL;
}
