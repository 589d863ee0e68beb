/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/rings.c - which speed and which kinds of paths carry the most.
 *
 * Over all speeds the largest sum wins, of equals the fewest rings.
 */
#include "topo/rings.h"

#include "base/check.h"
#include "base/error.h"
#include "topo/ring_capacity.h"
#include "topo/ring_search.h"

#include <math.h>
#include <stdlib.h>

#define ROUNDING      1e-6
#define FALLBACK_GBps 0.1
/* Searches for one speed, each with another order of equals. */
#define ATTEMPTS_MOST 12
/* At least so many speeds get their share of the steps. */
#define SPEEDS_TRIED 5
/* Steps of all searches for one kind of paths, until something is found, and of
 * all that search for more from then on: what bounds the time of a plan. A
 * share for each kind, lest a narrow one that has no answer leaves none for a
 * wider one that has. */
#define FIRST_STEPS_MOST (1 << 16)
#define MORE_STEPS_MOST  (1 << 16)
/* A step visits all GPUs: over more than these there are fewer steps. */
#define GPUS_OF_ALL_STEPS 96

/* NCCL's lists; below 3 GB/s within a host, where it ends its search, our
 * own. */
static const double slow_speeds[] = {40, 30, 20, 18, 15, 12,  10, 9,   7,
                                     6,  5,  4,  3,  2,  1.5, 1,  0.5, 0.25};
static const double sm90_speeds[] = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
static const double sm100_speeds[] = {90, 80, 70, 60, 50, 45, 40, 30,
                                      24, 20, 19, 18, 15, 12, 6,  3};
static const double net_slow_speeds[] = {
    48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12};
static const double net_sm90_speeds[] = {
    48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12};
static const double net_sm100_speeds[] = {96, 48, 45.1, 42,   40,   30,
                                          24, 22, 20,   17.5, 15,   12,
                                          6,  3,  2.4,  1.2,  0.24, 0.12};

typedef struct speeds {
    const double *list;
    int count;
} speeds;

#define SPEEDS(list) ((speeds){list, (int)WEFTI_COUNT_OF(list)})

static bool by_net(const wefti_ring_search *s)
{
    return s->shape == WEFTI_SHAPE_NET || s->shape == WEFTI_SHAPE_TREE;
}

static speeds speeds_of(const wefti_ring_search *s)
{
    const wefti_topo *topo = s->paths->topo;
    int sm = 1000;
    for (int i = 0; i < s->gpu_count; i++) {
        const wefti_gpu *gpu = &topo->devices[s->paths->gpus[s->gpus[i]]].gpu;
        int own = gpu->amd ? 0 : gpu->sm;
        sm = own < sm ? own : sm;
    }
    if (by_net(s)) {
        return sm >= 100  ? SPEEDS(net_sm100_speeds)
               : sm >= 90 ? SPEEDS(net_sm90_speeds)
                          : SPEEDS(net_slow_speeds);
    }
    return sm >= 100  ? SPEEDS(sm100_speeds)
           : sm >= 90 ? SPEEDS(sm90_speeds)
                      : SPEEDS(slow_speeds);
}

static void keep(wefti_ring_search *s, wefti_rings *best)
{
    best->channels = best->distinct = s->ring_count;
    best->GBps = s->speed;
    best->type = WEFTI_PATH_LOC;
    best->nic_type = by_net(s) ? WEFTI_PATH_LOC : WEFTI_PATH_DIS;
    for (int r = 0; r < s->ring_count; r++) {
        const int *order = s->orders + r * s->gpu_count;
        for (int i = 0; i < s->gpu_count; i++) {
            int next = order[(i + 1) % s->gpu_count];
            best->orders[r * s->gpu_count + i] = s->gpus[order[i]];
            if (i + 1 < s->gpu_count || s->shape == WEFTI_SHAPE_RING) {
                wefti_path_type type = wefti_ring_path_type(s, order[i], next);
                best->type = type > best->type ? type : best->type;
            }
        }
        best->nics[r] = s->nics[r];
        best->exits[r] = s->exits[r];
        for (int end = 0; end < 2 && by_net(s); end++) {
            bool at_end = end && s->shape == WEFTI_SHAPE_NET;
            int gpu = s->gpus[order[at_end ? s->gpu_count - 1 : 0]];
            int nic = end ? s->exits[r] : s->nics[r];
            wefti_path_type type = wefti_path_gpu_nic(s->paths, gpu, nic).type;
            best->nic_type = type > best->nic_type ? type : best->nic_type;
        }
    }
    best->most_use = wefti_ring_capacity_use(s);
    WEFTI_ASSERT(best->most_use <= 1 + 1e-4);
}

