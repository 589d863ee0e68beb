/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: some ranks go on without others that are alive, which need not call; a
 * healthy parent stays so, for those left out too; wrong and different lists
 * are refused by name; a death, of a rank that stays or of one that is left
 * out, before or while they do so, leaves the others with a communicator.
 *
 * Method: worlds of processes, and of threads, in which ranks 1 and 3 are left
 * out. Who is to die never comes to the call, so that it dies while the others
 * are in it. With an argument over the network, as it says (WEFT_DOMAIN).
 */
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"

#include "comm/core/core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 5, DEADLINE_S = 40 };

static const int out[] = {1, 3};

/* Whether comm has so many ranks, and sums over all of them. */
static int check_left(weft_comm *comm, int nranks, const char *name)
{
    int32_t count = 1;
    int failures = expect(weft_allreduce(&count, &count, 1, WEFT_DTYPE_I32,
                                         WEFT_REDOP_SUM, comm, NULL),
                          WEFT_OK, NULL);
    if (count != nranks || weft_comm_get_nranks(comm) != nranks ||
        (name && strcmp(comm->name, name) != 0)) {
        fprintf(stderr, "\"%s\" has %d ranks and sums %d, wanted \"%s\", %d\n",
                comm->name, weft_comm_get_nranks(comm), count, name, nranks);
        failures++;
    }
    return failures;
}

static bool is_out(int rank)
{
    return rank == out[0] || rank == out[1];
}

static int healthy(weft_comm *world, void *context)
{
    (void)context;
    const int rank = weft_comm_get_rank(world);
    const weft_comm_config named = {
        .size_bytes = sizeof(named), .name = "less", .timeout_ms = 4321};
    weft_comm *less, *again, *all;
    int failures = 0;
    if (!is_out(rank)) {
        failures += expect(weft_comm_shrink_without(world, out, 2, NULL, &less),
                           WEFT_OK, NULL);
        failures += weft_comm_get_rank(less) != rank / 2;
        failures += check_left(less, 3, "world-1,3");
        failures +=
            expect(weft_comm_shrink_without(world, out, 2, NULL, &again),
                   WEFT_OK, NULL);
        failures += check_left(again, 3, "world-1,3#2");
        weft_comm_destroy(again);
        failures +=
            expect(weft_comm_shrink_without(world, out, 2, &named, &again),
                   WEFT_OK, NULL);
        failures += check_left(again, 3, "less");
        failures += again->timeout_ns != INT64_C(4321000000);
        weft_comm_destroy(again);
        /* What came of it can be shrunk in turn, down to one rank. */
        const int others[] = {weft_comm_get_rank(less) == 0 ? 1 : 0,
                              weft_comm_get_rank(less) == 2 ? 1 : 2};
        failures +=
            expect(weft_comm_shrink_without(less, others, 2, NULL, &again),
                   WEFT_OK, NULL);
        failures += check_left(again, 1, NULL);
        weft_comm_destroy(again);
        weft_comm_destroy(less);
    }
    /* The parent is as it was, for all. */
    failures += check_left(world, RANKS, "world");
    failures += expect(weft_comm_shrink_without(world, NULL, 0, NULL, &all),
                       WEFT_OK, NULL);
    failures += check_left(all, RANKS, NULL);
    weft_comm_destroy(all);
    failures += check_left(world, RANKS, "world");
    return failures;
}

static void test_shrink_without_healthy_parent_stays_healthy(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = healthy};
    assert_int_equal(world_run_processes(&world), 0);
}

static void test_shrink_without_of_threads_parent_stays_healthy(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = healthy};
    assert_int_equal(world_run_threads(&world), 0);
}

static int wrong_lists(weft_comm *world, void *context)
{
    (void)context;
    const int rank = weft_comm_get_rank(world);
    const int own[] = {rank}, twice[] = {(rank + 1) % 3, (rank + 1) % 3},
              high[] = {3}, low[] = {-1}, two[] = {2};
    weft_comm_config bad = {.size_bytes = sizeof(bad), .sm_budget = 9};
    weft_comm *less;
    int failures = 0;
    const struct {
        const int *ranks;
        int count;
        const char *text;
    } cases[] = {{own, 1, "the caller's own"},
                 {twice, 2, "ranks[0] and ranks[1] are both"},
                 {high, 1, "ranks[0] is 3: allowed is 0 to 2"},
                 {low, 1, "ranks[0] is -1"},
                 {NULL, 1, "rank_count 1"},
                 {two, 3, "rank_count 3: allowed is a list of 0 to 2 ranks"},
                 {two, -1, "rank_count -1"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        less = world;
        failures +=
            expect(weft_comm_shrink_without(world, cases[i].ranks,
                                            cases[i].count, NULL, &less),
                   WEFT_ERR_INVALID, cases[i].text);
        failures += less != NULL;
    }
    failures += expect(weft_comm_shrink_without(NULL, two, 1, NULL, &less),
                       WEFT_ERR_INVALID, "comm is NULL");
    failures += expect(weft_comm_shrink_without(world, two, 0, NULL, NULL),
                       WEFT_ERR_INVALID, "comm_out is NULL");
    if (rank < 2) {
        /* One rank's config is wrong: both hear whose. */
        failures += expect(
            weft_comm_shrink_without(world, two, 1, rank ? &bad : NULL, &less),
            WEFT_ERR_INVALID, rank ? "sm_budget 9" : "rank 1's config was");
        failures += expect(weft_comm_shrink_without(world, two, 1, NULL, &less),
                           WEFT_OK, NULL);
        failures += check_left(less, 2, "world-2");
        weft_comm_destroy(less);
    }
    return failures + check_left(world, 3, "world");
}

static void test_shrink_without_wrong_list_refused_by_name(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = wrong_lists};
    assert_int_equal(world_run_threads(&world), 0);
}

