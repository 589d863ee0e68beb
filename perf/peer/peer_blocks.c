/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/peer/peer_blocks.c - anonymous memory, reached under /proc as a start
 * line is, so that nothing has a name that could be left behind.
 */
#include "perf/peer/peer_blocks.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct place {
    long process;
    int descriptor; /* -1: there is none */
} place;

struct wefti_peer_blocks {
    int nranks;
    size_t bytes;
    unsigned char *mapped[]; /* [nranks]; NULL: not reached */
};

static int make_memory(size_t bytes)
{
    int descriptor = memfd_create("block", MFD_CLOEXEC);
    if (descriptor >= 0 && ftruncate(descriptor, (off_t)bytes) != 0) {
        close(descriptor);
        descriptor = -1;
    }
    return descriptor;
}

static unsigned char *map_memory(const place *where, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%ld/fd/%d", where->process,
             where->descriptor);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) {
        return NULL;
    }
    void *mapped =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    return mapped == MAP_FAILED ? NULL : mapped;
}

/* All are mapped here; says nothing of the other ranks. */
static bool map_all(wefti_peer_blocks *blocks, const place *places)
{
    bool reached = true;
    for (int rank = 0; rank < blocks->nranks; rank++) {
        blocks->mapped[rank] = map_memory(&places[rank], blocks->bytes);
        reached = reached && blocks->mapped[rank];
    }
    return reached;
}

wefti_peer_blocks *wefti_peer_blocks_create(wefti_peer_exchange *exchange,
                                            size_t bytes)
{
    int nranks = wefti_peer_exchange_ranks(exchange);
    wefti_peer_blocks *blocks =
        calloc(1, sizeof(*blocks) + (size_t)nranks * sizeof(unsigned char *));
    place *places = calloc((size_t)nranks, sizeof(*places));
    place mine = {.process = getpid(), .descriptor = make_memory(bytes)};
    bool reached = false;
    if (blocks && places) {
        blocks->nranks = nranks;
        blocks->bytes = bytes;
        reached =
            wefti_peer_exchange_gather(exchange, &mine, sizeof(mine), places) &&
            map_all(blocks, places) && wefti_peer_exchange_wait(exchange);
    }
    free(places);
    if (mine.descriptor >= 0) {
        close(mine.descriptor);
    }
    if (!reached) {
        wefti_peer_blocks_destroy(blocks);
        return NULL;
    }
    return blocks;
}

unsigned char *wefti_peer_blocks_get(const wefti_peer_blocks *blocks, int rank)
{
    return blocks->mapped[rank];
}

void wefti_peer_blocks_destroy(wefti_peer_blocks *blocks)
{
    for (int rank = 0; blocks && rank < blocks->nranks; rank++) {
        if (blocks->mapped[rank]) {
            munmap(blocks->mapped[rank], blocks->bytes);
        }
    }
    free(blocks);
}
