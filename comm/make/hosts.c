/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/hosts.c - a host's description: read, kept, found.
 */
#include "comm/make/hosts.h"

#include "base/error.h"
#include "base/log.h"
#include "base/module.h"
#include "comm/make/host_module.h"
#include "comm/net/net.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 0, or -1 with the reason. */
static int describe(const wefti_port_table *net, wefti_host_text *own,
                    char *why, size_t why_bytes)
{
    char path[PATH_MAX];
    wefti_host_module_call *call;
    if (!wefti_module_find(WEFTI_HOST_MODULE_NAME, path)) {
        snprintf(why, why_bytes, "%s is not installed", WEFTI_HOST_MODULE_NAME);
        return -1;
    }
    void *handle;
    void *found =
        wefti_module_open(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE,
                          WEFTI_HOST_MODULE_SYMBOL, &handle, why, why_bytes);
    if (!found) {
        return -1;
    }
    memcpy(&call, &found, sizeof(call)); /* a function, as POSIX has it */
    return call(WEFTI_HOST_MODULE_VERSION, net, &own->bytes, &own->byte_count,
                why, why_bytes);
}

void wefti_hosts_destroy(wefti_hosts *hosts)
{
    for (int rank = 0; hosts && hosts->list && rank < hosts->nranks; rank++) {
        free(hosts->list[rank].bytes);
    }
    if (hosts) {
        free(hosts->own.bytes);
        free(hosts->headings);
        free(hosts->same_as);
        free(hosts->list);
        free(hosts);
    }
}

weft_status wefti_hosts_create(int nranks, wefti_hosts **hosts_out)
{
    const size_t ranks = (size_t)nranks;
    wefti_hosts *hosts = calloc(1, sizeof(*hosts));
    *hosts_out = hosts;
    if (hosts) {
        hosts->nranks = nranks;
        hosts->headings = calloc(ranks, sizeof(*hosts->headings));
        hosts->same_as = calloc(ranks, sizeof(*hosts->same_as));
        hosts->list = calloc(ranks, sizeof(*hosts->list));
    }
    return hosts && hosts->headings && hosts->same_as && hosts->list
               ? WEFT_OK
               : wefti_error(WEFT_ERR_NO_MEMORY,
                             "no memory for the hosts of %zu ranks", ranks);
}

weft_status wefti_hosts_read(wefti_engine *engine,
                             const wefti_membership *members)
{
    weft_status status = wefti_hosts_create(members->nranks, &engine->hosts);
    engine->hosts_close = wefti_hosts_destroy;
    char why[512] = "";
    if (status == WEFT_OK &&
        members->members[members->rank].domain == members->rank &&
        describe(engine->net->library, &engine->hosts->own, why, sizeof(why)) !=
            0) {
        engine->hosts->unreadable = true;
        wefti_log(WEFTI_LOG_WARN, members->rank,
                  "this host cannot be described to the others: %s", why);
    }
    return status;
}

const unsigned char *wefti_hosts_find(const wefti_engine *engine, int leader,
                                      size_t *byte_count_out)
{
    const wefti_hosts *hosts = engine->hosts;
    if (!hosts || !hosts->complete || hosts->same_as[leader] < 0) {
        return NULL;
    }
    const wefti_host_text *one = &hosts->list[hosts->same_as[leader]];
    *byte_count_out = one->byte_count;
    return one->bytes;
}
