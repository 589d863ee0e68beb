/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/staging_trial.c - an all-gather with counts, which no entries
 * carry: each word goes through its rank's staging, and with a device through
 * a fetch and a store.
 */
#include "comm/make/staging_trial.h"

#include "base/error.h"
#include "base/log.h"
#include "comm/control/fault.h"
#include "comm/engine/copies.h"
#include "comm/post/consensus.h"
#include "comm/post/post.h"

#include <assert.h>
#include <string.h>

enum { WORDS = 8 };

static_assert(2 * sizeof(size_t) + WORDS * sizeof(uint64_t) <=
                  sizeof(wefti_verdict),
              "comm->table has room for one of each rank");

static uint64_t word_of(int rank, int at)
{
    const uint64_t which = (uint64_t)rank * WORDS + (uint64_t)at + 1;
    return which * UINT64_C(0x9e3779b97f4a7c15);
}

/* Room for the words of all ranks, and behind them its own; NULL: its device
 * has none for it, and its first copies are checked by nobody. */
static uint64_t *prepare_device(weft_comm *comm, const uint64_t *own)
{
    const size_t words = (size_t)comm->nranks * WORDS;
    void *memory = NULL;
    weft_status status = weft_device_alloc(
        comm->device, (words + WORDS) * sizeof(*own), &memory);
    if (status == WEFT_OK) {
        status = wefti_copies_run(comm, (uint64_t *)memory + words, own,
                                  WORDS * sizeof(*own));
    }
    if (status != WEFT_OK) {
        wefti_log(WEFTI_LOG_WARN, comm->rank,
                  "\"%s\": copies of its device are not tried: %s", comm->name,
                  weft_error_text());
        weft_device_free(comm->device, memory);
        return NULL;
    }
    return memory;
}

static void compare(weft_comm *comm, const uint64_t *found)
{
    for (int i = 0; i < comm->nranks * WORDS; i++) {
        const int rank = i / WORDS;
        const uint64_t sent = word_of(rank, i % WORDS);
        if (found[i] != sent) {
            wefti_fault_publish(
                comm, WEFT_ERR_SYSTEM, rank, 0,
                "\"%s\": of what rank %d has staged word %d is %016llx, and "
                "rank %d has got %016llx%s",
                comm->name, rank, i % WORDS, (unsigned long long)sent,
                comm->rank, (unsigned long long)found[i],
                comm->copies ? ", by copies of its device" : "");
            return;
        }
    }
}

weft_status wefti_staging_trial(weft_comm *comm)
{
    const size_t words = (size_t)comm->nranks * WORDS;
    size_t *counts = comm->table, *displs = counts + comm->nranks;
    uint64_t *found = (uint64_t *)(displs + comm->nranks), own[WORDS];
    for (int at = 0; at < WORDS; at++) {
        own[at] = word_of(comm->rank, at);
    }
    for (int rank = 0; rank < comm->nranks; rank++) {
        counts[rank] = WORDS;
        displs[rank] = (size_t)rank * WORDS;
    }
    memset(found, 0, words * sizeof(*found));
    uint64_t *device = comm->copies ? prepare_device(comm, own) : NULL;
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_ALLGATHERV,
                        .send = device ? device + words : own,
                        .recv = device ? device : found,
                        .count = WORDS,
                        .recv_counts = counts,
                        .recv_displs = displs,
                        .dtype = WEFT_DTYPE_U64};
    weft_status status = wefti_post_for(WEFTI_PURPOSE_CREATE, &op, comm);
    if (status == WEFT_OK && device) {
        status = wefti_copies_run(comm, found, device, words * sizeof(*found));
    }
    weft_device_free(comm->device, device);
    if (status == WEFT_OK) {
        compare(comm, found);
    }
    return status;
}
