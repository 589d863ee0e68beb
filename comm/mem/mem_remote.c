/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/mem/mem_remote.c - puts and signals to memory that this rank has not
 * mapped, of another domain or registered: messages of one queue per pair,
 * carried out by the engine of their target.
 *
 *   message    count             kind       cut          bytes
 *   put        offset in bytes   memory id  0            what to put there
 *   signal     what to add       memory id  slot + 1     none
 *
 * The three words stand where messages have their signature.
 */
#include "comm/engine/copies.h"
#include "comm/mem/mem.h"
#include "kernels/wire/reduce.h"

enum { MESSAGES_PER_PUSH = 16 };

static wefti_fabric_path path_to(int peer)
{
    return (wefti_fabric_path){peer, WEFTI_OP_SLOT_P2P, WEFTI_MEM_CHANNEL};
}

/* The next free slot of what goes to peer; there is room. */
static void *stage(weft_comm *comm, wefti_fabric_path path)
{
    size_t slot = (size_t)(wefti_fabric_posted(&comm->fabric, path) %
                           wefti_fabric_p2p_slots(&comm->fabric, path.peer));
    return wefti_fabric_stage(&comm->fabric, path, -1, slot);
}

/* One message of a put, of bytes that the host can read. */
static void send_part(wefti_mem_op *op, const void *from, size_t part)
{
    weft_comm *comm = op->mem->comm;
    wefti_fabric_path path = path_to(op->peer);
    void *at = stage(comm, path);
    wefti_copy(at, from, part);
    wefti_outgoing message = {.data = at,
                              .bytes = part,
                              .signature = {op->dst_offset, op->mem->id, 0}};
    wefti_fabric_post(&comm->fabric, path, &message);
    op->src += part;
    op->dst_offset += part;
    op->bytes -= part;
}

static size_t next_part(const wefti_mem_op *op)
{
    return op->bytes < WEFTI_P2P_SLOT_BYTES ? op->bytes : WEFTI_P2P_SLOT_BYTES;
}

/* Fetches a piece, and sends it at a later push. One put does at a time. */
static bool put_from_device(wefti_mem_op *op)
{
    weft_comm *comm = op->mem->comm;
    const size_t place = wefti_copy_place_of_mem(comm, false);
    unsigned char *bounce = wefti_copies_get_bounce(comm);
    if (!comm->fetcher) {
        comm->fetcher = op;
        wefti_copies_ask(comm, place, bounce, op->src, next_part(op));
    }
    if (comm->fetcher != op || !wefti_copies_are_done(comm, place) ||
        !wefti_fabric_has_room(&comm->fabric, path_to(op->peer))) {
        return false;
    }
    send_part(op, bounce, next_part(op));
    comm->fetcher = NULL;
    return true;
}

bool wefti_mem_remote_put(wefti_mem_op *op)
{
    weft_comm *comm = op->mem->comm;
    bool moved = false;
    while (op->bytes > 0 && !op->src_on_device &&
           wefti_fabric_has_room(&comm->fabric, path_to(op->peer))) {
        send_part(op, op->src, next_part(op));
        moved = true;
    }
    while (op->bytes > 0 && op->src_on_device && put_from_device(op)) {
        moved = true;
    }
    return moved;
}

bool wefti_mem_remote_signal(weft_mem *mem, int peer, int slot, uint64_t add)
{
    weft_comm *comm = mem->comm;
    wefti_fabric_path path = path_to(peer);
    if (!wefti_fabric_has_room(&comm->fabric, path)) {
        return false;
    }
    wefti_outgoing message = {.data = stage(comm, path),
                              .signature = {add, mem->id, (uint64_t)slot + 1}};
    wefti_fabric_post(&comm->fabric, path, &message);
    return true;
}

/* One message from source; whether it is done with. What is for a memory that
 * is gone is dropped, and nothing a peer sends is written beyond its end. */
static bool carry_out(weft_comm *comm, int source,
                      const wefti_incoming *message)
{
    const wefti_signature *words = &message->signature;
    weft_mem *mem = comm->mems;
    while (mem && mem->id != words->kind) {
        mem = mem->next;
    }
    if (!mem || words->cut > WEFT_MEM_SLOTS) {
        return true;
    }
    if (words->cut > 0) {
        atomic_fetch_add(
            wefti_mem_get_cell(mem, comm->rank, source, (int)words->cut - 1),
            words->count);
    } else if (words->count <= mem->bytes &&
               message->bytes <= mem->bytes - words->count) {
        if (mem->on_device) {
            return wefti_mem_lent_store(mem, source, words->count,
                                        message->data, message->bytes);
        }
        wefti_copy(wefti_mem_get_data(mem, comm->rank) + words->count,
                   message->data, message->bytes);
    }
    return true;
}

bool wefti_mem_remote_receive(weft_comm *comm)
{
    bool moved = false;
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (peer == comm->rank) {
            continue;
        }
        wefti_fabric_path path = path_to(peer);
        wefti_incoming message;
        for (int i = 0; i < MESSAGES_PER_PUSH &&
                        wefti_fabric_peek(&comm->fabric, path, &message,
                                          &comm->engine->due_ns) &&
                        carry_out(comm, peer, &message);
             i++) {
            wefti_fabric_release(&comm->fabric, path);
            moved = true;
        }
    }
    return moved;
}
