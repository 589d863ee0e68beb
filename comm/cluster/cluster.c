/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/cluster.c - hosts that have described themselves
 * (comm/make/hosts.h) need only be unpacked; otherwise they do so now.
 */
#include "comm/cluster/cluster.h"

#include "base/error.h"
#include "comm/core/core.h"
#include "comm/make/hosts.h"
#include "comm/net/net.h"
#include "comm/net/transports.h"
#include "topo/interfaces.h"
#include "topo/topo.h"

#include <stdlib.h>

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

static weft_status add_host(const unsigned char *packed, size_t bytes,
                            wefti_topo *all)
{
    wefti_topo *part;
    weft_status status = wefti_topo_unpack(packed, bytes, &part);
    if (status == WEFT_OK) {
        status = wefti_topo_merge(all, part);
        wefti_topo_destroy(part);
    }
    return status;
}

/* From what the hosts said when the ranks met; nothing is asked of others. */
static weft_status unpack_hosts(const weft_comm *comm, wefti_topo *all)
{
    weft_status status = WEFT_OK;
    for (int rank = 0; rank < comm->nranks && status == WEFT_OK; rank++) {
        size_t bytes = 0;
        if (leader_of(comm, rank) == rank) {
            const unsigned char *packed = find_description(comm, rank, &bytes);
            status = add_host(packed, bytes, all);
        }
    }
    return status;
}

/* Reads the hosts now, each by its lowest rank. */
static weft_status ask_hosts(weft_comm *comm, const wefti_live_config *live,
                             wefti_hosts *hosts, wefti_topo *all)
{
    weft_status read = WEFT_OK;
    if (leader_of(comm, comm->rank) == comm->rank) {
        read = pack_own(comm, live, &hosts->own.bytes, &hosts->own.byte_count);
        hosts->unreadable = read != WEFT_OK;
    }
    char why[512];
    snprintf(why, sizeof(why), "%s", read == WEFT_OK ? "" : weft_error_text());
    weft_status status = wefti_hosts_trade(comm, WEFTI_PURPOSE_USER, hosts);
    if (status == WEFT_OK && !hosts->complete) {
        return read == WEFT_OK
                   ? wefti_error(WEFT_ERR_SYSTEM,
                                 "rank %d could not read its machine",
                                 wefti_hosts_find_unreadable(hosts))
                   : wefti_error(read, "%s", why);
    }
    for (int rank = 0; rank < comm->nranks && status == WEFT_OK; rank++) {
        const int first = hosts->same_as[rank];
        if (first >= 0) {
            status = add_host(hosts->list[first].bytes,
                              hosts->list[first].byte_count, all);
        }
    }
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
    wefti_hosts *asked = NULL;
    weft_status status = wefti_topo_create(&cluster.topo);
    if (status == WEFT_OK) {
        status = cluster.hosts ? wefti_hosts_create(comm->nranks, &asked)
                               : wefti_error(WEFT_ERR_NO_MEMORY,
                                             "hosts of %d ranks", comm->nranks);
    }
    if (status != WEFT_OK) {
        goto err_cluster;
    }
    number_hosts(comm, &cluster);
    if (!live && find_description(comm, comm->rank, &known_bytes)) {
        status = unpack_hosts(comm, cluster.topo);
    } else {
        status = ask_hosts(comm, live, asked, cluster.topo);
    }
    if (status == WEFT_OK) {
        status = limit_ports(comm, &cluster);
    }
err_cluster:
    if (status != WEFT_OK) {
        wefti_cluster_close(&cluster);
    } else if (cluster.host_count == 1) {
        snprintf(cluster.topo->source, sizeof(cluster.topo->source), "live");
    } else {
        snprintf(cluster.topo->source, sizeof(cluster.topo->source),
                 "live, %d hosts of %d ranks", cluster.host_count,
                 comm->nranks);
    }
    wefti_hosts_destroy(asked);
    *cluster_out = cluster;
    return status;
}

void wefti_cluster_close(wefti_cluster *cluster)
{
    wefti_topo_destroy(cluster->topo);
    free(cluster->hosts);
    *cluster = (wefti_cluster){0};
}
