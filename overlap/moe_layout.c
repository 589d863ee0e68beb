/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/moe_layout.c - nodes, relays and targets. Node n's ranks are
 * members[begins[n] .. begins[n + 1]).
 */
#include "overlap/moe_layout.h"

#include "base/check.h"

#include <stdlib.h>

static int node_ranks(const wefti_moe_layout *layout, int node)
{
    return layout->begins[node + 1] - layout->begins[node];
}

static void number_nodes(wefti_moe_layout *layout, const int *firsts)
{
    layout->node_count = 0;
    for (int rank = 0; rank < layout->nranks; rank++) {
        layout->nodes[rank] = firsts[rank] == rank
                                  ? layout->node_count++
                                  : layout->nodes[firsts[rank]];
    }
    int placed = 0;
    for (int node = 0; node < layout->node_count; node++) {
        layout->begins[node] = placed;
        for (int rank = 0; rank < layout->nranks; rank++) {
            if (layout->nodes[rank] == node) {
                layout->indices[rank] = placed - layout->begins[node];
                layout->members[placed++] = rank;
            }
        }
    }
    layout->begins[layout->node_count] = placed;
}

bool wefti_moe_layout_init(wefti_moe_layout *layout, const int *firsts)
{
    const size_t nranks = (size_t)layout->nranks;
    int *all = calloc(4 * nranks + 1, sizeof(*all));
    if (!all) {
        return false;
    }
    layout->nodes = all;
    layout->indices = all + nranks;
    layout->members = all + 2 * nranks;
    layout->begins = all + 3 * nranks;
    number_nodes(layout, firsts);
    if (layout->hops == 0) {
        const bool shared = layout->node_count < layout->nranks;
        layout->hops = shared && layout->node_count > 1 ? 2 : 1;
    }
    return true;
}

void wefti_moe_layout_fini(wefti_moe_layout *layout)
{
    free(layout->nodes);
    layout->nodes = NULL;
}

int wefti_moe_owner(const wefti_moe_layout *layout, int32_t expert)
{
    return expert < 0 || expert >= layout->experts
               ? -1
               : expert / (layout->experts / layout->nranks);
}

int wefti_moe_relay(const wefti_moe_layout *layout, int source, int node)
{
    return layout->nodes[source] == node
               ? source
               : layout->members[layout->begins[node] +
                                 layout->indices[source] %
                                     node_ranks(layout, node)];
}

size_t wefti_moe_most_rows(const wefti_moe_layout *layout, int hop, int from,
                           int to)
{
    if (hop == 0) {
        const bool sends =
            layout->hops == 1 ||
            wefti_moe_relay(layout, from, layout->nodes[to]) == to;
        return sends ? layout->tokens : 0;
    }
    size_t sources = 0;
    for (int source = 0; source < layout->nranks; source++) {
        sources += wefti_moe_relay(layout, source, layout->nodes[from]) == from;
    }
    return layout->nodes[from] == layout->nodes[to] ? sources * layout->tokens
                                                    : 0;
}

int wefti_moe_next(const wefti_moe_layout *layout, int hop, int from,
                   int32_t expert)
{
    const int owner = wefti_moe_owner(layout, expert);
    if (owner < 0 || layout->hops == 1) {
        return owner;
    }
    const int node = layout->nodes[owner];
    if (hop == 0) {
        return wefti_moe_relay(layout, from, node);
    }
    return node == layout->nodes[from] ? owner : -1;
}

static int place_of(const wefti_moe_layout *layout, int rank)
{
    return layout->begins[layout->nodes[rank]] + layout->indices[rank];
}

int wefti_moe_targets(const wefti_moe_layout *layout, int hop, int from,
                      const int32_t *experts, int *targets_out)
{
    int count = 0;
    WEFTI_ASSERT(hop < layout->hops);
    for (int slot = 0; slot < layout->slots; slot++) {
        const int next = wefti_moe_next(layout, hop, from, experts[slot]);
        if (next < 0) {
            continue;
        }
        int at = count;
        while (at > 0 &&
               place_of(layout, targets_out[at - 1]) > place_of(layout, next)) {
            at--;
        }
        if (at > 0 && targets_out[at - 1] == next) {
            continue;
        }
        for (int i = count++; i > at; i--) {
            targets_out[i] = targets_out[i - 1];
        }
        targets_out[at] = next;
    }
    return count;
}
