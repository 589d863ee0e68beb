/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     Over one hop and two, a token's row comes to each rank with one of
 *          its experts, once, and to no other; over two it crosses into each
 *          node once at most; no pair of ranks exchanges more than it has room
 *          for, and both count that alike.
 * Method   Every way to part one to six ranks into nodes, neighbours or not;
 *          tokens drawn from a printed seed, experts named twice, none, and
 *          such as there are not included. Followed hop by hop, without I/O.
 */
#include "overlap/moe_layout.h"

#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MOST = 6, SLOTS = 4, TOKENS = 24 };

typedef struct trip {
    const wefti_moe_layout *layout;
    size_t rows[2][RANKS_MOST][RANKS_MOST]; /* of a hop, between two ranks */
    int visits[RANKS_MOST];                 /* of one token at its end */
    int entries[RANKS_MOST];                /* into each node from another */
} trip;

static bool in_order(const wefti_moe_layout *layout, int before, int after)
{
    const int *nodes = layout->nodes;
    return nodes[before] != nodes[after] ? nodes[before] < nodes[after]
                                         : before < after;
}

/* Follows a token from a rank to where its way ends. */
static void follow(trip *of, int hop, int from, const int32_t *experts)
{
    const wefti_moe_layout *layout = of->layout;
    int targets[SLOTS];
    const int count = wefti_moe_targets(layout, hop, from, experts, targets);
    for (int i = 0; i < count; i++) {
        const int to = targets[i];
        assert_in_range(to, 0, layout->nranks - 1);
        if (i > 0) {
            assert_true(in_order(layout, targets[i - 1], to));
        }
        of->rows[hop][from][to]++;
        if (layout->nodes[from] != layout->nodes[to]) {
            assert_int_equal(hop, 0);
            of->entries[layout->nodes[to]]++;
        }
        if (hop == 0 && layout->hops == 2) {
            follow(of, 1, to, experts);
        } else {
            of->visits[to]++;
        }
    }
}

static bool wants(const wefti_moe_layout *layout, const int32_t *experts,
                  int rank)
{
    for (int slot = 0; slot < SLOTS; slot++) {
        if (wefti_moe_owner(layout, experts[slot]) == rank) {
            return true;
        }
    }
    return false;
}

static void check_token(trip *of, int source, const int32_t *experts)
{
    const wefti_moe_layout *layout = of->layout;
    int ranks_wanted[RANKS_MOST] = {0};
    memset(of->visits, 0, sizeof(of->visits));
    memset(of->entries, 0, sizeof(of->entries));
    follow(of, 0, source, experts);
    for (int rank = 0; rank < layout->nranks; rank++) {
        const bool wanted = wants(layout, experts, rank);
        ranks_wanted[layout->nodes[rank]] += wanted;
        assert_int_equal(of->visits[rank], wanted);
    }
    for (int node = 0; node < layout->node_count; node++) {
        const int ranks = ranks_wanted[node];
        const int entries = layout->nodes[source] == node ? 0
                            : layout->hops == 1           ? ranks
                                                          : ranks > 0;
        assert_int_equal(of->entries[node], entries);
    }
}

static void draw(uint64_t *seed, int experts, int32_t *experts_out)
{
    for (int slot = 0; slot < SLOTS; slot++) {
        experts_out[slot] =
            (int32_t)(random_next(seed) % (uint64_t)(experts + 3)) - 2;
    }
}

static void check_relays(const wefti_moe_layout *layout)
{
    for (int source = 0; source < layout->nranks; source++) {
        for (int node = 0; node < layout->node_count; node++) {
            const int relay = wefti_moe_relay(layout, source, node);
            const int ranks = layout->begins[node + 1] - layout->begins[node];
            assert_int_equal(layout->nodes[relay], node);
            assert_int_equal(layout->indices[relay],
                             layout->indices[source] % ranks);
        }
        assert_int_equal(wefti_moe_relay(layout, source, layout->nodes[source]),
                         source);
    }
}

static void check_world(wefti_moe_layout layout, const int *firsts,
                        uint64_t *seed)
{
    assert_true(wefti_moe_layout_init(&layout, firsts));
    trip of = {.layout = &layout};
    int32_t experts[SLOTS];
    check_relays(&layout);
    for (int source = 0; source < layout.nranks; source++) {
        for (int token = 0; token < TOKENS; token++) {
            draw(seed, layout.experts, experts);
            check_token(&of, source, experts);
        }
    }
    for (int hop = 0; hop < layout.hops; hop++) {
        for (int from = 0; from < layout.nranks; from++) {
            for (int to = 0; to < layout.nranks; to++) {
                assert_true(of.rows[hop][from][to] <=
                            wefti_moe_most_rows(&layout, hop, from, to));
            }
        }
    }
    wefti_moe_layout_fini(&layout);
}

/* All partitions of the ranks: each joins a node there is, or begins one. */
static void for_all_nodes(wefti_moe_layout layout, int *firsts, int rank,
                          uint64_t *seed, int *worlds)
{
    if (rank == layout.nranks) {
        check_world(layout, firsts, seed);
        ++*worlds;
        return;
    }
    for (int first = 0; first <= rank; first++) {
        if (first == rank || firsts[first] == first) {
            firsts[rank] = first;
            for_all_nodes(layout, firsts, rank + 1, seed, worlds);
        }
    }
}

static void test_moe_layout_brings_rows_to_experts_once(void **state)
{
    uint64_t seed = random_seed();
    static const int partitions[] = {1, 2, 5, 15, 52, 203};
    (void)state;
    for (int nranks = 1; nranks <= RANKS_MOST; nranks++) {
        for (int hops = 1; hops <= 2; hops++) {
            for (int here = 1; here <= 3; here++) {
                const wefti_moe_layout layout = {.nranks = nranks,
                                                 .hops = hops,
                                                 .experts = nranks * here,
                                                 .slots = SLOTS,
                                                 .tokens = TOKENS};
                int firsts[RANKS_MOST], worlds = 0;
                for_all_nodes(layout, firsts, 0, &seed, &worlds);
                assert_int_equal(worlds, partitions[nranks - 1]);
            }
        }
    }
}

static int hops_of(int nranks, const int *firsts)
{
    wefti_moe_layout layout = {
        .nranks = nranks, .experts = nranks, .slots = 1, .tokens = 1};
    assert_true(wefti_moe_layout_init(&layout, firsts));
    const int hops = layout.hops;
    wefti_moe_layout_fini(&layout);
    return hops;
}

static void test_moe_layout_takes_two_hops_where_they_save_rows(void **state)
{
    (void)state;
    assert_int_equal(hops_of(4, (const int[]){0, 0, 2, 2}), 2);
    assert_int_equal(hops_of(4, (const int[]){0, 1, 0, 0}), 2);
    assert_int_equal(hops_of(4, (const int[]){0, 0, 0, 0}), 1);
    assert_int_equal(hops_of(3, (const int[]){0, 1, 2}), 1);
    assert_int_equal(hops_of(1, (const int[]){0}), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moe_layout_brings_rows_to_experts_once),
        cmocka_unit_test(test_moe_layout_takes_two_hops_where_they_save_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