/* Rank 0 leaves nobody out, rank 1 rank 2, and rank 2 nobody. */
static int other_lists(weft_comm *world, void *context)
{
    (void)context;
    const int two[] = {2};
    weft_comm *less;
    int failures = expect(
        weft_comm_shrink_without(
            world, two, weft_comm_get_rank(world) == 1 ? 1 : 0, NULL, &less),
        WEFT_ERR_INVALID, "rank 1 lists other members than rank 0");
    return failures + check_left(world, 3, "world");
}

static void test_shrink_without_other_lists_refused_on_all(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = other_lists};
    assert_int_equal(world_run_threads(&world), 0);
}

/* What parent and ranks share. */
struct arena {
    _Atomic int called[RANKS]; /* it is about to shrink */
    _Atomic int strike;        /* whom it kills may go on to its death */
};

static struct arena *arena;

/* Rank victim never calls; the others end with so many ranks. */
struct death {
    int victim;
    bool parent_failed; /* the others know it before they call */
};

static int survive(weft_comm *world, void *context)
{
    const struct death *death = context;
    const int rank = weft_comm_get_rank(world);
    const int left = is_out(death->victim) ? 3 : 2;
    weft_comm *less;
    if (rank == death->victim || is_out(rank)) {
        while (!atomic_load(&arena->strike)) {
            usleep(200);
        }
        if (rank == death->victim) {
            kill(getpid(), SIGKILL);
        }
        return 0; /* it leaves, as one that is left out may */
    }
    int failures = 0;
    if (death->parent_failed) {
        atomic_fetch_add(&arena->called[rank], 1);
        failures += weft_barrier(world, NULL) != WEFT_ERR_PEER;
    }
    atomic_fetch_add(&arena->called[rank], 1);
    failures += expect(weft_comm_shrink_without(world, out, 2, NULL, &less),
                       WEFT_OK, NULL);
    if (failures == 0) {
        failures += check_left(less, left, NULL);
        weft_comm_destroy(less);
    }
    return failures;
}

static void run_death(struct death death)
{
    memset(arena, 0, sizeof(*arena));
    struct world world = {.nranks = RANKS,
                          .config = {.timeout_ms = 20000},
                          .call = survive,
                          .context = &death};
    world_processes started;
    world_start_processes(&world, &started);
    for (int rank = 0; rank < RANKS; rank++) {
        for (int i = 0; i < 100000 && rank != death.victim && !is_out(rank) &&
                        !atomic_load(&arena->called[rank]);
             i++) {
            usleep(200);
        }
    }
    atomic_store(&arena->strike, 1);
    assert_int_equal(world_finish_survivors(&started, DEADLINE_S), 0);
    for (int rank = 0; rank < RANKS; rank++) {
        if (rank == death.victim) {
            assert_true(WIFSIGNALED(started.exit_status[rank]));
        } else {
            assert_int_equal(started.exit_status[rank], 0);
        }
    }
}

/* The first member, a later one, and one that is left out. */
static void test_shrink_without_a_death_others_go_on(void **state)
{
    (void)state;
    for (int victim = 0; victim <= 3; victim++) {
        run_death((struct death){.victim = victim});
    }
}

static void test_shrink_without_failed_parent_survivors_go_on(void **state)
{
    (void)state;
    for (int victim = 2; victim <= 3; victim++) {
        run_death((struct death){.victim = victim, .parent_failed = true});
    }
}

static int set_up(void **state)
{
    (void)state;
    arena = mmap(NULL, sizeof(*arena), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return arena == MAP_FAILED;
}

int main(int argc, char **argv)
{
    /* Processes first: a process with threads must not fork. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shrink_without_healthy_parent_stays_healthy),
        cmocka_unit_test(test_shrink_without_a_death_others_go_on),
        cmocka_unit_test(test_shrink_without_failed_parent_survivors_go_on),
        cmocka_unit_test(test_shrink_without_of_threads_parent_stays_healthy),
        cmocka_unit_test(test_shrink_without_wrong_list_refused_by_name),
        cmocka_unit_test(test_shrink_without_other_lists_refused_on_all),
    };
    const struct CMUnitTest over_the_network[] = {tests[0], tests[1], tests[2]};
    if (argc > 1) {
        setenv("WEFT_DOMAIN", argv[1], 1);
        return cmocka_run_group_tests(over_the_network, set_up, NULL);
    }
    return cmocka_run_group_tests(tests, set_up, NULL);
}
