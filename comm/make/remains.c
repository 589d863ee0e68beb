/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/remains.c - one block for each communicator that left messages
 * behind: held mappings, and which peers the messages are for.
 */
#include "comm/make/remains.h"

#include "base/error.h"
#include "comm/net/net.h"

#include <fcntl.h>
#include <stdlib.h>

/* held: retained. */
struct wefti_remains {
    wefti_net_sent sent;
    wefti_shared_header *header;
    int memory_fd, local_count;
    uint64_t offset, bytes;
    size_t held_count;
    wefti_mapping **held;
};

/* Gives the memory of a split back when the last one of the domain leaves. */
static void give_back_memory(const wefti_remains *own)
{
    const int gone = (int)atomic_fetch_add(&own->header->gone, 1) + 1;
    if (gone == own->local_count && own->offset > 0) {
        /* Failure costs memory until the job ends, nothing else. */
        int refused = fallocate(own->memory_fd,
                                FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                (off_t)own->offset, (off_t)own->bytes);
        (void)refused;
    }
}

static void finish(void *context)
{
    wefti_remains *own = context;
    give_back_memory(own);
    for (size_t i = 0; i < own->held_count; i++) {
        wefti_mapping_close(own->held[i]);
    }
    wefti_remains_free(own);
}

static void hold(wefti_remains *own, wefti_mapping *mapping)
{
    if (mapping) {
        own->held[own->held_count++] = wefti_mapping_retain(mapping);
    }
}

/* What is still to be sent lies in this rank's region, or is staged for a rank
 * of another domain. */
static void hold_all(wefti_remains *own, const weft_comm *comm)
{
    const wefti_fabric *fabric = &comm->fabric;
    hold(own, comm->mapping);
    hold(own, fabric->mirrors);
    for (int peer = 0; peer < comm->nranks; peer++) {
        for (int area = 0; area < WEFTI_P2P_AREAS; area++) {
            hold(own, wefti_fabric_get_outgoing(fabric, peer, area));
        }
        if (wefti_fabric_is_remote(fabric, peer)) {
            own->sent.peers[own->sent.peer_count++] =
                comm->peers[peer].world_rank;
        }
    }
}

weft_status wefti_remains_prepare(weft_comm *comm)
{
    const size_t ranks = (size_t)comm->nranks;
    wefti_remains *own = calloc(1, sizeof(*own));
    comm->remains = own;
    if (own) {
        own->held =
            calloc(2 + ranks * WEFTI_P2P_AREAS, sizeof(wefti_mapping *));
        own->sent.peers = calloc(ranks, sizeof(*own->sent.peers));
        comm->fabric.unsent = &own->sent.unsent;
    }
    return own && own->held && own->sent.peers
               ? WEFT_OK
               : wefti_error(WEFT_ERR_NO_MEMORY,
                             "no memory for messages to %d ranks",
                             comm->nranks);
}

void wefti_remains_free(wefti_remains *own)
{
    if (own) {
        free(own->held);
        free(own->sent.peers);
        free(own);
    }
}

static void describe(wefti_remains *own, const weft_comm *comm)
{
    own->header = comm->fabric.shared.header;
    own->memory_fd =
        comm->engine->members ? comm->engine->members->memory_fd : -1;
    own->local_count = comm->local_count;
    own->offset = comm->memory_offset;
    own->bytes = comm->fabric.shared.layout.total_bytes;
}

void wefti_remains_leave(weft_comm *comm)
{
    wefti_remains plain, *own = comm->remains;
    if (!comm->fabric.net) {
        describe(&plain, comm);
        give_back_memory(&plain);
        return;
    }
    comm->remains = NULL; /* finish frees it */
    describe(own, comm);
    own->sent.done = finish;
    own->sent.context = own;
    hold_all(own, comm);
    pthread_mutex_lock(&comm->engine->lock);
    const bool later = wefti_net_when_sent(comm->engine->net, &own->sent);
    pthread_mutex_unlock(&comm->engine->lock);
    if (!later) {
        finish(own);
    }
}
