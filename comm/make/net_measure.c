/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/net_measure.c - who tries the network with whom, and what becomes
 * of it.
 */
#include "comm/make/net_measure.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "comm/make/net_rails.h"
#include "comm/make/net_rates_file.h"
#include "comm/net/net.h"
#include "comm/post/consensus.h"
#include "comm/post/post.h"
#include "weft/version.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* Two thirds of the limit at most, where the network is not very slow. */
static const wefti_net_effort whole = {.pings = 20,
                                       .bursts = 4,
                                       .repeats = 3,
                                       .most_bytes = WEFTI_TRIAL_MOST_BYTES,
                                       .limit_ns = 40000000};

/* To see whether what a file says still holds. */
static const wefti_net_effort brief = {.pings = 10,
                                       .bursts = 2,
                                       .repeats = 3,
                                       .most_bytes = 256 << 10,
                                       .limit_ns = 10000000};

/* A host and its interfaces, or nothing. */
typedef struct host_mark {
    unsigned char bytes[16];
} host_mark;

static_assert(sizeof(wefti_net_trial) <= sizeof(wefti_verdict),
              "comm->table has room for one of each rank");

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

static weft_status try_network(weft_comm *world, int leader_count,
                               const wefti_net_effort *effort,
                               wefti_net_trial *trial_out)
{
    weft_status status = WEFT_OK;
    *trial_out = wefti_net_trial_begin();
    for (int k = 0; 2 * k < leader_count && status == WEFT_OK; k++) {
        const wefti_net_pair pair =
            wefti_net_pair_get(world->group, leader_count, k);
        if (world->rank == pair.first) {
            status = wefti_net_trial_run(world, pair.second, effort, trial_out);
        } else if (world->rank == pair.second) {
            status = wefti_net_trial_run(world, pair.first, NULL, trial_out);
        }
    }
    return status;
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
            wefti_net_keep_slower(&slowest.latency_ns, one->figures.latency_ns);
            wefti_net_keep_slower(&slowest.message_ns, one->figures.message_ns);
            wefti_net_keep_slower(&slowest.byte_ps, one->figures.byte_ps);
        }
    }
    *figures_out = wefti_net_figures_round(&slowest);
    return WEFT_OK;
}

enum { RAILS_TEXT = WEFTI_PORT_RAILS_MOST * WEFTI_INTERFACE_NAME_BYTES };

/* "eth0,eth1"; without agreed rails, what the network library has. */
static const char *rails_text(const wefti_net *net, char text[RAILS_TEXT])
{
    text[0] = '\0';
    for (int r = 0; r < net->rail_count; r++) {
        const size_t used = strlen(text);
        snprintf(text + used, RAILS_TEXT - used, "%s%s", r ? "," : "",
                 net->rails[r].name);
    }
    return net->table->use ? text : net->use.names;
}

static void log_rates(const weft_comm *world, int64_t took_ns)
{
    char text[RAILS_TEXT];
    const wefti_rates *rates = wefti_known_rates_get(&world->rates);
    if (world->rank == 0) {
        wefti_log(WEFTI_LOG_INFO, 0,
                  "network of %s: %g us a hop, %g us a message, %g Gbit/s a "
                  "host: %s in %.1f ms",
                  rails_text(world->engine->net, text),
                  rates->network_latency_ns / 1e3,
                  rates->network_message_ns / 1e3, 8 / rates->network_byte_ns,
                  wefti_rates_source_text(world->rates.source),
                  (double)took_ns / 1e6);
    }
}

/* Whether name is one of names between commas. */
static bool is_named(const char *names, const char *name)
{
    const size_t length = strlen(name);
    for (; *names; names += strcspn(names, ","), names += *names == ',') {
        if (strcspn(names, ",") == length &&
            strncmp(names, name, length) == 0) {
            return true;
        }
    }
    return false;
}

/* The host and the interfaces of a domain that this rank leads. */
static void mark_host(const weft_comm *world, host_mark *mark_out)
{
    const wefti_net *net = world->engine->net;
    wefti_interface list[WEFTI_INTERFACES_MOST];
    char text[1024];
    struct utsname name = {.nodename = ""};
    int count = 0;
    (void)uname(&name);
    int used = snprintf(text, sizeof(text), "%s %s %s %s", name.nodename,
                        weft_version_text(), net->use.names,
                        wefti_setting_text(WEFTI_SETTING_NET_TRANSPORT));
    if (wefti_interface_list(list, &count) != WEFT_OK) {
        count = 0;
    }
    for (int i = 0; i < count && used < (int)sizeof(text); i++) {
        if (is_named(net->use.names, list[i].name)) {
            used += snprintf(text + used, sizeof(text) - (size_t)used, " %s=%d",
                             list[i].name, list[i].mbps);
        }
    }
    (void)crypto_generichash(mark_out->bytes, sizeof(mark_out->bytes),
                             (unsigned char *)text, strlen(text), NULL, 0);
}

