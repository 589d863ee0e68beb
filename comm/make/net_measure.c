/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/net_measure.c - who tries the network with whom, and what becomes
 * of it.
 */
#include "comm/make/net_measure.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/net/net.h"
#include "comm/post/post.h"

#include <stdlib.h>

/* Two thirds of the limit at most, where the network is not very slow. */
static const wefti_net_effort whole = {.pings = 20,
                                       .bursts = 4,
                                       .repeats = 3,
                                       .most_bytes = WEFTI_TRIAL_MOST_BYTES,
                                       .limit_ns = 40000000};

/* The lowest ranks of the domains, in order; how many. */
static int list_leaders(const wefti_membership *members, int *leaders_out)
{
    int count = 0;
    for (int rank = 0; rank < members->nranks; rank++) {
        if (members->members[rank].domain == rank) {
            leaders_out[count++] = rank;
        }
    }
    return count;
}

static weft_status try_pair(weft_comm *world, int first, int second,
                            const wefti_net_effort *effort,
                            wefti_net_trial *trial)
{
    return world->rank == first
               ? wefti_net_trial_lead(world, second, effort, trial)
           : world->rank == second ? wefti_net_trial_follow(world, first, trial)
                                   : WEFT_OK;
}

static weft_status try_network(weft_comm *world, const int *leaders, int count,
                               const wefti_net_effort *effort,
                               wefti_net_trial *trial_out)
{
    weft_status status = WEFT_OK;
    *trial_out = wefti_net_trial_begin();
    for (int i = 0; i + 1 < count && status == WEFT_OK; i += 2) {
        status = try_pair(world, leaders[i], leaders[i + 1], effort, trial_out);
    }
    if (count % 2 && status == WEFT_OK) {
        status =
            try_pair(world, leaders[0], leaders[count - 1], effort, trial_out);
    }
    return status;
}

static void keep_slower(int64_t *figure, int64_t other)
{
    *figure = other > *figure ? other : *figure;
}

weft_status wefti_net_measure_unite(const wefti_net_trial *trials, int nranks,
                                    const char *interfaces,
                                    wefti_net_figures *figures_out)
{
    wefti_net_figures slowest = {0};
    for (int rank = 0; rank < nranks; rank++) {
        const wefti_net_trial *one = &trials[rank];
        if (one->bad_from >= 0) {
            return wefti_error(
                WEFT_ERR_SYSTEM,
                "the network (%s) changes what it carries: of %u bytes that "
                "rank %d sent to rank %d, the word at byte %u was %016llx and "
                "came as %016llx",
                interfaces, one->bad_bytes, one->bad_from, rank, one->bad_place,
                (unsigned long long)one->bad_sent,
                (unsigned long long)one->bad_found);
        }
        if (one->measured) {
            keep_slower(&slowest.latency_ns, one->figures.latency_ns);
            keep_slower(&slowest.message_ns, one->figures.message_ns);
            keep_slower(&slowest.byte_ps, one->figures.byte_ps);
        }
    }
    *figures_out = wefti_net_figures_round(&slowest);
    return WEFT_OK;
}

static void log_rates(const weft_comm *world, int64_t took_ns)
{
    const wefti_rates *rates = wefti_known_rates_get(&world->rates);
    if (world->rank == 0) {
        wefti_log(WEFTI_LOG_INFO, 0,
                  "network of %s: %g us a hop, %g us a message, %g Gbit/s a "
                  "host: %s in %.1f ms",
                  world->engine->net->use.names,
                  rates->network_latency_ns / 1e3,
                  rates->network_message_ns / 1e3, 8 / rates->network_byte_ns,
                  wefti_rates_source_text(world->rates.source),
                  (double)took_ns / 1e6);
    }
}

/* leaders and trials: room for one of each rank. */
static weft_status measure(weft_comm *world, int *leaders,
                           wefti_net_trial *trials)
{
    wefti_net_trial own;
    wefti_net_figures figures;
    const int64_t begin_ns = wefti_clock_ns();
    const int count = list_leaders(world->engine->members, leaders);
    weft_status status = try_network(world, leaders, count, &whole, &own);
    if (status == WEFT_OK) {
        status = wefti_post_exchange(WEFTI_PURPOSE_CREATE, &own, trials,
                                     sizeof(own), world);
    }
    if (status == WEFT_OK) {
        status = wefti_net_measure_unite(
            trials, world->nranks, world->engine->net->use.names, &figures);
    }
    if (status == WEFT_OK) {
        world->rates = wefti_known_rates_of(WEFTI_RATES_MEASURED, &figures);
        log_rates(world, wefti_clock_ns() - begin_ns);
    }
    return status;
}

weft_status wefti_net_measure(weft_comm *world)
{
    const size_t ranks = (size_t)world->nranks;
    if (!world->engine->net || !world->tuning.measure_net) {
        return WEFT_OK;
    }
    int *leaders = calloc(ranks, sizeof(*leaders));
    wefti_net_trial *trials = calloc(ranks, sizeof(*trials));
    weft_status status =
        leaders && trials
            ? measure(world, leaders, trials)
            : wefti_error(WEFT_ERR_NO_MEMORY,
                          "no memory to measure the network of %d ranks",
                          world->nranks);
    free(leaders);
    free(trials);
    return status;
}
