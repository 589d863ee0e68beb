/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/mem/mem_far.c - puts and signals to ranks that share no memory with this
 * one: messages of one queue per pair, carried out by the engine of their
 * target.
 *
 *   message    count             kind       cut          bytes
 *   put        offset in bytes   memory id  0            what to put there
 *   signal     what to add       memory id  slot + 1     none
 *
 * The three words stand where letters have their signature.
 */
#include "comm/mem/mem.h"
#include "kernels/wire/fold.h"

enum { MESSAGES_PER_PUSH = 16 };

static wefti_path path_to(int peer)
{
    return (wefti_path){peer, WEFTI_RING_LETTERS, WEFTI_MEM_CHANNEL};
}

/* The next free slot of what goes to peer; there is room. */
static void *stage(weft_comm *comm, wefti_path path)
{
    size_t slot =
        (size_t)(wefti_fabric_posted(&comm->fabric, path) % WEFTI_LETTER_SLOTS);
    return wefti_fabric_stage(&comm->fabric, path, -1, slot);
}

static weft_status fetch(weft_comm *comm, void *dst, const void *src,
                         size_t bytes)
{
    if (wefti_device_owns(comm->device, src)) {
        return weft_device_copy(comm->device, dst, src, bytes, NULL);
    }
    wefti_copy(dst, src, bytes);
    return WEFT_OK;
}

weft_status wefti_mem_far_put(weft_mem *mem, int peer, size_t dst_offset,
                              const unsigned char *src, size_t bytes,
                              size_t *taken_bytes)
{
    weft_comm *comm = mem->comm;
    wefti_path path = path_to(peer);
    *taken_bytes = 0;
    while (*taken_bytes < bytes && wefti_fabric_has_room(&comm->fabric, path)) {
        size_t left = bytes - *taken_bytes;
        size_t part = left < WEFTI_LETTER_BYTES ? left : WEFTI_LETTER_BYTES;
        void *at = stage(comm, path);
        weft_status status = fetch(comm, at, src + *taken_bytes, part);
        if (status != WEFT_OK) {
            return status;
        }
        wefti_outgoing message = {
            .data = at,
            .bytes = part,
            .signature = {dst_offset + *taken_bytes, mem->id, 0}};
        wefti_fabric_post(&comm->fabric, path, &message);
        *taken_bytes += part;
    }
    return WEFT_OK;
}

bool wefti_mem_far_signal(weft_mem *mem, int peer, int slot, uint64_t add)
{
    weft_comm *comm = mem->comm;
    wefti_path path = path_to(peer);
    if (!wefti_fabric_has_room(&comm->fabric, path)) {
        return false;
    }
    wefti_outgoing message = {.data = stage(comm, path),
                              .signature = {add, mem->id, (uint64_t)slot + 1}};
    wefti_fabric_post(&comm->fabric, path, &message);
    return true;
}

/* One message from source. What is for a memory that is gone is dropped, and
 * nothing a peer sends is written beyond its end. */
static void carry_out(weft_comm *comm, int source,
                      const wefti_incoming *message)
{
    const wefti_signature *words = &message->signature;
    weft_mem *mem = comm->mems;
    while (mem && mem->id != words->kind) {
        mem = mem->next;
    }
    if (!mem || words->cut > WEFT_MEM_SLOTS) {
        return;
    }
    if (words->cut > 0) {
        atomic_fetch_add(
            wefti_mem_get_cell(mem, comm->rank, source, (int)words->cut - 1),
            words->count);
    } else if (words->count <= mem->bytes &&
               message->bytes <= mem->bytes - words->count) {
        wefti_copy(wefti_mem_get_data(mem, comm->rank) + words->count,
                   message->data, message->bytes);
    }
}

bool wefti_mem_far_receive(weft_comm *comm)
{
    bool moved = false;
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (wefti_mem_is_near(comm->mems, peer)) {
            continue;
        }
        wefti_path path = path_to(peer);
        wefti_incoming message;
        for (int i = 0; i < MESSAGES_PER_PUSH &&
                        wefti_fabric_peek(&comm->fabric, path, &message,
                                          &comm->engine->due_ns);
             i++) {
            carry_out(comm, peer, &message);
            wefti_fabric_release(&comm->fabric, path);
            moved = true;
        }
    }
    return moved;
}