/* Which hosts these are and where their ranks lie, as a file's name. */
static weft_status find_key(weft_comm *world, char key_out[WEFTI_NET_KEY_BYTES])
{
    const wefti_member *self = &world->engine->members->members[world->rank];
    unsigned char digest[WEFTI_NET_KEY_BYTES / 2];
    host_mark own = {{0}};
    if (self->domain == world->rank) {
        mark_host(world, &own);
    }
    weft_status status = wefti_post_exchange(WEFTI_PURPOSE_CREATE, &own,
                                             world->table, sizeof(own), world);
    (void)crypto_generichash(digest, sizeof(digest), world->table,
                             (size_t)world->nranks * sizeof(own), NULL, 0);
    (void)sodium_bin2hex(key_out, WEFTI_NET_KEY_BYTES, digest, sizeof(digest));
    return status;
}

/* Rank 0's file, for all; latency 0: there is none. */
static weft_status find_known(weft_comm *world, const char *key,
                              wefti_net_figures *known_out)
{
    wefti_net_figures read = {0};
    if (world->rank == 0 && !wefti_net_rates_file_read(key, &read)) {
        read = (wefti_net_figures){0};
    }
    *known_out = read;
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_BROADCAST,
                        .send = &read,
                        .recv = known_out,
                        .count = sizeof(read),
                        .dtype = WEFT_DTYPE_U8};
    return wefti_post_for(WEFTI_PURPOSE_CREATE, &op, world);
}

/* What all ranks make of one try. */
static weft_status find_figures(weft_comm *world, int leader_count,
                                const wefti_net_effort *effort,
                                wefti_net_figures *figures_out)
{
    wefti_net_trial own;
    weft_status status = try_network(world, leader_count, effort, &own);
    if (status == WEFT_OK) {
        status = wefti_post_exchange(WEFTI_PURPOSE_CREATE, &own, world->table,
                                     sizeof(own), world);
    }
    return status == WEFT_OK
               ? wefti_net_measure_unite(world->table, world->nranks,
                                         world->engine->net->use.names,
                                         figures_out)
               : status;
}

static bool is_local(int64_t found, int64_t known, int64_t times)
{
    return found <= known * times && known <= found * times;
}

/* Half a millisecond's look says no more than this. */
static bool holds_still(const wefti_net_figures *found,
                        const wefti_net_figures *known)
{
    return is_local(found->latency_ns, known->latency_ns, 3) &&
           is_local(found->message_ns, known->message_ns, 4) &&
           is_local(found->byte_ps, known->byte_ps, 2);
}

/* Of the first rail: by a file that holds still, or anew. */
static weft_status measure_first(weft_comm *world, int leader_count,
                                 wefti_net_figures *found_out,
                                 wefti_rates_source *source_out)
{
    char key[WEFTI_NET_KEY_BYTES];
    wefti_net_figures known = {0};
    weft_status status = find_key(world, key);
    if (status == WEFT_OK) {
        status = find_known(world, key, &known);
    }
    if (status == WEFT_OK && known.latency_ns) {
        status = find_figures(world, leader_count, &brief, found_out);
        if (status == WEFT_OK && holds_still(found_out, &known)) {
            *source_out = WEFTI_RATES_FILE;
            *found_out = known;
            return WEFT_OK;
        }
    }
    if (status == WEFT_OK) {
        status = find_figures(world, leader_count, &whole, found_out);
    }
    *source_out = WEFTI_RATES_MEASURED;
    if (status == WEFT_OK && world->rank == 0) {
        wefti_net_rates_file_write(key, found_out);
    }
    return status;
}

static weft_status find_again(weft_comm *world, int leader_count,
                              wefti_net_figures *figures_out)
{
    return find_figures(world, leader_count, &whole, figures_out);
}

weft_status wefti_net_measure(weft_comm *world)
{
    wefti_net_figures found = {0};
    wefti_rates_source source = WEFTI_RATES_MEASURED;
    const int64_t begin_ns = wefti_clock_ns();
    if (!world->engine->net) {
        return WEFT_OK;
    }
    if (!world->tuning.measure_net) {
        return wefti_net_rails_agree(world, NULL, NULL);
    }
    /* Nothing else needs these tables yet. */
    const wefti_net_try ask = {
        find_again, world->group,
        list_leaders(world->engine->members, world->group)};
    weft_status status =
        measure_first(world, ask.leader_count, &found, &source);
    if (status == WEFT_OK) {
        status = wefti_net_rails_agree(world, &ask, &found);
    }
    if (status == WEFT_OK) {
        if (world->engine->net->rail_count > 1) {
            source = WEFTI_RATES_MEASURED;
        }
        world->rates = wefti_known_rates_of(source, &found);
        log_rates(world, wefti_clock_ns() - begin_ns);
    }
    return status;
}
