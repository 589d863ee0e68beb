/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/expert_hosts.c - arithmetic over all ranks, the same on each.
 *
 *   ranks of ep     0  1 | 2  3        on two hosts
 *   experts         01 23  45 67       two parts of four
 */
#include "trainer/expert_hosts.h"

#include "base/error.h"
#include "comm/core/core.h"
#include "trainer/config/config_key.h"

/* Ranks that have all experts together, and those of one of them. */
typedef struct spread {
    wefti_mesh mesh;
    const weft_comm *comm;
    int nranks, parts;
} spread;

static int host_of(const spread *s, int rank)
{
    return s->comm->peers[rank].first;
}

static wefti_mesh_seat seat_of(const spread *s, int rank)
{
    return wefti_mesh_find(&s->mesh, WEFTI_MESH_EP, rank);
}

/* Hosts of the ranks that have the experts together with rank 0. */
static int count_hosts(const spread *s)
{
    int count = 0;
    for (int rank = 0; rank < s->nranks; rank++) {
        bool is_first = seat_of(s, rank).number == seat_of(s, 0).number;
        for (int other = 0; other < rank && is_first; other++) {
            is_first = seat_of(s, other).number != seat_of(s, 0).number ||
                       host_of(s, other) != host_of(s, rank);
        }
        count += is_first;
    }
    return count;
}

/* Whether two ranks have some of the same part of the experts. */
static bool share_part(const spread *s, int rank, int other)
{
    const wefti_mesh_seat a = seat_of(s, rank), b = seat_of(s, other);
    const int a_first = a.index * s->parts / a.size;
    const int b_first = b.index * s->parts / b.size;
    const int a_last = ((a.index + 1) * s->parts - 1) / a.size;
    const int b_last = ((b.index + 1) * s->parts - 1) / b.size;
    return a.number == b.number && a_first <= b_last && b_first <= a_last;
}

static weft_status check_parts(const spread *s, const wefti_config *config)
{
    for (int rank = 0; rank < s->nranks; rank++) {
        for (int other = 0; other < rank; other++) {
            if (share_part(s, rank, other) &&
                host_of(s, rank) != host_of(s, other)) {
                return wefti_config_refuse(
                    config, WEFT_ERR_INVALID, "moe", "nodes",
                    "parts of the experts: one is on ranks %d and %d, which "
                    "are on different hosts (moe.node_limit); allowed is as "
                    "many parts of equal size on each host",
                    other, rank);
            }
        }
    }
    return WEFT_OK;
}

static weft_status make_spread(spread *s, const wefti_config *config,
                               const weft_comm *comm)
{
    *s = (spread){.comm = comm, .nranks = weft_comm_get_nranks(comm)};
    const wefti_mesh sizes = wefti_config_mesh(config, s->nranks);
    return wefti_mesh_make(&sizes, s->nranks, &s->mesh);
}

weft_status wefti_expert_hosts_place(const wefti_config *config,
                                     const weft_comm *comm,
                                     weft_moe_place_config *how_out)
{
    const int ranks = (int)config->parallel.expert_model_parallel_size;
    spread s;
    weft_status status = make_spread(&s, config, comm);
    const int hosts = status == WEFT_OK ? count_hosts(&s) : 1;
    *how_out = (weft_moe_place_config){
        .size_bytes = sizeof(*how_out),
        .experts = (int)config->model.experts,
        .replicas = (int)config->model.experts,
        .ranks = ranks,
        .groups = config->moe.node_limit > 0 ? (int)config->moe.nodes : 1,
        .hosts = ranks % hosts == 0 ? hosts : 1};
    return status;
}

weft_status wefti_expert_hosts_settle(wefti_config *config,
                                      const weft_comm *comm)
{
    spread s;
    if (config->model.experts == 0 || config->moe.node_limit == 0) {
        return WEFT_OK;
    }
    weft_status status = make_spread(&s, config, comm);
    if (status != WEFT_OK) {
        return status;
    }
    if (config->moe.nodes == 0) {
        config->moe.nodes = count_hosts(&s);
        status = wefti_config_check_nodes(config);
    }
    const int64_t ranks = config->parallel.expert_model_parallel_size;
    if (status == WEFT_OK && config->moe.place_every > 0 &&
        ranks % count_hosts(&s) != 0) {
        return wefti_config_refuse(
            config, WEFT_ERR_UNSUPPORTED, "moe", "place_every",
            "is not possible in this version with moe.node_limit where %d "
            "hosts have %d ranks of the experts, not as many each; allowed is "
            "0",
            count_hosts(&s), (int)ranks);
    }
    s.parts = (int)config->moe.nodes;
    return status == WEFT_OK ? check_parts(&s, config) : status;
}
