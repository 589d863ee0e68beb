/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/hosts_trade.c - hosts of the same make say the same: of equal
 * descriptions only the first travels.
 */
#include "comm/make/hosts_trade.h"

#include "base/error.h"
#include "comm/make/hosts.h"
#include "comm/post/post.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

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
