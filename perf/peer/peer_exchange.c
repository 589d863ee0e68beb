/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/peer/peer_exchange.c - a start line, and a slot for each rank in a file
 * that all map.
 *
 * Rank 0 makes FOLDER/slots and the line, then FOLDER/line, which says where
 * the line is; it appears under that name complete. gather copies a slot at a
 * time: everyone writes its own, the line, everyone reads all, the line.
 */
#include "perf/peer/peer_exchange.h"

#include "perf/startline.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SLOT_BYTES = 65536, POLL_NS = 1000000, POLLS_MOST = 60000 };

struct wefti_peer_exchange {
    wefti_startline *line;
    unsigned char *slots; /* [nranks][SLOT_BYTES] */
    size_t slots_bytes;
    int rank, nranks;
};

static bool map_slots(wefti_peer_exchange *exchange, const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/slots", folder);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) {
        return false;
    }
    exchange->slots_bytes = (size_t)exchange->nranks * SLOT_BYTES;
    void *slots = MAP_FAILED;
    if (ftruncate(file, (off_t)exchange->slots_bytes) == 0) {
        slots = mmap(NULL, exchange->slots_bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED, file, 0);
    }
    close(file);
    exchange->slots = slots == MAP_FAILED ? NULL : slots;
    return exchange->slots;
}

static bool publish(const char *folder, const wefti_startline_place *place)
{
    char part[PATH_MAX], whole[PATH_MAX];
    snprintf(part, sizeof(part), "%s/line.part", folder);
    snprintf(whole, sizeof(whole), "%s/line", folder);
    FILE *file = fopen(part, "wbe");
    if (!file) {
        return false;
    }
    size_t written = fwrite(place, sizeof(*place), 1, file);
    return fclose(file) == 0 && written == 1 && rename(part, whole) == 0;
}

static bool find(const char *folder, wefti_startline_place *place)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/line", folder);
    FILE *file = NULL;
    for (int poll = 0; !file && poll < POLLS_MOST; poll++) {
        file = fopen(path, "rbe");
        if (!file && errno != ENOENT) {
            return false;
        }
        if (!file) {
            nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
        }
    }
    if (!file) {
        errno = ETIMEDOUT;
        return false;
    }
    bool read = fread(place, sizeof(*place), 1, file) == 1;
    (void)fclose(file);
    return read;
}

wefti_peer_exchange *wefti_peer_exchange_open(const char *folder, int rank,
                                              int nranks)
{
    wefti_startline_place place = {0};
    wefti_peer_exchange *exchange = calloc(1, sizeof(*exchange));
    if (!exchange) {
        return NULL;
    }
    exchange->rank = rank;
    exchange->nranks = nranks;
    if (!map_slots(exchange, folder)) {
        goto err_close;
    }
    if (rank == 0) {
        exchange->line = wefti_startline_create(nranks, &place);
        if (!exchange->line || !publish(folder, &place)) {
            goto err_close;
        }
    } else if (find(folder, &place)) {
        exchange->line = wefti_startline_open(&place);
    }
    if (!exchange->line) {
        goto err_close;
    }
    return exchange;

err_close:
    wefti_peer_exchange_close(exchange);
    return NULL;
}

void wefti_peer_exchange_close(wefti_peer_exchange *exchange)
{
    if (!exchange) {
        return;
    }
    wefti_startline_close(exchange->line);
    if (exchange->slots) {
        munmap(exchange->slots, exchange->slots_bytes);
    }
    free(exchange);
}

int wefti_peer_exchange_ranks(const wefti_peer_exchange *exchange)
{
    return exchange->nranks;
}

bool wefti_peer_exchange_wait(wefti_peer_exchange *exchange)
{
    return wefti_startline_wait(exchange->line, NULL, NULL);
}

bool wefti_peer_exchange_gather(wefti_peer_exchange *exchange, const void *mine,
                                size_t bytes, void *all_out)
{
    const unsigned char *from = mine;
    unsigned char *to = all_out;
    for (size_t first = 0; first < bytes; first += SLOT_BYTES) {
        size_t now = bytes - first < SLOT_BYTES ? bytes - first : SLOT_BYTES;
        memcpy(exchange->slots + (size_t)exchange->rank * SLOT_BYTES,
               from + first, now);
        if (!wefti_peer_exchange_wait(exchange)) {
            return false;
        }
        for (int rank = 0; rank < exchange->nranks; rank++) {
            memcpy(to + (size_t)rank * bytes + first,
                   exchange->slots + (size_t)rank * SLOT_BYTES, now);
        }
        if (!wefti_peer_exchange_wait(exchange)) {
            return false;
        }
    }
    return true;
}
