/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/remains.c - one block for each communicator that left messages
 * behind: held mappings, and which peers the messages are for.
 */
#include "comm/make/remains.h"

#include "base/log.h"
#include "comm/net/net.h"

#include <fcntl.h>
#include <stdlib.h>

/* held [count]: retained. */
typedef struct remains {
    wefti_net_sent sent;
    wefti_shared_header *header;
    int memory_fd, local_count;
    uint64_t offset, bytes;
    size_t held_count;
    wefti_mapping **held;
} remains;

/* Gives the memory of a split back when the last one of the domain leaves. */
static void give_back_memory(const remains *own)
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
    remains *own = context;
    give_back_memory(own);
    for (size_t i = 0; i < own->held_count; i++) {
        wefti_mapping_close(own->held[i]);
    }
    free(own->held);
    free(own->sent.peers);
    free(own);
}

static void hold(remains *own, wefti_mapping *mapping)
{
    if (mapping) {
        own->held[own->held_count++] = wefti_mapping_retain(mapping);
    }
}

/* What is still to be sent lies in this rank's region, or is staged for a rank
 * of another domain. */
static void hold_all(remains *own, const weft_comm *comm)
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

/* The port may read them until the process ends. */
static void hold_for_ever(const weft_comm *comm)
{
    (void)wefti_mapping_retain(comm->mapping);
    if (comm->fabric.mirrors) {
        (void)wefti_mapping_retain(comm->fabric.mirrors);
    }
    for (int i = 0; i < comm->nranks * WEFTI_P2P_AREAS; i++) {
        wefti_mapping *outgoing = wefti_fabric_get_outgoing(
            &comm->fabric, i / WEFTI_P2P_AREAS, i % WEFTI_P2P_AREAS);
        if (outgoing) {
            (void)wefti_mapping_retain(outgoing);
        }
    }
}

static remains of(const weft_comm *comm)
{
    return (remains){.header = comm->fabric.shared.header,
                     .memory_fd = comm->engine->members
                                      ? comm->engine->members->memory_fd
                                      : -1,
                     .local_count = comm->local_count,
                     .offset = comm->memory_offset,
                     .bytes = comm->fabric.shared.layout.total_bytes};
}

void wefti_remains_leave(weft_comm *comm)
{
    const remains plain = of(comm);
    const size_t ranks = (size_t)comm->nranks;
    if (!comm->fabric.net) {
        give_back_memory(&plain);
        return;
    }
    remains *own = malloc(sizeof(*own));
    wefti_mapping **held =
        calloc(2 + ranks * WEFTI_P2P_AREAS, sizeof(wefti_mapping *));
    int *peers = calloc(ranks, sizeof(*peers));
    if (!own || !held || !peers) {
        wefti_log(WEFTI_LOG_WARN, comm->rank,
                  "no memory to wait for what \"%s\" has sent", comm->name);
        free(own);
        free(held);
        free(peers);
        hold_for_ever(comm);
        return;
    }
    *own = plain;
    own->held = held;
    own->sent =
        (wefti_net_sent){.done = finish, .context = own, .peers = peers};
    hold_all(own, comm);
    pthread_mutex_lock(&comm->engine->lock);
    const bool later = wefti_net_when_sent(comm->engine->net, &own->sent);
    pthread_mutex_unlock(&comm->engine->lock);
    if (!later) {
        finish(own);
    }
}