/* ---- all speeds -----------------------------------------------------------
 */

static double best_path(const wefti_ring_search *s)
{
    double best = s->gpu_count == 1 ? 5000 : 0;
    for (int a = 0; a < s->gpu_count; a++) {
        for (int b = 0; b < s->gpu_count; b++) {
            if (a != b) {
                best = fmax(best,
                            wefti_path_gpu_gpu(s->paths, s->gpus[a], s->gpus[b])
                                .nccl_GBps);
            }
        }
    }
    return best;
}

/* What leaves one GPU in one direction. */
static double leaving(const wefti_ring_search *s, int gpu)
{
    double sum = 0;
    for (int i = s->ends[gpu]; i < s->ends[gpu + 1]; i++) {
        sum += s->paths->topo->links[s->leaves[i] / 2].nccl_GBps;
    }
    return sum;
}

/* So much of it as whole rings of that speed take. */
static double whole(double GBps, double speed)
{
    return floor((GBps + ROUNDING) / speed) * speed;
}

/* The most that all rings of that speed can ask together: what leaves the
 * poorest GPU, and all NICs; of a chain no link leaves its last GPU. */
static double bound(const wefti_ring_search *s, double speed)
{
    double least = 1e9, all = 0, nics = 0;
    bool chain = s->shape == WEFTI_SHAPE_CHAIN || s->shape == WEFTI_SHAPE_TREE;
    for (int i = 0; i < s->gpu_count && s->gpu_count > 1; i++) {
        double own = whole(leaving(s, i), speed);
        least = fmin(least, own);
        all += own;
    }
    if (chain && s->gpu_count > 1) {
        least = all / (s->gpu_count - 1);
    }
    for (int i = 0; i < s->nic_count; i++) {
        const wefti_device *nic =
            &s->paths->topo->devices[s->paths->nics[s->nics_all[i]]];
        nics += whole(nic->nic.gbps / 8, speed);
    }
    return by_net(s) ? fmin(least, nics) : least;
}

/* What rings of that speed must bring to be better: of many slow ones, a
 * quarter more than the few fast ones that were found. NCCL searches for none
 * below 0.49 of their speed. */
static double asked_of(const wefti_rings *best, double speed)
{
    double total = best->channels * best->GBps;
    return speed < 0.49 * best->GBps ? 1.25 * total : total;
}

static void try_speeds(wefti_ring_search *s, wefti_rings *best)
{
    speeds all = speeds_of(s);
    double fastest = best_path(s);
    for (int i = 0; i < all.count; i++) {
        double total = asked_of(best, all.list[i]);
        double most = bound(s, all.list[i]);
        if (all.list[i] > fastest + ROUNDING || total >= most - ROUNDING ||
            s->all_steps > s->steps_most ||
            WEFTI_RINGS_MOST * all.list[i] <= total ||
            !wefti_ring_search_may_fit(s, all.list[i])) {
            continue;
        }
        int own_most = s->all_steps + s->steps_most / SPEEDS_TRIED;
        for (s->attempt = 0; s->attempt < ATTEMPTS_MOST; s->attempt++) {
            int found = wefti_ring_search_pack(s, all.list[i]);
            if (found * s->speed > asked_of(best, s->speed) + ROUNDING) {
                keep(s, best);
            }
            if (found == 0 || (found + 1) * s->speed > most + ROUNDING ||
                s->all_steps > own_most) {
                break;
            }
        }
    }
}

static const wefti_path_type gpu_limits[] = {
    WEFTI_PATH_XGMI, WEFTI_PATH_XGB, WEFTI_PATH_C2C, WEFTI_PATH_PIX,
    WEFTI_PATH_PXB,  WEFTI_PATH_PHB, WEFTI_PATH_SYS};
static const wefti_path_type nic_limits[] = {WEFTI_PATH_PXB, WEFTI_PATH_PXN,
                                             WEFTI_PATH_PHB, WEFTI_PATH_SYS};

static int steps_for(const wefti_ring_search *s, int steps)
{
    return s->gpu_count <= GPUS_OF_ALL_STEPS
               ? steps
               : (int)((int64_t)steps * GPUS_OF_ALL_STEPS / s->gpu_count);
}

/* Ever wider types of paths, until rings are found. Rings that cross NICs
 * come last, as NCCL has it, and only for more than the others bring. */
