/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/transports.h - what the network module could use on this machine.
 * Part of the library of comm/cluster/cluster.h.
 */
#ifndef COMM_NET_TRANSPORTS_H
#define COMM_NET_TRANSPORTS_H

#include <stdbool.h>

enum { WEFTI_TRANSPORTS_MOST = 128 };

/* As the network library names them; network: it leads to other hosts. */
typedef struct wefti_transport {
    char name[16], device[32];
    bool network;
} wefti_transport;

typedef struct wefti_transports {
    const char *library; /* lives for ever */
    int count;
    wefti_transport list[WEFTI_TRANSPORTS_MOST]; /* the first so many */
} wefti_transports;

struct wefti_topo;
struct wefti_port_table;

/* What the module finds here; table as wefti_port_library_open gives it. */
void wefti_transports_list(const struct wefti_port_table *table,
                           wefti_transports *transports_out);

/* Tells the graph's ports which of them can use which. */
void wefti_transports_note(const wefti_transports *transports,
                           struct wefti_topo *topo);

#endif
