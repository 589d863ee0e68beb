/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/cluster.c - hosts that have described themselves
 * (comm/make/hosts.h) need only be unpacked; otherwise sizes go round first,
 * then each host's graph.
 *
 *     rank         0        1        2        3
 *     shares with  0 1      0 1      2 3      2 3
 *     sizes        18 KiB   0        17 KiB   0       all-gather
 *     graphs       ------------ from 0, from 2 -----> broadcasts, merged
 */
#include "comm/cluster/cluster.h"

#include "base/error.h"
#include "comm/core/core.h"
#include "comm/make/hosts.h"
#include "comm/net/net.h"
#include "comm/net/transports.h"
#include "topo/interfaces.h"
#include "topo/topo.h"
#include "weft/op.h"

#include <stdlib.h>

/* In place of a size: the rank could not read its machine. */
#define UNREADABLE UINT64_MAX
/* Beyond any machine. */
#define GRAPH_BYTES_MOST ((uint64_t)64 << 20)

bool wefti_cluster_is_wide(const weft_comm *comm)
{
    return comm->local_count < comm->nranks;
}

/* The lowest rank of the communicator that shares memory with it. */
static int leader_of(const weft_comm *comm, int rank)
{
    const wefti_membership *members = comm->engine->members;
    for (int other = 0; other < rank; other++) {
        const wefti_member *table = members ? members->members : NULL;
        if (!table || table[comm->peers[other].world_rank].domain ==
                          table[comm->peers[rank].world_rank].domain) {
            return other;
        }
    }
    return rank;
}

/* Each rank's host, numbered in the order of their leaders. */
static void number_hosts(const weft_comm *comm, wefti_cluster *cluster)
{
    for (int rank = 0; rank < comm->nranks; rank++) {
        int leader = leader_of(comm, rank);
        cluster->hosts[rank] =
            leader == rank ? cluster->host_count++ : cluster->hosts[leader];
    }
}

/* The network module is asked where it is open anyway. */
static weft_status pack_own(const weft_comm *comm,
                            const wefti_live_config *live,
                            unsigned char **bytes_out, size_t *byte_count_out)
{
    wefti_topo *own;
    wefti_transports transports;
    weft_status status = wefti_topo_open_live(live, &own);
    if (status == WEFT_OK) {
        if (comm->fabric.net) {
            wefti_transports_list(comm->engine->net->library, &transports);
            wefti_transports_note(&transports, own);
        }
        status = wefti_topo_pack(own, bytes_out, byte_count_out);
        wefti_topo_destroy(own);
    }
    return status;
}

/* Everybody learns how long each graph is, and who has none to give. */
static weft_status trade_sizes(weft_comm *comm, weft_status own_status,
                               size_t own_bytes, uint64_t *sizes)
{
    uint64_t own = own_status == WEFT_OK ? own_bytes : UNREADABLE;
    weft_status status =
        weft_allgather(&own, sizes, 1, WEFT_DTYPE_U64, comm, NULL);
    for (int rank = 0; rank < comm->nranks && status == WEFT_OK; rank++) {
        if (sizes[rank] > GRAPH_BYTES_MOST) {
            return rank == comm->rank && own_status != WEFT_OK
                       ? own_status /* with its own text */
                       : wefti_error(WEFT_ERR_SYSTEM,
                                     "rank %d could not read its machine",
                                     rank);
        }
    }
    return status;
}

/* One host's graph, from the rank that has it to all. */
static weft_status take_graph(weft_comm *comm, int from, uint64_t bytes,
                              unsigned char *graph, wefti_topo *all)
{
    wefti_topo *part;
    weft_status status = weft_broadcast(graph, graph, (size_t)bytes,
                                        WEFT_DTYPE_U8, from, comm, NULL);
    if (status == WEFT_OK) {
        status = wefti_topo_unpack(graph, (size_t)bytes, &part);
    }
    if (status == WEFT_OK) {
        status = wefti_topo_merge(all, part);
        wefti_topo_destroy(part);
    }
    return status;
}

static weft_status trade_graphs(weft_comm *comm, const uint64_t *sizes,
                                unsigned char *own, wefti_topo *all)
{
    weft_status status = WEFT_OK;
    for (int rank = 0; rank < comm->nranks && status == WEFT_OK; rank++) {
        if (sizes[rank] == 0) {
            continue;
        }
        unsigned char *graph =
            rank == comm->rank ? own : malloc((size_t)sizes[rank]);
        status = graph
                     ? take_graph(comm, rank, sizes[rank], graph, all)
                     : wefti_error(WEFT_ERR_NO_MEMORY, "a graph of %llu bytes",
                                   (unsigned long long)sizes[rank]);
        if (graph != own) {
            free(graph);
        }
    }
    return status;
}

