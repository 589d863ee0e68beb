/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/net_emulation.h - several hosts on one: network namespaces joined by
 * bridges, with links of a given rate.
 *
 *   node 0          switch 0 (rail 0)          node 1
 *   eth0 10.87.0.1 ------- bridge ------- eth0 10.87.0.2
 *   eth1 10.87.1.1 ------- bridge ------- eth1 10.87.1.2      (a second rail)
 *
 * Each node has its own network, IPC and UTS namespace; the bridges have a
 * network namespace to themselves. No namespace has a name: they end with the
 * processes in them and the descriptors here, however those end.
 */
#ifndef PERF_NET_EMULATION_H
#define PERF_NET_EMULATION_H

#include "weft/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    NET_NODES_MOST = 32,
    NET_RAILS_MOST = 4,
    NET_RANKS_MOST = 1024,
    NET_ADDRESS_BYTES = 24
};

/*
 * What SPEC says. kbit[rail]: of each link, each way; 0: not limited.
 * node_of[process]: by the order.
 */
typedef struct net_spec {
    int node_count;
    int ranks[NET_NODES_MOST]; /* of each node */
    int rail_count;
    int64_t kbit[NET_RAILS_MOST];
} net_spec;

/*
 * net_spec_parse - "2x2,1gbit", "3+1,200mbit", "4x1,1gbit+400mbit", "2x1".
 *
 * Returns     OK | ERR_INVALID; the text says what is allowed.
 */
WEFT_NODISCARD weft_status net_spec_parse(const char *text, net_spec *spec_out);
int net_spec_count_ranks(const net_spec *spec);

/*
 * net_spec_place - node_out[rank] for each rank.
 *
 * order   "block": 0 0 1 1; "cyclic": 0 1 0 1; or the nodes themselves,
 *         between commas.
 *
 * Returns     OK | ERR_INVALID.
 */
WEFT_NODISCARD weft_status net_spec_place(const net_spec *spec,
                                          const char *order,
                                          int node_out[NET_RANKS_MOST]);

typedef struct net_node {
    int net_fd, ipc_fd, uts_fd;
    char address[NET_ADDRESS_BYTES]; /* on the first rail */
} net_node;

typedef struct net_emulation {
    int node_count;
    net_node nodes[NET_NODES_MOST];
    int home_fd, home_ipc_fd, home_uts_fd; /* where this process came from */
    int switch_fd;
} net_emulation;

/*
 * net_emulation_open - make the nodes; this process stays where it is.
 *
 * Returns     OK | ERR_UNSUPPORTED (not root, no iproute2, no namespaces) |
 *             ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status net_emulation_open(const net_spec *spec,
                                              net_emulation *emulation_out);
void net_emulation_close(net_emulation *emulation); /* twice is legal */

/* The calling thread moves to a node's network alone, or back home. */
WEFT_NODISCARD weft_status
net_emulation_enter_network(const net_emulation *emulation, int node);
WEFT_NODISCARD weft_status net_emulation_return(const net_emulation *emulation);

/*
 * net_emulation_move_in - for a child before exec: all of the node's
 * namespaces, and a /sys that shows them. Returns 0, or an errno.
 */
int net_emulation_move_in(const net_emulation *emulation, int node);

#endif
