/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/hosts.c - a host's description: read, traded, kept, found. Hosts of
 * the same make say the same: of equal descriptions only the first travels.
 */
#include "comm/make/hosts.h"

#include "base/error.h"
#include "base/log.h"
#include "base/module.h"
#include "comm/make/host_module.h"
#include "comm/net/net.h"
#include "comm/post/post.h"

#include <dlfcn.h>
#include <sodium.h>
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

/* Beyond any machine. */
#define DESCRIPTION_BYTES_MOST ((uint64_t)64 << 20)

/* In place of a size: this rank's host could not be read. */
#define UNREADABLE UINT64_MAX

static wefti_host_heading head_own(const wefti_hosts *hosts)
{
    wefti_host_heading own = {
        .bytes = hosts->unreadable ? UNREADABLE : hosts->own.byte_count};
    if (hosts->own.bytes) {
        (void)crypto_generichash((unsigned char *)own.digest,
                                 sizeof(own.digest), hosts->own.bytes,
                                 hosts->own.byte_count, NULL, 0);
    }
    return own;
}

/* Who speaks for whom; false where a host is missing. */
static bool compare(wefti_hosts *hosts)
{
    if (wefti_hosts_find_unreadable(hosts) >= 0) {
        return false;
    }
    for (int rank = 0; rank < hosts->nranks; rank++) {
        const wefti_host_heading *own = &hosts->headings[rank];
        int first = 0;
        while (memcmp(&hosts->headings[first], own, sizeof(*own)) != 0) {
            first++;
        }
        hosts->same_as[rank] = own->bytes == 0 ? -1 : first;
    }
    return true;
}

/* One description from the rank that has it to all. */
static weft_status pass_on(weft_comm *comm, wefti_purpose purpose,
                           wefti_hosts *hosts, int from)
{
    wefti_host_text *one = &hosts->list[from];
    one->byte_count = (size_t)hosts->headings[from].bytes;
    if (from == comm->rank) {
        one->bytes = hosts->own.bytes;
        hosts->own.bytes = NULL;
    } else {
        one->bytes = malloc(one->byte_count);
    }
    if (!one->bytes) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for a description of %zu bytes",
                           one->byte_count);
    }
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_BROADCAST,
                        .send = one->bytes,
                        .recv = one->bytes,
                        .count = one->byte_count,
                        .dtype = WEFT_DTYPE_U8,
                        .root = from};
    return wefti_post_for(purpose, &op, comm);
}

weft_status wefti_hosts_trade(weft_comm *comm, wefti_purpose purpose,
                              wefti_hosts *hosts)
{
    wefti_host_heading own = head_own(hosts);
    weft_status status =
        wefti_post_exchange(purpose, &own, hosts->headings, sizeof(own), comm);
    bool whole = status == WEFT_OK && compare(hosts);
    for (int rank = 0; rank < hosts->nranks && whole; rank++) {
        if (hosts->same_as[rank] == rank) {
            status = pass_on(comm, purpose, hosts, rank);
            whole = status == WEFT_OK;
        }
    }
    free(hosts->own.bytes);
    hosts->own.bytes = NULL;
    hosts->complete = whole;
    return status;
}

int wefti_hosts_find_unreadable(const wefti_hosts *hosts)
{
    int rank = 0;
    while (rank < hosts->nranks &&
           hosts->headings[rank].bytes <= DESCRIPTION_BYTES_MOST) {
        rank++;
    }
    return rank < hosts->nranks ? rank : -1;
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
