/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/mem/mem_lent.c - device memory that was there already: who writes to
 * whose by itself.
 *
 *   all-gather cards   where each rank's memory lies, and who can use it
 *   meet               this rank's device reaches what it can of them
 *
 * Whether a rank's puts to another are messages is known from the two ranks'
 * cards alone, so both know it. What should be reached and is not sets all
 * ranks apart (mem.c).
 */
#include "base/error.h"
#include "base/log.h"
#include "comm/engine/copies.h"
#include "comm/mem/mem.h"
#include "comm/streams/lent.h"
#include "kernels/wire/reduce.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* What a rank says of its memory, and of its device. */
typedef struct card {
    int32_t status;     /* WEFT_OK: the consensus' own */
    bool on_device;     /* its memory is its device's */
    bool copies, opens; /* its device copies, also from other processes */
    wefti_lent lent;
} card;

static_assert(sizeof(card) <= sizeof(wefti_verdict),
              "comm->table has room for one of each rank");

static card make_card(const weft_mem *mem)
{
    const weft_comm *comm = mem->comm;
    card own = {.on_device = mem->on_device, .copies = comm->copies != NULL};
    if (own.copies) {
        own.opens = wefti_device_can(comm->device, WEFT_CAP_IPC);
        if (wefti_lent_offer(comm, mem->on_device ? mem->own : NULL,
                             &own.lent) != WEFT_OK) {
            wefti_log(WEFTI_LOG_INFO, comm->rank,
                      "\"%s\", memory #%llu: other processes cannot open it, "
                      "and put into it by messages: %s",
                      comm->name, (unsigned long long)mem->id,
                      weft_error_text());
        }
    }
    return own;
}

/* Why the one rank's puts into the other's memory are messages; NULL: they are
 * copies of its device; empty: it is host memory. One of the two is this rank,
 * the other peer. */
static const char *find_obstacle(const weft_mem *mem, int peer,
                                 const card *from, const card *to)
{
    const weft_comm *comm = mem->comm;
    const wefti_membership *job = comm->engine->members;
    const bool to_self = to == (const card *)comm->table + comm->rank;
    if (!to->on_device) {
        return "";
    }
    if (!wefti_membership_is_local(job, comm->peers[peer].world_rank)) {
        return "they are on two hosts";
    }
    if (!from->copies) {
        return "the one has no device that could";
    }
    if (mem->bytes < (size_t)comm->nranks) {
        return "it has fewer bytes than there are ranks";
    }
    if (wefti_lent_is_beside(comm, to_self ? &from->lent : &to->lent)) {
        return from->lent.kind == to->lent.kind
                   ? NULL
                   : "their devices are of two kinds";
    }
    return from->opens && to->lent.shared
               ? NULL
               : "they are two processes, and these share no such memory";
}

static void report(const weft_mem *mem, int count, int first, const char *why)
{
    wefti_log(WEFTI_LOG_INFO, mem->comm->rank,
              "\"%s\", memory #%llu: what is put into the device memory of %d "
              "rank%s goes by messages; that of rank %d, as %s",
              mem->comm->name, (unsigned long long)mem->id, count,
              count == 1 ? "" : "s", first, why);
}

/* The cards are in comm->table, which no call here uses. The first rank whose
 * memory should be within reach and is not ends it. */
static weft_status meet(weft_mem *mem)
{
    weft_comm *comm = mem->comm;
    const card *cards = comm->table, *own = &cards[comm->rank];
    const char *why = NULL;
    int first = -1, obstacles = 0;
    weft_status status = WEFT_OK;
    for (int peer = 0; peer < comm->nranks; peer++) {
        wefti_mem_reach *reach = &mem->reaches[peer];
        const card *theirs = &cards[peer];
        if (peer == comm->rank) {
            continue;
        }
        const char *put = find_obstacle(mem, peer, own, theirs);
        const char *take = find_obstacle(mem, peer, theirs, own);
        if (put && *put && obstacles++ == 0) {
            first = peer;
            why = put;
        }
        reach->writes = !take;
        mem->messages |= put || take;
        if (!put && status == WEFT_OK) {
            void *data = NULL;
            status = wefti_lent_reach(comm, peer, &theirs->lent, &data,
                                      &reach->imported);
            reach->data = status == WEFT_OK ? data : NULL;
        }
    }
    if (obstacles) {
        report(mem, obstacles, first, why);
    }
    return status;
}

weft_status wefti_mem_lent_meet(weft_mem *mem, wefti_consensus *consensus)
{
    const card own = make_card(mem);
    weft_status status = wefti_consensus_exchange(consensus, &own, sizeof(own));
    if (status != WEFT_OK) {
        return status;
    }
    mem->messages = false;
    mem->reached = meet(mem);
    snprintf(mem->why, sizeof(mem->why), "%s",
             mem->reached ? weft_error_text() : "");
    return WEFT_OK;
}

void wefti_mem_lent_part(weft_mem *mem)
{
    weft_comm *comm = mem->comm;
    for (int peer = 0; mem->reaches && peer < comm->nranks; peer++) {
        wefti_mem_reach *reach = &mem->reaches[peer];
        if (reach->imported) {
            weft_device_unimport(comm->device, reach->data);
        }
        *reach = (wefti_mem_reach){0};
    }
}

bool wefti_mem_lent_put(wefti_mem_op *op)
{
    weft_comm *comm = op->mem->comm;
    const size_t place = wefti_copy_place_of_mem(comm, false);
    const size_t part = op->bytes < WEFTI_P2P_SLOT_BYTES
                            ? op->bytes
                            : (size_t)WEFTI_P2P_SLOT_BYTES;
    if (!comm->fetcher) {
        void *bounce = wefti_copies_get_bounce(comm);
        comm->fetcher = op;
        wefti_copy(bounce, op->src, part);
        wefti_copies_ask(comm, place,
                         wefti_mem_get_data(op->mem, op->peer) + op->dst_offset,
                         bounce, part);
    }
    if (comm->fetcher != op || !wefti_copies_are_done(comm, place)) {
        return false;
    }
    op->src += part;
    op->dst_offset += part;
    op->bytes -= part;
    comm->fetcher = NULL;
    return true;
}

bool wefti_mem_lent_store(weft_mem *mem, int source, size_t offset,
                          const void *data, size_t bytes)
{
    weft_comm *comm = mem->comm;
    const size_t place = wefti_copy_place_of_mem(comm, true);
    if (!comm->stored) {
        comm->stored = mem;
        comm->stored_from = source;
        wefti_copies_ask(comm, place, mem->own + offset, data, bytes);
    }
    if (comm->stored != mem || comm->stored_from != source ||
        !wefti_copies_are_done(comm, place)) {
        return false;
    }
    comm->stored = NULL;
    return true;
}
