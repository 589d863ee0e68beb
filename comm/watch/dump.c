/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/dump.c - the flight record of all ranks, read from their
 * entries; and this rank's sends and receives, which have none.
 */
#include "base/clock.h"
#include "base/error.h"
#include "comm/core/live.h"
#include "comm/engine/op.h"
#include "comm/net/net.h"
#include "comm/post/p2p_queue.h"
#include "comm/steps/signature_text.h"
#include "comm/watch/peer_life.h"
#include "comm/watch/waits.h"

#include <stdarg.h>
#include <stdio.h>

enum {
    LAST_OPS = 4, /* of each rank */
    QUEUES_MOST = 16,
    COUNTED_MOST = 100000
};

struct writer {
    char *text;
    size_t bytes, used;
};

static void append(struct writer *writer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void append(struct writer *writer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int more = vsnprintf(writer->text + writer->used,
                         writer->bytes - writer->used, format, args);
    va_end(args);
    size_t left = writer->bytes - writer->used - 1;
    writer->used += more > 0 && (size_t)more < left ? (size_t)more
                    : more > 0                      ? left
                                                    : 0;
}

static void dump_rank(weft_comm *comm, int rank, struct writer *writer)
{
    uint64_t completed = wefti_peer_finished(comm, rank);
    append(writer, "rank %d: completed #%llu%s", rank,
           (unsigned long long)completed,
           wefti_peer_has_left(comm, rank) ? ", has left" : "");
    /* Ahead of what is completed lies what it is inside of, or has ended out
     * of order. */
    for (uint64_t wanted = completed + WEFTI_OP_SLOTS;
         wanted > 0 && wanted + LAST_OPS > completed; wanted--) {
        const wefti_entry *entry =
            wefti_shared_find_entry(&comm->fabric.shared, rank, wanted);
        if (!entry) {
            continue;
        }
        char what[128];
        wefti_signature signature = {atomic_load(&entry->count),
                                     atomic_load(&entry->kind),
                                     atomic_load(&entry->cut)};
        pthread_mutex_lock(&comm->engine->lock);
        wefti_signature_text(comm, signature, what, sizeof(what));
        pthread_mutex_unlock(&comm->engine->lock);
        /* On an emulated link an entry is stamped with when it arrives. */
        int64_t age_ns = wefti_clock_ns() - atomic_load(&entry->stamp_ns);
        append(writer, "%s #%llu %s (%.3f s ago)",
               wanted > completed ? ", inside" : ", did",
               (unsigned long long)wanted, what,
               age_ns > 0 ? (double)age_ns / 1e9 : 0.0);
    }
    char what[128];
    wefti_wait_record wait;
    if (wefti_waits_get(comm, rank, wefti_waits_fresh_ns(comm->timeout_ns),
                        &wait)) {
        wefti_waits_text(comm, &wait, what, sizeof(what));
        append(writer, ", waits %s (%.3f s)", what,
               (double)(wefti_clock_coarse_ns() - wait.since_ns) / 1e9);
    }
    append(writer, "\n");
}

/* Messages of a queue: how many, counted up to a limit, and the first. */
static void dump_queue(const wefti_p2p_queue *queue, struct writer *writer)
{
    const weft_op *desc = &queue->first->desc;
    bool loaded = queue->op->state != WEFTI_OP_FREE;
    int count = 0;
    for (const wefti_p2p_message *message = queue->first;
         message && count < COUNTED_MOST; message = message->next) {
        count++;
    }
    char number[24];
    append(writer, "%s %s rank %d%s: %d%s, the first #%llu of %llu %s",
           weft_collective_text(desc->collective),
           desc->collective == WEFT_COLLECTIVE_SEND ? "to" : "from", desc->root,
           wefti_op_queue_text(queue->op, number, sizeof(number)), count,
           count == COUNTED_MOST ? " or more" : "",
           (unsigned long long)(queue->number + (loaded ? 0 : 1)),
           (unsigned long long)desc->count, weft_dtype_text(desc->dtype));
    append(writer, "%s\n", wefti_op_is_gated(desc) ? ", gated" : "");
}

/* Sends and receives of this rank that are not done; of the others only what
 * they wait in is known. Lock held. */
static void dump_pending(weft_comm *comm, struct writer *writer)
{
    int listed = 0, more = 0;
    for (const wefti_p2p_queue *queue = comm->busy_queues; queue;
         queue = queue->next_busy) {
        if (!queue->first) {
            continue;
        }
        if (listed++ < QUEUES_MOST) {
            append(writer, "rank %d pending: ", comm->rank);
            dump_queue(queue, writer);
        } else {
            more++;
        }
    }
    if (more) {
        append(writer, "rank %d pending: with %d more ranks or directions\n",
               comm->rank, more);
    }
}

weft_status weft_comm_dump(weft_comm *comm, char *text_out, size_t text_bytes)
{
    if (!wefti_comm_is_live(comm)) {
        return wefti_comm_refuse(comm, "comm");
    }
    if (!text_out || text_bytes == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "text_out is NULL or text_bytes 0: allowed is room "
                           "for text");
    }
    struct writer writer = {text_out, text_bytes, 0};
    append(&writer,
           "\"%s\", %d rank%s, seen by rank %d, which has staged %llu bytes\n",
           comm->name, comm->nranks, comm->nranks == 1 ? "" : "s", comm->rank,
           (unsigned long long)comm->fabric.payload_bytes);
    for (int rank = 0; rank < comm->nranks; rank++) {
        dump_rank(comm, rank, &writer);
    }
    pthread_mutex_lock(&comm->engine->lock);
    dump_pending(comm, &writer);
    pthread_mutex_unlock(&comm->engine->lock);
    append(&writer, "shm: payload sent %llu bytes\n",
           (unsigned long long)comm->fabric.payload_bytes);
    if (comm->fabric.net) {
        char net[400];
        pthread_mutex_lock(&comm->engine->lock);
        wefti_net_text(comm->fabric.net, net, sizeof(net));
        pthread_mutex_unlock(&comm->engine->lock);
        append(&writer, "%s", net);
    }
    return WEFT_OK;
}