/* Its own, and the same on every rank, wherever it was described. */
static const unsigned char *find_description(const weft_comm *comm, int rank,
                                             size_t *bytes_out)
{
    const wefti_membership *members = comm->engine->members;
    if (!members) {
        return NULL;
    }
    int leader = members->members[comm->peers[rank].world_rank].domain;
    return wefti_hosts_find(comm->engine, leader, bytes_out);
}

/* From what the hosts said when the ranks met; nothing is asked of others. */
static weft_status unpack_hosts(const weft_comm *comm, wefti_topo *all)
{
    weft_status status = WEFT_OK;
    for (int rank = 0; rank < comm->nranks && status == WEFT_OK; rank++) {
        wefti_topo *part;
        size_t bytes = 0;
        if (leader_of(comm, rank) != rank) {
            continue;
        }
        const unsigned char *packed = find_description(comm, rank, &bytes);
        status = wefti_topo_unpack(packed, bytes, &part);
        if (status == WEFT_OK) {
            status = wefti_topo_merge(all, part);
            wefti_topo_destroy(part);
        }
    }
    return status;
}

/* Reads the hosts now, each by its lowest rank. */
static weft_status ask_hosts(weft_comm *comm, const wefti_live_config *live,
                             uint64_t *sizes, wefti_topo *all)
{
    unsigned char *own = NULL;
    size_t own_bytes = 0;
    weft_status read = WEFT_OK;
    if (leader_of(comm, comm->rank) == comm->rank) {
        read = pack_own(comm, live, &own, &own_bytes);
    }
    weft_status status = trade_sizes(comm, read, own_bytes, sizes);
    if (status == WEFT_OK) {
        status = trade_graphs(comm, sizes, own, all);
    }
    free(own);
    return status;
}

/* What ranks may send is rank 0's setting. */
static weft_status limit_ports(const weft_comm *comm, wefti_cluster *cluster)
{
    if (comm->tuning.emulate_gbps <= 0) {
        return WEFT_OK;
    }
    int *counts = calloc((size_t)cluster->host_count, sizeof(*counts));
    if (!counts) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "ranks of %d hosts",
                           cluster->host_count);
    }
    for (int rank = 0; rank < comm->nranks; rank++) {
        counts[cluster->hosts[rank]]++;
    }
    wefti_nics_limit_ranks(cluster->topo, comm->tuning.emulate_gbps, counts);
    free(counts);
    return WEFT_OK;
}

weft_status wefti_cluster_open(weft_comm *comm, const wefti_live_config *live,
                               wefti_cluster *cluster_out)
{
    size_t known_bytes;
    wefti_cluster cluster = {.hosts =
                                 calloc((size_t)comm->nranks, sizeof(int))};
    uint64_t *sizes = calloc((size_t)comm->nranks, sizeof(*sizes));
    weft_status status = wefti_topo_create(&cluster.topo);
    if (status == WEFT_OK && (!cluster.hosts || !sizes)) {
        status =
            wefti_error(WEFT_ERR_NO_MEMORY, "hosts of %d ranks", comm->nranks);
    }
    if (status != WEFT_OK) {
        goto err_cluster;
    }
    number_hosts(comm, &cluster);
    if (!live && find_description(comm, comm->rank, &known_bytes)) {
        status = unpack_hosts(comm, cluster.topo);
    } else {
        status = ask_hosts(comm, live, sizes, cluster.topo);
    }
    if (status == WEFT_OK) {
        status = limit_ports(comm, &cluster);
    }
err_cluster:
    free(sizes);
    if (status != WEFT_OK) {
        wefti_cluster_close(&cluster);
    } else if (cluster.host_count == 1) {
        snprintf(cluster.topo->source, sizeof(cluster.topo->source), "live");
    } else {
        snprintf(cluster.topo->source, sizeof(cluster.topo->source),
                 "live, %d hosts of %d ranks", cluster.host_count,
                 comm->nranks);
    }
    *cluster_out = cluster;
    return status;
}

void wefti_cluster_close(wefti_cluster *cluster)
{
    wefti_topo_destroy(cluster->topo);
    free(cluster->hosts);
    *cluster = (wefti_cluster){0};
}
