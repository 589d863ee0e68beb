/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/tcp_pieces.c - a short list, as few messages are under way at once.
 */
#include "comm/net/tcp_pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { UNDER_WAY_MOST = 4096 }; /* more than a peer can have unread */

static void free_list(wefti_tcp_whole *first)
{
    while (first) {
        wefti_tcp_whole *next = first->next;
        free(first->spill);
        free(first);
        first = next;
    }
}

void wefti_tcp_pieces_fini(wefti_tcp_pieces *pieces)
{
    free_list(pieces->under_way);
    free_list(pieces->free);
    *pieces = (wefti_tcp_pieces){.count = 0};
}

static wefti_tcp_whole *begin(wefti_tcp_pieces *pieces, uint64_t number,
                              size_t bytes)
{
    wefti_tcp_whole *whole = pieces->free;
    if (pieces->count == UNDER_WAY_MOST) {
        errno = EPROTO;
        return NULL;
    }
    if (whole) {
        pieces->free = whole->next;
    } else if (!(whole = calloc(1, sizeof(*whole)))) {
        return NULL;
    }
    *whole = (wefti_tcp_whole){.next = pieces->under_way,
                               .number = number,
                               .bytes = bytes,
                               .spill = whole->spill,
                               .spill_bytes = whole->spill_bytes};
    pieces->under_way = whole;
    pieces->count++;
    return whole;
}

wefti_tcp_whole *wefti_tcp_pieces_find(wefti_tcp_pieces *pieces,
                                       uint64_t number, size_t bytes)
{
    wefti_tcp_whole *whole = pieces->under_way;
    while (whole && whole->number != number) {
        whole = whole->next;
    }
    if (whole && whole->bytes != bytes) {
        errno = EPROTO;
        return NULL;
    }
    return whole ? whole : begin(pieces, number, bytes);
}

static void deliver_last(wefti_tcp_pieces *pieces,
                         const wefti_port_config *config)
{
    if (pieces->last_waits && pieces->done >= pieces->after) {
        pieces->last_waits = false;
        config->arrived(config->context, pieces->last, pieces->last_bytes, NULL,
                        0);
    }
}

void wefti_tcp_pieces_end(wefti_tcp_pieces *pieces, wefti_tcp_whole *whole,
                          const wefti_port_config *config)
{
    wefti_tcp_whole **at = &pieces->under_way;
    while (*at != whole) {
        at = &(*at)->next;
    }
    *at = whole->next;
    whole->next = pieces->free;
    pieces->free = whole;
    pieces->count--;
    pieces->done++;
    deliver_last(pieces, config);
}

void wefti_tcp_pieces_await(wefti_tcp_pieces *pieces, uint64_t number,
                            const unsigned char *header, size_t header_bytes,
                            const wefti_port_config *config)
{
    memcpy(pieces->last, header, header_bytes);
    pieces->last_bytes = header_bytes;
    pieces->after = number;
    pieces->last_waits = true;
    deliver_last(pieces, config);
}
