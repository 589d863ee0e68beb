/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/shm.c - messages through memory that all ranks have mapped.
 *
 * Bytes are staged in the sender's region and used there by every reader: one
 * copy in, however many peers; a reduction reads its sources in place. Those of
 * a large message may stay in the sender's buffer (comm/steps/unstaged.h), and
 * those of a tiny one go in the message's own cache line.
 *
 * A core that wants a line which another has written or read waits as long as
 * a tiny message takes. So a sender looks at consumed only when its slots seem
 * to be full, and fetches the next message's line before it needs it.
 *
 * message.sequence (sender's store) pairs with peek's load: the bytes and the
 * message's fields are complete. consumed (reader's store) pairs with read_by's
 * load: the reader is done with the bytes.
 */
#include "base/check.h"
#include "base/clock.h"
#include "base/prefetch.h"
#include "comm/fabric/fabric.h"

#include <string.h>

static void *stage(wefti_fabric *fabric, wefti_fabric_path path, int staging,
                   size_t offset)
{
    unsigned char *region = fabric->shared.regions[fabric->rank];
    if (wefti_op_slot_is_p2p(path.op_slot)) {
        return region + wefti_shared_find_p2p_slot(&fabric->shared, path.peer,
                                                   path.op_slot, path.channel,
                                                   offset);
    }
    return region + fabric->shared.layout.staging +
           (size_t)staging * WEFTI_STAGING_BYTES + offset;
}

/* What the reader needs to find a message's bytes. */
static uint64_t tell_where(const wefti_fabric *fabric,
                           const wefti_outgoing *outgoing)
{
    const unsigned char *data = outgoing->data;
    uint64_t offset = (uint64_t)(uintptr_t)data;
    if (outgoing->place == WEFTI_PLACE_STAGED) {
        return (uint64_t)(data - fabric->shared.regions[fabric->rank]);
    }
    if (outgoing->place == WEFTI_PLACE_MAPPED) {
        const bool found =
            wefti_mapped_locate(fabric->mapped, data, outgoing->bytes, &offset);
        WEFTI_ASSERT(found); /* or its place is another */
        (void)found;
    }
    return offset;
}

static const void *find_bytes(const wefti_fabric *fabric, int peer,
                              const wefti_posted_message *message)
{
    const void *found = (const void *)(uintptr_t)message->offset;
    if (message->place == WEFTI_PLACE_STAGED) {
        return fabric->shared.regions[peer] + message->offset;
    }
    if (message->place == WEFTI_PLACE_MAPPED) {
        found =
            wefti_mapped_find(fabric->mapped, message->offset, message->bytes);
        WEFTI_ASSERT(found); /* all members keep it */
    }
    return found;
}

/* All of the message but its sequence. */
static void fill_in(wefti_fabric *fabric, int peer,
                    const wefti_outgoing *outgoing,
                    wefti_posted_message *message)
{
    const bool away = peer != fabric->rank;
    message->bytes = (uint32_t)outgoing->bytes;
    message->place = outgoing->place;
    message->signature = outgoing->signature;
    fabric->payload_bytes += away ? outgoing->bytes : 0;
    if (outgoing->place == WEFTI_PLACE_LINE) {
        if (outgoing->bytes > 0) { /* of nothing, data may be NULL */
            memcpy(message->line, outgoing->data, outgoing->bytes);
        }
        return;
    }
    message->offset = tell_where(fabric, outgoing);
    message->ready_ns = outgoing->ready_ns;
    message->visible_ns =
        away ? wefti_fabric_charge(fabric, outgoing->bytes) : 0;
    fabric->unstaged_bytes +=
        outgoing->place == WEFTI_PLACE_STAGED ? 0 : outgoing->bytes;
}

static wefti_posted_message *message_to(const wefti_fabric *fabric,
                                        wefti_fabric_path path,
                                        uint64_t sequence)
{
    return wefti_shared_get_message(&fabric->shared, fabric->rank, path.peer,
                                    path.op_slot, path.channel, sequence);
}

static void post(wefti_fabric *fabric, wefti_fabric_path path,
                 const wefti_outgoing *outgoing)
{
    uint64_t sequence = ++fabric->posted[wefti_fabric_cell(&path)];
    wefti_posted_message *message = message_to(fabric, path, sequence);
    fill_in(fabric, path.peer, outgoing, message);
    atomic_store(&message->sequence, sequence);
    wefti_doorbell_ring(fabric->bells[path.peer]);
    wefti_prefetch_write(message_to(fabric, path, sequence + 1),
                         sizeof(*message));
}

static bool peek(wefti_fabric *fabric, wefti_fabric_path path,
                 wefti_incoming *message_out, int64_t *due_ns)
{
    uint64_t sequence = fabric->taken[wefti_fabric_cell(&path)] + 1;
    wefti_posted_message *message =
        wefti_shared_get_message(&fabric->shared, path.peer, fabric->rank,
                                 path.op_slot, path.channel, sequence);
    if (atomic_load(&message->sequence) != sequence) {
        return false;
    }
    message_out->bytes = message->bytes;
    message_out->signature = message->signature;
    if (message->place == WEFTI_PLACE_LINE) {
        message_out->place = WEFTI_PLACE_STAGED;
        message_out->data = message->line;
        message_out->ready_ns = 0;
        return true;
    }
    if (message->visible_ns && message->visible_ns > wefti_clock_ns()) {
        if (message->visible_ns < *due_ns) {
            *due_ns = message->visible_ns;
        }
        return false;
    }
    message_out->place = (wefti_bytes_place)message->place;
    message_out->data = find_bytes(fabric, path.peer, message);
    message_out->ready_ns = message->ready_ns;
    return true;
}

static void release(wefti_fabric *fabric, wefti_fabric_path path)
{
    uint64_t taken = ++fabric->taken[wefti_fabric_cell(&path)];
    atomic_store(wefti_shared_get_consumed(&fabric->shared, fabric->rank,
                                           path.peer, path.op_slot,
                                           path.channel),
                 taken);
    wefti_doorbell_ring(fabric->bells[path.peer]);
}

const wefti_fabric_table wefti_fabric_shm = {
    .name = "shm",
    .stage = stage,
    .post = post,
    .peek = peek,
    .release = release,
};
