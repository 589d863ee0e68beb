/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/ended.c - a list, the newest first.
 */
#include "comm/net/ended.h"

#include "base/clock.h"
#include "comm/net/net.h"

#include <stdlib.h>

/* lines [nranks]: how many messages have gone to each member. */
struct wefti_ended_comm {
    wefti_ended_comm *next;
    uint64_t comm, completed;
    int rank, nranks;
    wefti_leave how;
    wefti_line *lines;
};

static void drop(wefti_ended_comm *ended)
{
    free(ended->lines);
    free(ended);
}

/* Frees those behind the first `most`. */
static void shorten(wefti_ended_comm **link, int most)
{
    while (*link && most > 0) {
        link = &(*link)->next;
        most--;
    }
    while (*link) {
        wefti_ended_comm *last = *link;
        *link = last->next;
        drop(last);
    }
}

bool wefti_ended_add(wefti_net *net, wefti_fabric *fabric, wefti_leave how)
{
    wefti_ended_comm *made = malloc(sizeof(*made));
    if (!made) {
        return false;
    }
    *made = (wefti_ended_comm){
        .next = net->ended,
        .comm = fabric->id,
        .completed = atomic_load(
            &wefti_shared_get_page(&fabric->shared, fabric->rank)->completed),
        .rank = fabric->rank,
        .nranks = fabric->shared.layout.nranks,
        .how = how,
        .lines = fabric->lines};
    fabric->lines = NULL;
    for (int peer = 0; peer < made->nranks; peer++) {
        made->lines[peer].asked = false;
        made->lines[peer].answered_left = how != WEFTI_LEAVE_WELL;
    }
    net->ended = made;
    shorten(&net->ended, WEFTI_ENDED_MOST);
    return true;
}

void wefti_ended_hear(wefti_net *net, const wefti_wire *got)
{
    const wefti_ended_comm *at = net->ended;
    while (at && at->comm != got->comm) {
        at = at->next;
    }
    if (at && got->from < (uint32_t)at->nranks &&
        got->from != (uint32_t)at->rank && got->kind != WEFTI_WIRE_LEFT &&
        !at->lines[got->from].answered_left) {
        at->lines[got->from].asked = true;
        net->asked = true;
    }
}

static void answer(wefti_net *net, const wefti_ended_comm *at, wefti_line *line)
{
    const wefti_net_peer *peer = &net->peers[line->world_rank];
    const wefti_wire wire = {.key = net->key,
                             .comm = at->comm,
                             .version = WEFTI_WIRE_VERSION,
                             .kind = WEFTI_WIRE_LEFT,
                             .from = (uint32_t)at->rank,
                             .before = line->sent,
                             .completed = at->completed,
                             .sent_ns = wefti_clock_ns(),
                             .words = {(uint64_t)at->how}};
    line->asked = false;
    if (!peer->lost && !peer->farewell) {
        line->answered_left = true;
        line->sent++;
        wefti_net_send(net, line->world_rank, &wire, NULL);
    }
}

void wefti_ended_answer(wefti_net *net)
{
    net->asked = false;
    for (const wefti_ended_comm *at = net->ended; at && !net->closing;
         at = at->next) {
        for (int peer = 0; peer < at->nranks; peer++) {
            if (at->lines[peer].asked) {
                answer(net, at, &at->lines[peer]);
            }
        }
    }
}

void wefti_ended_fini(wefti_net *net)
{
    shorten(&net->ended, 0);
}
