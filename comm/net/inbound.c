/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/inbound.c - buffers of 4 KiB to 4 MiB by powers of two, kept for the
 * next message of their size: the last one given back is taken first, while it
 * is still in the cache.
 */
#include "comm/net/inbound.h"

#include <stdlib.h>

enum { LEAST_BYTES = 4096, SIZES = 11 };

_Static_assert(LEAST_BYTES << (SIZES - 1) == WEFTI_STAGING_BYTES,
               "the largest buffer holds the largest message");

/* Stands before the bytes, which begin on a line of their own. */
typedef struct buffer {
    _Alignas(64) struct buffer *next_of_all;
    struct buffer *next_free;
    int size; /* LEAST_BYTES << size */
} buffer;

struct wefti_inbound {
    buffer *all, *free[SIZES];
    size_t bytes;        /* of all */
    size_t held_bytes[]; /* [nranks] of messages under way */
};

wefti_inbound *wefti_inbound_create(int nranks)
{
    return calloc(1, sizeof(wefti_inbound) + (size_t)nranks * sizeof(size_t));
}

void wefti_inbound_destroy(wefti_inbound *inbound)
{
    buffer *next;
    for (buffer *at = inbound ? inbound->all : NULL; at; at = next) {
        next = at->next_of_all;
        free(at);
    }
    free(inbound);
}

static unsigned char *bytes_of(buffer *self)
{
    return (unsigned char *)(self + 1);
}

static buffer *buffer_of(unsigned char *bytes)
{
    return (buffer *)(void *)bytes - 1;
}

static buffer *make(wefti_inbound *inbound, int size)
{
    const size_t bytes = sizeof(buffer) + ((size_t)LEAST_BYTES << size);
    buffer *made = aligned_alloc(_Alignof(buffer), bytes);
    if (made) {
        made->size = size;
        made->next_of_all = inbound->all;
        inbound->all = made;
        inbound->bytes += bytes;
    }
    return made;
}

static bool is_held(const wefti_arrival *arrival, uint64_t sequence)
{
    return arrival->begun && arrival->sequence == sequence;
}

static bool is_wanted(const wefti_arrival *arrival, uint64_t sequence,
                      size_t bytes)
{
    return arrival->offered && arrival->sequence == sequence &&
           arrival->bytes == bytes;
}

bool wefti_inbound_fits(const wefti_inbound *inbound, int peer,
                        const wefti_arrival *arrival, uint64_t sequence,
                        size_t bytes)
{
    return is_held(arrival, sequence) ? bytes == arrival->bytes
                                      : bytes <= WEFTI_STAGING_BYTES &&
                                            inbound->held_bytes[peer] + bytes <=
                                                WEFTI_INBOUND_MOST_BYTES;
}

unsigned char *wefti_inbound_hold(wefti_inbound *inbound, int peer,
                                  wefti_arrival *arrival, uint64_t sequence,
                                  size_t bytes)
{
    if (is_held(arrival, sequence)) {
        return arrival->buffer;
    }
    if (is_wanted(arrival, sequence, bytes)) {
        arrival->begun = true;
        inbound->held_bytes[peer] += bytes;
        return arrival->buffer;
    }
    wefti_inbound_let_go(inbound, peer, arrival);
    int size = 0;
    while ((size_t)LEAST_BYTES << size < bytes) {
        size++;
    }
    buffer *taken = inbound->free[size];
    if (taken) {
        inbound->free[size] = taken->next_free;
    } else if (!(taken = make(inbound, size))) {
        return NULL;
    }
    inbound->held_bytes[peer] += bytes;
    *arrival = (wefti_arrival){.sequence = sequence,
                               .buffer = bytes_of(taken),
                               .bytes = (uint32_t)bytes,
                               .begun = true};
    return arrival->buffer;
}

void wefti_inbound_let_go(wefti_inbound *inbound, int peer,
                          wefti_arrival *arrival)
{
    if (!arrival->buffer) {
        return;
    }
    inbound->held_bytes[peer] -= arrival->begun ? arrival->bytes : 0;
    if (!arrival->offered) {
        buffer *given = buffer_of(arrival->buffer);
        given->next_free = inbound->free[given->size];
        inbound->free[given->size] = given;
    }
    *arrival = (wefti_arrival){.buffer = NULL};
}

void wefti_inbound_offer(wefti_arrival *arrival, uint64_t sequence,
                         unsigned char *memory, size_t bytes)
{
    if (!arrival->buffer) {
        *arrival = (wefti_arrival){.sequence = sequence,
                                   .buffer = memory,
                                   .bytes = (uint32_t)bytes,
                                   .offered = true};
    }
}

void wefti_inbound_withdraw(wefti_inbound *inbound, int peer,
                            wefti_arrival *arrival)
{
    if (arrival->offered) {
        wefti_inbound_let_go(inbound, peer, arrival);
    }
}

size_t wefti_inbound_count_bytes(const wefti_inbound *inbound)
{
    return inbound ? inbound->bytes : 0;
}
