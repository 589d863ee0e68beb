/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/choice_cache.c - a table with one place for each key, read and
 * written by any thread without a lock.
 *
 *      turn     even: whole; odd: being written; a reader that finds the same
 *               even turn before and after has read one entry
 *      request  what was asked, packed; 0: the place is empty
 */
#include "comm/core/choice_cache.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { PLACES_LOG2 = 6, PLACES = 1 << PLACES_LOG2 };

/* Each store of a field is a release and each load an acquire, so a reader that
 * sees a field of a later turn sees that turn. */
typedef struct entry {
    _Atomic uint32_t turn;
    _Atomic uint32_t answer;
    _Atomic uint64_t request, elems, longest, chunk_elems, relay_elems;
} entry;

struct wefti_choice_cache {
    entry entries[PLACES];
};

/* An answer: the digest, and whether it is refused. */
enum { ANSWER_REFUSED = 1 << 8 };

wefti_choice_cache *wefti_choice_cache_create(void)
{
    return calloc(1, sizeof(wefti_choice_cache));
}

void wefti_choice_cache_destroy(wefti_choice_cache *cache)
{
    free(cache);
}

size_t wefti_choice_cache_bytes(void)
{
    return sizeof(wefti_choice_cache);
}

/* Never 0. Costs know rank 0 from any other root, but not these apart. */
static uint64_t pack_request(const wefti_scope *scope, const weft_op *op,
                             const wefti_role *role)
{
    bool usual = !scope->rates || scope->rates == &wefti_rates_usual;
    bool gated = op->gate_elems == WEFT_GATE_PER_RANK;
    return UINT64_C(1) << 63 | (uint64_t)wefti_op_is_cut(op) << 53 |
           (uint64_t)gated << 52 |
           (uint64_t)(op->deferred_counts != NULL) << 51 |
           (uint64_t)usual << 50 | (uint64_t)(op->root != 0) << 49 |
           (uint64_t)role->shape->stepwise << 48 |
           (uint64_t)(uint16_t)op->redop << 32 |
           (uint64_t)scope->tuning->allowed[op->collective] << 16 |
           (uint64_t)(uint8_t)op->dtype << 8 | (uint8_t)op->collective;
}

static entry *find_place(wefti_choice_cache *cache, uint64_t request,
                         wefti_total total)
{
    /* Fibonacci hashing: the high bits of a product depend on all others. */
    uint64_t mixed =
        (request ^ total.elems ^ total.longest) * UINT64_C(0x9e3779b97f4a7c15);
    return &cache->entries[mixed >> (64 - PLACES_LOG2)];
}

static bool read_entry(entry *at, uint64_t request, wefti_total total,
                       wefti_choice *choice_out)
{
    uint32_t turn = atomic_load_explicit(&at->turn, memory_order_acquire);
    bool same =
        atomic_load_explicit(&at->request, memory_order_acquire) == request &&
        atomic_load_explicit(&at->elems, memory_order_acquire) == total.elems &&
        atomic_load_explicit(&at->longest, memory_order_acquire) ==
            total.longest;
    if (!same) {
        return false;
    }
    uint32_t answer = atomic_load_explicit(&at->answer, memory_order_acquire);
    *choice_out = (wefti_choice){.chunk_elems = atomic_load_explicit(
                                     &at->chunk_elems, memory_order_acquire),
                                 .relay_elems = atomic_load_explicit(
                                     &at->relay_elems, memory_order_acquire),
                                 .digest = (uint8_t)answer,
                                 .refused = (answer & ANSWER_REFUSED) != 0};
    if (choice_out->digest) {
        choice_out->pattern = wefti_patterns[choice_out->digest - 1];
    }
    return turn % 2 == 0 &&
           atomic_load_explicit(&at->turn, memory_order_relaxed) == turn;
}

/* Where another thread writes the place, its entry will do. */
static void write_entry(entry *at, uint64_t request, wefti_total total,
                        const wefti_choice *choice)
{
    uint32_t turn = atomic_load_explicit(&at->turn, memory_order_relaxed);
    if (turn % 2 != 0 ||
        !atomic_compare_exchange_strong(&at->turn, &turn, turn + 1)) {
        return;
    }
    uint32_t answer = choice->digest | (choice->refused ? ANSWER_REFUSED : 0U);
    atomic_store_explicit(&at->answer, answer, memory_order_release);
    atomic_store_explicit(&at->request, request, memory_order_release);
    atomic_store_explicit(&at->elems, total.elems, memory_order_release);
    atomic_store_explicit(&at->longest, total.longest, memory_order_release);
    atomic_store_explicit(&at->chunk_elems, choice->chunk_elems,
                          memory_order_release);
    atomic_store_explicit(&at->relay_elems, choice->relay_elems,
                          memory_order_release);
    atomic_store_explicit(&at->turn, turn + 2, memory_order_release);
}

wefti_choice wefti_choice_cache_get(wefti_choice_cache *cache,
                                    const wefti_scope *scope, const weft_op *op,
                                    const wefti_role *role)
{
    uint64_t request = pack_request(scope, op, role);
    const wefti_total total = wefti_select_total(op, scope->nranks);
    entry *at = find_place(cache, request, total);
    wefti_choice choice;
    if (!read_entry(at, request, total, &choice)) {
        choice = wefti_select(scope, op, role);
        write_entry(at, request, total, &choice);
    }
    return choice;
}
