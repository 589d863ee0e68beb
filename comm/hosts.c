/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/hosts.c - hosts of the same make say the same: of equal descriptions
 * only the first travels.
 */
#include "comm/hosts.h"

#include "base/error.h"
#include "base/log.h"
#include "base/module.h"
#include "comm/cluster/host_module.h"
#include "comm/net/net.h"
#include "comm/post.h"

#include <dlfcn.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* Beyond any machine. */
#define DESCRIPTION_BYTES_MOST ((uint64_t)64 << 20)

/* In place of a size: this rank's host could not be read. */
#define UNREADABLE UINT64_MAX

/* What each rank says: bytes is 0 where another rank speaks for the host. */
typedef struct heading {
    uint64_t bytes;
    uint64_t digest[2];
} heading;

enum { HEADING_WORDS = sizeof(heading) / sizeof(uint64_t) };

typedef struct description {
    unsigned char *bytes;
    size_t byte_count;
} description;

/* list[rank]: by whoever was the first to say it. */
struct wefti_hosts {
    int nranks;
    bool complete;
    description own; /* until it is traded */
    bool unreadable;
    heading *headings; /* [nranks] */
    int *same_as;      /* [nranks] the first rank that says the same; -1 */
    description *list; /* [nranks] */
};

/* ---- reading --------------------------------------------------------------
 */

/* 0, or -1 with the reason. */
static int describe(const wefti_port_table *net, description *own, char *why,
                    size_t why_bytes)
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

weft_status wefti_hosts_read(wefti_engine *engine,
                             const wefti_membership *members)
{
    size_t ranks = (size_t)members->nranks;
    wefti_hosts *hosts = calloc(1, sizeof(*hosts));
    engine->hosts = hosts;
    if (hosts) {
        hosts->nranks = members->nranks;
        hosts->headings = calloc(ranks, sizeof(*hosts->headings));
        hosts->same_as = calloc(ranks, sizeof(*hosts->same_as));
        hosts->list = calloc(ranks, sizeof(*hosts->list));
    }
    if (!hosts || !hosts->headings || !hosts->same_as || !hosts->list) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for the hosts of %zu ranks", ranks);
    }
    char why[512] = "";
    if (members->members[members->rank].domain == members->rank &&
        describe(engine->net->library, &hosts->own, why, sizeof(why)) != 0) {
        hosts->unreadable = true;
        wefti_log(WEFTI_LOG_WARN, members->rank,
                  "this host cannot be described to the others: %s", why);
    }
    return WEFT_OK;
}

/* ---- trading --------------------------------------------------------------
 */

static heading head_own(const wefti_hosts *hosts)
{
    heading own = {.bytes =
                       hosts->unreadable ? UNREADABLE : hosts->own.byte_count};
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
    for (int rank = 0; rank < hosts->nranks; rank++) {
        const heading *own = &hosts->headings[rank];
        int first = 0;
        if (own->bytes > DESCRIPTION_BYTES_MOST) {
            return false;
        }
        while (memcmp(&hosts->headings[first], own, sizeof(*own)) != 0) {
            first++;
        }
        hosts->same_as[rank] = own->bytes == 0 ? -1 : first;
    }
    return true;
}

/* One description from the rank that has it to all. */
static weft_status pass_on(weft_comm *world, wefti_hosts *hosts, int from)
{
    description *one = &hosts->list[from];
    one->byte_count = (size_t)hosts->headings[from].bytes;
    if (from == world->rank) {
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
    return wefti_post_for(WEFTI_PURPOSE_CREATE, &op, world);
}

weft_status wefti_hosts_trade(weft_comm *world)
{
    wefti_hosts *hosts = world->engine->hosts;
    if (!hosts) {
        return WEFT_OK;
    }
    heading own = head_own(hosts);
    weft_status status = wefti_post_exchange(
        WEFTI_PURPOSE_CREATE, &own, hosts->headings, sizeof(own), world);
    bool whole = status == WEFT_OK && compare(hosts);
    for (int rank = 0; rank < hosts->nranks && whole; rank++) {
        if (hosts->same_as[rank] == rank) {
            status = pass_on(world, hosts, rank);
            whole = status == WEFT_OK;
        }
    }
    free(hosts->own.bytes);
    hosts->own.bytes = NULL;
    hosts->complete = whole;
    return status == WEFT_ERR_NO_MEMORY ? status : WEFT_OK;
}

const unsigned char *wefti_hosts_find(const wefti_engine *engine, int leader,
                                      size_t *byte_count_out)
{
    const wefti_hosts *hosts = engine->hosts;
    if (!hosts || !hosts->complete || hosts->same_as[leader] < 0) {
        return NULL;
    }
    const description *one = &hosts->list[hosts->same_as[leader]];
    *byte_count_out = one->byte_count;
    return one->bytes;
}

void wefti_hosts_close(wefti_hosts *hosts)
{
    if (!hosts) {
        return;
    }
    for (int rank = 0; rank < hosts->nranks && hosts->list; rank++) {
        free(hosts->list[rank].bytes);
    }
    free(hosts->own.bytes);
    free(hosts->headings);
    free(hosts->same_as);
    free(hosts->list);
    free(hosts);
}
