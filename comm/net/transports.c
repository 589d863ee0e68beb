/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/transports.c - the module's list, kept and joined to the ports.
 */
#include "comm/net/transports.h"

#include "comm/net/port.h"
#include "topo/graph.h"

#include <stdio.h>

static void keep(void *context, const char *transport, const char *device,
                 bool network)
{
    wefti_transports *all = context;
    if (all->count < WEFTI_TRANSPORTS_MOST) {
        wefti_transport *one = &all->list[all->count++];
        snprintf(one->name, sizeof(one->name), "%s", transport);
        snprintf(one->device, sizeof(one->device), "%s", device);
        one->network = network;
    }
}

void wefti_transports_list(const wefti_port_table *table,
                           wefti_transports *transports_out)
{
    *transports_out = (wefti_transports){.library = table->name};
    table->list(keep, transports_out);
}

void wefti_transports_note(const wefti_transports *transports,
                           struct wefti_topo *topo)
{
    for (int i = 0; i < transports->count; i++) {
        const wefti_transport *one = &transports->list[i];
        if (one->network) {
            wefti_topo_note_transport(topo, one->device, one->name);
        }
    }
}
