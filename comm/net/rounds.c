/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/rounds.c - least numbers of more and more hosts.
 *
 * page.all_completed is stored by the leader and loaded by the ranks of its
 * host before they enter an operation. It pairs with nothing further: what a
 * rank must not write over was read by messages or in page.completed's order.
 */
#include "comm/net/rounds.h"

#include <stdlib.h>

enum { TOLD_EACH = WEFTI_OP_SLOTS / 4 };

static int count_leaders(const int *firsts, int nranks)
{
    int leaders = 0;
    for (int rank = 0; rank < nranks; rank++) {
        leaders += firsts[rank] == rank;
    }
    return leaders;
}

/* The leader of that host, hosts being numbered by their leaders. */
static int find_leader(const int *firsts, int host)
{
    int rank = 0;
    for (int at = 0;; rank++) {
        if (firsts[rank] == rank && at++ == host) {
            return rank;
        }
    }
}

wefti_rounds *wefti_rounds_create(const int *firsts, int nranks, int rank)
{
    const size_t bytes = sizeof(wefti_rounds) + (size_t)nranks * sizeof(int);
    wefti_rounds *made = calloc(1, bytes);
    if (!made) {
        return NULL;
    }
    const int hosts = count_leaders(firsts, nranks);
    int own = 0;
    made->leader = firsts[rank];
    made->leads = made->leader == rank;
    for (int peer = 0; peer < nranks; peer++) {
        own += firsts[peer] == peer && peer < made->leader;
        if (firsts[peer] == made->leader) {
            made->locals[made->local_count++] = peer;
        }
    }
    for (int step = 1; made->leads && step < hosts; step *= 2) {
        made->to[made->count] = find_leader(firsts, (own + step) % hosts);
        made->from[made->count] =
            find_leader(firsts, (own - step + hosts) % hosts);
        made->count++;
    }
    return made;
}

static int find(const int *peers, int count, int peer)
{
    for (int k = 0; k < count; k++) {
        if (peers[k] == peer) {
            return k;
        }
    }
    return -1;
}

int wefti_rounds_find_to(const wefti_rounds *rounds, int peer)
{
    return find(rounds->to, rounds->count, peer);
}

int wefti_rounds_find_from(const wefti_rounds *rounds, int peer)
{
    return find(rounds->from, rounds->count, peer);
}

static wefti_rank_page *page_of(const wefti_fabric *fabric, int rank)
{
    return wefti_shared_get_page(&fabric->shared, rank);
}

/* What all ranks of the 2^round hosts up to this one have completed. */
static uint64_t least_before(const wefti_fabric *fabric, int round)
{
    const wefti_rounds *rounds = fabric->rounds;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < rounds->local_count; i++) {
        const uint64_t one =
            atomic_load(&page_of(fabric, rounds->locals[i])->completed);
        least = one < least ? one : least;
    }
    for (int k = 0; k < round; k++) {
        least = rounds->heard[k] < least ? rounds->heard[k] : least;
    }
    return least;
}

uint64_t wefti_rounds_offer(wefti_fabric *fabric, int peer)
{
    wefti_rounds *rounds = fabric->rounds;
    const int round = wefti_rounds_find_to(rounds, peer);
    if (round < 0) {
        return 0;
    }
    rounds->told[round] = least_before(fabric, round);
    return rounds->told[round];
}

void wefti_rounds_receive(wefti_fabric *fabric, int peer, uint64_t completed)
{
    wefti_rounds *rounds = fabric->rounds;
    const int round = wefti_rounds_find_from(rounds, peer);
    if (round >= 0 && rounds->heard[round] < completed) {
        rounds->heard[round] = completed;
    }
}

uint64_t wefti_rounds_get_completed(const wefti_fabric *fabric)
{
    const wefti_rounds *rounds = fabric->rounds;
    return rounds->leads
               ? least_before(fabric, rounds->count)
               : atomic_load(&page_of(fabric, rounds->leader)->all_completed);
}

void wefti_rounds_need(wefti_fabric *fabric, uint64_t number)
{
    wefti_rounds *rounds = fabric->rounds;
    if (rounds->needed < number) {
        rounds->needed = number;
    }
}

/* The leader shows its host what all have completed. */
static void show(wefti_fabric *fabric, uint64_t completed)
{
    const wefti_rounds *rounds = fabric->rounds;
    wefti_rank_page *own = page_of(fabric, fabric->rank);
    if (atomic_load(&own->all_completed) == completed) {
        return;
    }
    atomic_store(&own->all_completed, completed);
    for (int i = 0; i < rounds->local_count; i++) {
        if (rounds->locals[i] != fabric->rank) {
            wefti_doorbell_ring(fabric->bells[rounds->locals[i]]);
        }
    }
}

unsigned wefti_rounds_spread(wefti_fabric *fabric)
{
    const wefti_rounds *rounds = fabric->rounds;
    unsigned due = 0;
    if (!rounds || !rounds->leads) {
        return 0;
    }
    uint64_t least = least_before(fabric, 0);
    for (int k = 0; k < rounds->count; k++) {
        const uint64_t told = rounds->told[k];
        /* Multiples, so that a delay does not add up round by round. */
        if (least > told &&
            (least / TOLD_EACH > told / TOLD_EACH || told < rounds->needed)) {
            due |= 1U << k;
        }
        least = rounds->heard[k] < least ? rounds->heard[k] : least;
    }
    show(fabric, least);
    return due;
}