static void try_types(wefti_ring_search *s, wefti_rings *best)
{
    size_t nic_count = by_net(s) ? WEFTI_COUNT_OF(nic_limits) : 1;
    int first = steps_for(s, FIRST_STEPS_MOST);
    int more = steps_for(s, MORE_STEPS_MOST);
    for (size_t i = 0; i < WEFTI_COUNT_OF(gpu_limits); i++) {
        s->limit = gpu_limits[i];
        for (int cross = 0; cross <= (s->shape == WEFTI_SHAPE_NET); cross++) {
            bool found_before = best->channels > 0;
            s->steps_most = !found_before ? first : more / 2;
            s->all_steps = 0;
            s->crossing = cross;
            for (size_t j = 0; j < nic_count; j++) {
                s->nic_limit = nic_limits[j];
                try_speeds(s, best);
            }
            more -= found_before ? s->all_steps : 0;
        }
    }
}

/* NCCL runs two channels where one is fast, to fill it. */
static void double_channels(const wefti_ring_search *s, wefti_rings *rings)
{
    const wefti_topo *topo = s->paths->topo;
    const wefti_gpu *gpu = &topo->devices[s->paths->gpus[s->gpus[0]]].gpu;
    bool keeps =
        gpu->amd || (gpu->sm > 80 && rings->GBps < 50 && rings->channels > 4);
    if (rings->GBps >= 25 && !keeps &&
        2 * rings->channels <= WEFTI_RINGS_MOST) {
        rings->channels *= 2;
        rings->GBps /= 2;
    }
}

/* Nothing fits: one ring in the order of ranks, as slow as NCCL says. */
static void fall_back(const wefti_ring_search *s, wefti_rings *rings)
{
    rings->channels = rings->distinct = 1;
    rings->GBps = FALLBACK_GBps;
    rings->type = WEFTI_PATH_SYS;
    rings->nic_type = by_net(s) ? WEFTI_PATH_SYS : WEFTI_PATH_DIS;
    rings->nics[0] = rings->exits[0] = -1;
    for (int i = 0; i < s->gpu_count; i++) {
        rings->orders[i] = s->gpus[i];
    }
}

static weft_status plan(const wefti_paths *paths, int host,
                        wefti_ring_shape shape, wefti_rings *rings_out)
{
    wefti_ring_search s;
    int gpus = paths->cliques[paths->host_cliques[host]].gpu_count;
    *rings_out = (wefti_rings){.gpu_count = gpus, .type = WEFTI_PATH_DIS};
    rings_out->nic_type = WEFTI_PATH_DIS;
    if (gpus == 0 || wefti_rings_too_large(rings_out)) {
        return WEFT_OK;
    }
    rings_out->orders = calloc((size_t)gpus * WEFTI_RINGS_MOST, sizeof(int));
    weft_status status = wefti_ring_search_init(&s, paths, host, shape);
    if (!rings_out->orders && status == WEFT_OK) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "rings over %d GPUs", gpus);
    }
    if (status == WEFT_OK) {
        bool joins = gpus > 1 || by_net(&s);
        if (joins) {
            try_types(&s, rings_out);
        }
        if (joins && rings_out->channels == 0) {
            fall_back(&s, rings_out);
        }
        double_channels(&s, rings_out);
    }
    wefti_ring_search_fini(&s);
    if (status != WEFT_OK) {
        wefti_rings_fini(rings_out);
    }
    return status;
}

weft_status wefti_rings_plan(const wefti_paths *paths, int host,
                             wefti_rings *rings_out)
{
    return plan(paths, host, WEFTI_SHAPE_RING, rings_out);
}

weft_status wefti_rings_plan_net(const wefti_paths *paths, int host,
                                 wefti_rings *rings_out)
{
    return plan(paths, host, WEFTI_SHAPE_NET, rings_out);
}

weft_status wefti_chains_plan(const wefti_paths *paths, int host,
                              wefti_rings *rings_out)
{
    return plan(paths, host, WEFTI_SHAPE_CHAIN, rings_out);
}

weft_status wefti_chains_plan_net(const wefti_paths *paths, int host,
                                  wefti_rings *rings_out)
{
    return plan(paths, host, WEFTI_SHAPE_TREE, rings_out);
}

bool wefti_rings_too_large(const wefti_rings *rings)
{
    return rings->gpu_count > WEFTI_RING_GPUS_MOST;
}

void wefti_rings_fini(wefti_rings *rings)
{
    free(rings->orders);
    *rings = (wefti_rings){0};
}
