/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/net_spec.c - reading a specification of emulated nodes.
 */
#include "base/error.h"
#include "perf/net_emulation.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { KBIT_MOST = 100000000 };

static const char allowed[] =
    "allowed is NODESxRANKS or RANKS+RANKS+..., then optionally a comma and a "
    "rate in kbit, mbit or gbit for each rail, joined by +: 2x2,1gbit or "
    "3+1,200mbit or 4x1,1gbit+400mbit";

static weft_status complain(const char *text)
{
    return wefti_error(WEFT_ERR_INVALID, "--net-emulate %s: %s", text, allowed);
}

/* A number of 1 .. most at *at, which moves behind it; 0: there is none. */
static int64_t take_number(const char **at, int64_t most)
{
    if (!isdigit((unsigned char)**at)) {
        return 0;
    }
    char *end;
    long long number = strtoll(*at, &end, 10);
    *at = end;
    return number >= 1 && number <= most ? number : 0;
}

/* "2x2" or "3+1". */
static bool take_nodes(const char **at, net_spec *spec)
{
    int64_t first = take_number(at, NET_RANKS_MOST);
    if (first == 0) {
        return false;
    }
    if (**at == 'x') {
        ++*at;
        int64_t ranks = take_number(at, NET_RANKS_MOST);
        spec->node_count = first <= NET_NODES_MOST ? (int)first : 0;
        for (int node = 0; node < spec->node_count; node++) {
            spec->ranks[node] = (int)ranks;
        }
        return spec->node_count > 0 && ranks > 0;
    }
    spec->ranks[spec->node_count++] = (int)first;
    while (**at == '+' && spec->node_count < NET_NODES_MOST) {
        ++*at;
        int64_t ranks = take_number(at, NET_RANKS_MOST);
        if (ranks == 0) {
            return false;
        }
        spec->ranks[spec->node_count++] = (int)ranks;
    }
    return true;
}

/* "200mbit" */
static bool take_rate(const char **at, int64_t *kbit_out)
{
    static const struct {
        const char *name;
        int64_t kbit;
    } units[] = {{"kbit", 1}, {"mbit", 1000}, {"gbit", 1000000}};
    int64_t number = take_number(at, KBIT_MOST);
    for (size_t i = 0; number && i < sizeof(units) / sizeof(units[0]); i++) {
        size_t characters = strlen(units[i].name);
        if (strncmp(*at, units[i].name, characters) == 0) {
            *at += characters;
            *kbit_out = number * units[i].kbit;
            return *kbit_out <= KBIT_MOST;
        }
    }
    return false;
}

weft_status net_spec_parse(const char *text, net_spec *spec_out)
{
    const char *at = text;
    *spec_out = (net_spec){.rail_count = 1};
    if (!take_nodes(&at, spec_out) ||
        net_spec_count_ranks(spec_out) > NET_RANKS_MOST) {
        return complain(text);
    }
    if (*at == ',') {
        spec_out->rail_count = 0;
        do {
            at++;
            if (spec_out->rail_count == NET_RAILS_MOST ||
                !take_rate(&at, &spec_out->kbit[spec_out->rail_count++])) {
                return complain(text);
            }
        } while (*at == '+');
    }
    return *at ? complain(text) : WEFT_OK;
}

int net_spec_count_ranks(const net_spec *spec)
{
    int ranks = 0;
    for (int node = 0; node < spec->node_count; node++) {
        ranks += spec->ranks[node];
    }
    return ranks;
}

static void place_block(const net_spec *spec, int *node_out)
{
    int rank = 0;
    for (int node = 0; node < spec->node_count; node++) {
        for (int i = 0; i < spec->ranks[node]; i++) {
            node_out[rank++] = node;
        }
    }
}

static void place_cyclic(const net_spec *spec, int *node_out)
{
    int left[NET_NODES_MOST], total = net_spec_count_ranks(spec), node = 0;
    memcpy(left, spec->ranks, sizeof(left));
    for (int rank = 0; rank < total;) {
        if (left[node] > 0) {
            left[node]--;
            node_out[rank++] = node;
        }
        node = (node + 1) % spec->node_count;
    }
}

static bool place_list(const net_spec *spec, const char *order, int *node_out)
{
    int left[NET_NODES_MOST], total = net_spec_count_ranks(spec);
    memcpy(left, spec->ranks, sizeof(left));
    for (int rank = 0; rank < total; rank++) {
        char *end;
        long node = strtol(order, &end, 10);
        if (end == order || node < 0 || node >= spec->node_count ||
            left[node]-- == 0 || *end != (rank + 1 < total ? ',' : '\0')) {
            return false;
        }
        node_out[rank] = (int)node;
        order = end + 1;
    }
    return true;
}

weft_status net_spec_place(const net_spec *spec, const char *order,
                           int node_out[NET_RANKS_MOST])
{
    if (strcmp(order, "block") == 0) {
        place_block(spec, node_out);
    } else if (strcmp(order, "cyclic") == 0) {
        place_cyclic(spec, node_out);
    } else if (!place_list(spec, order, node_out)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--rank-order %s: allowed is block, cyclic, or the "
                           "node of each rank, between commas, as often as "
                           "--net-emulate says",
                           order);
    }
    return WEFT_OK;
}
