/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/seats.c - places the job's groups on the hosts that its processes
 * run on.
 *
 *     rank   0 1 2 3      on hosts a b a b: each pair of tp=2 would cross
 *     place  0 2 1 3      places lie host by host
 *     seat   0 2 1 3      rank 2 becomes rank 1: pairs stay in a host
 *
 * All ranks come to the same plan, from the same graph.
 */
#include "trainer/seats.h"

#include "base/error.h"
#include "comm/cluster/cluster.h"
#include "kernels/math/real.h"

#include <stdlib.h>
#include <string.h>

/* ---- what a step sends ----------------------------------------------------
 */

/* A ring over size ranks moves so much of a buffer in its two halves. */
static double twice_round(double size)
{
    return 2 * (size - 1) / size;
}

void wefti_seats_job(const wefti_config *config, size_t parameter_count,
                     int nranks, wefti_place_job *job_out)
{
    const wefti_mesh mesh = wefti_config_mesh(config, nranks);
    const int tp = mesh.tp, cp = mesh.cp, pp = mesh.pp;
    const double ep = mesh.ep, replicas = mesh.dp;
    /* Of ep what tp and cp hold stays as near as they do. */
    const int beyond = wefti_mesh_ep_of_dp(&mesh);
    const double layers = (double)config->model.layers / pp;
    const double hidden = (double)config->model.hidden_size;
    const double kv = 2 * hidden / (double)config->model.heads *
                      (double)config->model.kv_heads / tp;
    /* Of one rank in a step, and their activations between two layers. */
    const double tokens = (double)config->train.global_batch_size / replicas *
                          (double)config->model.seq_length / cp;
    const double elem_bytes =
        strcmp(config->model.dtype, "bf16") == 0 ? 2 : sizeof(real);
    const double activations = tokens * hidden * elem_bytes;
    *job_out =
        (wefti_place_job){.sizes = {tp, cp, beyond, mesh.dp / beyond, pp}};
    /* Two sums a layer forwards, two backwards. */
    job_out->bytes[WEFTI_AXIS_TP] = 4 * layers * twice_round(tp) * activations;
    /* Keys and values go round forwards and backwards, gradients once. */
    job_out->bytes[WEFTI_AXIS_CP] =
        3 * layers * (cp - 1) * tokens * kv * elem_bytes;
    /* To the experts and back, forwards and backwards, of each rank's rows. */
    job_out->bytes[WEFTI_AXIS_EP] =
        beyond > 1 ? 4 * layers * (double)config->model.experts_per_token *
                         activations / tp * (ep - 1) / ep
                   : 0;
    /* Gradients are reduced, parameters gathered. */
    job_out->bytes[WEFTI_AXIS_DP] =
        twice_round(replicas) * (double)parameter_count / ((double)tp * pp) *
        (sizeof(real) + elem_bytes) / 2;
    /* Forwards once, backwards once. */
    job_out->bytes[WEFTI_AXIS_PP] = pp > 1 ? 2 * activations : 0;
}

/* ---- where ranks are ------------------------------------------------------
 */

typedef struct seating {
    wefti_cluster cluster;
    wefti_paths *paths;
    wefti_levels *levels;
    wefti_placement placement;
    int *hosts; /* [nranks] of each place, not falling */
    int *now;   /* [nranks] the place of each rank */
} seating;

/* Places lie host by host, in each host in the order of ranks. */
static void list_places(seating *s, int nranks)
{
    int place = 0;
    for (int host = 0; host < s->cluster.host_count; host++) {
        for (int rank = 0; rank < nranks; rank++) {
            if (s->cluster.hosts[rank] == host) {
                s->hosts[place] = host;
                s->now[rank] = place++;
            }
        }
    }
}

static weft_status seating_init(seating *s, weft_comm *comm,
                                const wefti_place_job *job)
{
    int nranks = weft_comm_get_nranks(comm);
    *s = (seating){0};
    weft_status status = wefti_cluster_open(comm, NULL, &s->cluster);
    s->hosts = calloc((size_t)nranks, sizeof(*s->hosts));
    s->now = calloc((size_t)nranks, sizeof(*s->now));
    if (status == WEFT_OK && (!s->hosts || !s->now)) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "seats of %d ranks", nranks);
    }
    if (status == WEFT_OK) {
        list_places(s, nranks);
        status = wefti_paths_create(s->cluster.topo, &s->paths);
    }
    if (status == WEFT_OK) {
        status = wefti_levels_create_of(s->paths, s->hosts, nranks, &s->levels);
    }
    if (status == WEFT_OK) {
        wefti_place_job placed = *job;
        placed.now = s->now;
        status = wefti_place_plan(s->levels, &placed, &s->placement);
    }
    return status;
}

static void seating_fini(seating *s)
{
    wefti_placement_fini(&s->placement);
    wefti_levels_destroy(s->levels);
    wefti_paths_destroy(s->paths);
    wefti_cluster_close(&s->cluster);
    free(s->hosts);
    free(s->now);
}

/* The rank of the job that this place plays from now on. */
static int seat_of(const seating *s, int place)
{
    int seat = 0;
    while (s->placement.places[seat] != place) {
        seat++;
    }
    return seat;
}

static void print_seats(const seating *s, const wefti_place_job *job,
                        bool moved, FILE *file)
{
    int nranks = s->placement.rank_count;
    fprintf(file,
            "weft-train: %d ranks on %d hosts; bytes a step by level:", nranks,
            s->cluster.host_count);
    wefti_placement_print(s->levels, job, &s->placement, file);
    if (!moved) {
        fputs("Ranks stay as they were launched: nothing else sends less over "
              "slow links.\n",
              file);
        return;
    }
    fputs("Ranks launched as:", file);
    for (int rank = 0; rank < nranks && rank < 16; rank++) {
        fprintf(file, " %d>%d", rank, seat_of(s, s->now[rank]));
    }
    fputs(nranks > 16 ? " ..\n" : "\n", file);
}

weft_status wefti_seats_take(weft_comm *comm, const wefti_place_job *job,
                             FILE *out, weft_comm **comm_out)
{
    seating s;
    *comm_out = NULL;
    if (!wefti_cluster_is_wide(comm)) {
        return WEFT_OK;
    }
    weft_status status = seating_init(&s, comm, job);
    if (status == WEFT_OK) {
        bool moved = memcmp(s.placement.places, s.now,
                            (size_t)s.placement.rank_count * sizeof(int)) != 0;
        if (out) {
            print_seats(&s, job, moved, out);
        }
        if (moved) {
            int seat = seat_of(&s, s.now[weft_comm_get_rank(comm)]);
            status = weft_comm_split(comm, 0, seat, NULL, comm_out);
        }
    }
    seating_fini(&s);
    return status;
}
