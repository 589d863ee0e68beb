/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    the ranks that are left agree who they are and go on: after a death,
 *         after another one during the agreement, without one that stands
 *         still, and not at all where a survivor cannot build its end.
 *         With an argument the same over the network, for ranks that share
 *         memory as it says (WEFT_DOMAIN).
 * Method  worlds of processes that work and shrink until the parent says stop;
 *         it kills, stops and continues them at random moments (seed printed).
 *         Each survivor checks its communicator by a sum over world ranks, and
 *         by its rank, which goes to rank 0 and back.
 */
#include "base/clock.h"
#include "tests/comm/world.h"
#include "tests/seed.h"

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
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4, DEADLINE_S = 60 };

/* What parent and ranks share. */
struct arena {
    _Atomic int working[RANKS];   /* operations done since the last shrink */
    _Atomic int shrinking[RANKS]; /* times it has called shrink */
    _Atomic int size[RANKS];      /* ranks of its communicator now */
    _Atomic int finish;
};

static struct arena *arena;
static uint64_t seed;

static unsigned next_random(void)
{
    return (unsigned)(random_next(&seed) >> 33);
}

static void await(_Atomic int *value, int least)
{
    int64_t end_ns = wefti_clock_ns() + (int64_t)DEADLINE_S * 1000000000;
    while (atomic_load(value) < least) {
        if (wefti_clock_ns() > end_ns) {
            fail_msg("waited %d s for %d", DEADLINE_S, least);
        }
        usleep(200);
    }
}

/* One round of work; its result holds for every set of ranks. */
static weft_status work(weft_comm *comm, int *wrong)
{
    static float large[1 << 14];
    int32_t own = weft_comm_get_rank(comm), back = -1, ranks[RANKS];
    int32_t *all = own == 0 ? ranks : NULL;
    int32_t count = 1, stop = weft_comm_get_rank(comm) == 0
                                  ? atomic_load(&arena->finish)
                                  : 0;
    weft_status status = weft_allreduce(&count, &count, 1, WEFT_DTYPE_I32,
                                        WEFT_REDOP_SUM, comm, NULL);
    if (status == WEFT_OK) {
        status = weft_allreduce(large, large, 1 << 14, WEFT_DTYPE_F32,
                                WEFT_REDOP_SUM, comm, NULL);
    }
    if (status == WEFT_OK) {
        status = weft_broadcast(&stop, &stop, 1, WEFT_DTYPE_I32, 0, comm, NULL);
    }
    if (status == WEFT_OK) {
        status = weft_gather(&own, all, 1, WEFT_DTYPE_I32, 0, comm, NULL);
    }
    if (status == WEFT_OK) {
        status = weft_scatter(all, &back, 1, WEFT_DTYPE_I32, 0, comm, NULL);
    }
    if (status == WEFT_OK) {
        *wrong += count != weft_comm_get_nranks(comm) || back != own;
    }
    return status == WEFT_OK && stop ? WEFT_INPROGRESS : status;
}

/* Works, and shrinks when it must, until told to stop; 20 + ranks at the end,
 * 10: the others went on without this rank. */
static int live(weft_comm *world, void *context)
{
    int own = weft_comm_get_rank(world), wrong = 0;
    weft_comm *comm = world, *less;
    (void)context;
    for (;;) {
        atomic_store(&arena->size[own], weft_comm_get_nranks(comm));
        weft_status status = work(comm, &wrong);
        atomic_fetch_add(&arena->working[own], 1);
        if (status == WEFT_INPROGRESS) {
            break;
        }
        if (status == WEFT_OK) {
            continue;
        }
        atomic_store(&arena->working[own], 0);
        atomic_fetch_add(&arena->shrinking[own], 1);
        status = weft_comm_shrink(comm, &less);
        if (status == WEFT_ERR_PEER && !less &&
            strstr(weft_error_text(), "have gone on without rank")) {
            return 10;
        }
        if (status != WEFT_OK) {
            fprintf(stderr, "rank %d: shrink: %s\n", own, weft_error_text());
            return 1;
        }
        if (comm != world) {
            weft_comm_destroy(comm);
        }
        comm = less;
    }
    int size = weft_comm_get_nranks(comm);
    if (comm != world) {
        weft_comm_destroy(comm);
    }
    return wrong ? 2 : 20 + size;
}

static void start(world_processes *started, int64_t timeout_ms)
{
    memset(arena, 0, sizeof(*arena));
    struct world world = {
        .nranks = RANKS, .config.timeout_ms = timeout_ms, .call = live};
    world_start_processes(&world, started);
}

/* Killed ones left, all others finish with size ranks. */
static void finish(world_processes *started, const bool *out, int size)
{
    for (int rank = 0; rank < RANKS; rank++) {
        if (!out[rank]) {
            int64_t end_ns =
                wefti_clock_ns() + (int64_t)DEADLINE_S * 1000000000;
            while (atomic_load(&arena->size[rank]) != size ||
                   atomic_load(&arena->working[rank]) < 2) {
                if (wefti_clock_ns() > end_ns) {
                    fail_msg("rank %d has %d ranks, not %d", rank,
                             atomic_load(&arena->size[rank]), size);
                }
                usleep(500);
            }
        }
    }
    atomic_store(&arena->finish, 1);
    assert_int_equal(world_finish_survivors(started, DEADLINE_S), 0);
    for (int rank = 0; rank < RANKS; rank++) {
        if (!out[rank]) {
            assert_true(WIFEXITED(started->exit_status[rank]));
            assert_int_equal(WEXITSTATUS(started->exit_status[rank]),
                             20 + size);
        }
    }
}

static void strike(const world_processes *started, int rank)
{
    assert_int_equal(kill(started->pids[rank], SIGKILL), 0);
}

/* Over the network there are half as many: each takes longer. */
static int rounds(int few, int many)
{
    return getenv("WEFT_TEST_LONG") ? many
           : getenv("WEFT_DOMAIN")  ? few / 2
                                    : few;
}

static void test_shrink_after_a_death_goes_on_without_it(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(8, 200); round++) {
        world_processes started;
        bool out[RANKS] = {false};
        int victim = round % RANKS;
        start(&started, 20000);
        await(&arena->working[victim], 1 + (int)(next_random() % 20));
        usleep((useconds_t)(next_random() % 500));
        strike(&started, victim);
        out[victim] = true;
        finish(&started, out, RANKS - 1);
    }
}

static void test_shrink_survives_a_death_during_the_agreement(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(8, 200); round++) {
        world_processes started;
        bool out[RANKS] = {false};
        int first = (int)(next_random() % RANKS);
        int second = (first + 1 + round % (RANKS - 1)) % RANKS;
        start(&started, 20000);
        await(&arena->working[first], 1);
        strike(&started, first);
        await(&arena->shrinking[second], 1);
        usleep((useconds_t)(next_random() % 1500));
        strike(&started, second);
        out[first] = out[second] = true;
        finish(&started, out, RANKS - 2);
    }
}

static void test_shrink_goes_on_without_one_that_stands_still(void **state)
{
    (void)state;
    world_processes started;
    bool out[RANKS] = {false};
    int victim = (int)(next_random() % RANKS);
    start(&started, 700);
    await(&arena->working[victim], 3);
    assert_int_equal(kill(started.pids[victim], SIGSTOP), 0);
    int other = (victim + 1) % RANKS;
    await(&arena->shrinking[other], 1);
    while (atomic_load(&arena->size[other]) != RANKS - 1) {
        usleep(1000);
    }
    assert_int_equal(kill(started.pids[victim], SIGCONT), 0);
    out[victim] = true;
    finish(&started, out, RANKS - 1);
    assert_true(WIFEXITED(started.exit_status[victim]));
    assert_int_equal(WEXITSTATUS(started.exit_status[victim]), 10);
}

/* Shrinks a healthy world; rank 1 has no room at first. */
static int shrink_twice(weft_comm *world, void *context)
{
    weft_comm *less;
    int rank = weft_comm_get_rank(world), failures = 0;
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    (void)context;
    if (!file || fscanf(file, "%lu", &pages) != 1) {
        return 1;
    }
    fclose(file);
    struct rlimit limit = {pages * 4096 + (32 << 20), RLIM_INFINITY};
    if (rank == 1) {
        failures += setrlimit(RLIMIT_AS, &limit) != 0;
    }
    weft_status status = weft_comm_shrink(world, &less);
    if (status != WEFT_ERR_NO_MEMORY || less ||
        !strstr(weft_error_text(), "rank 1 could not join what is left")) {
        fprintf(stderr, "%s\n", weft_error_text());
        failures++;
    }
    limit.rlim_cur = RLIM_INFINITY;
    if (rank == 1) {
        failures += setrlimit(RLIMIT_AS, &limit) != 0;
    }
    if (weft_comm_shrink(world, &less) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
        return failures + 1;
    }
    failures += weft_comm_get_rank(less) != rank;
    failures += weft_comm_get_nranks(less) != RANKS;
    failures += weft_barrier(less, NULL) != WEFT_OK;
    failures += weft_barrier(world, NULL) != WEFT_ERR_ABORTED;
    weft_comm_destroy(less);
    return failures;
}

static void test_shrink_where_one_cannot_build_fails_alike(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = shrink_twice};
    assert_int_equal(world_run_processes(&world), 0);
}

/* Rank 2 leaves at once; the others shrink, as threads. */
static int shrink_without_two(weft_comm *world, void *context)
{
    weft_comm *less, *again;
    int rank = weft_comm_get_rank(world), failures = 0;
    (void)context;
    if (rank == 2) {
        return 0;
    }
    if (weft_comm_shrink(world, &less) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
        return 1;
    }
    failures += weft_comm_get_nranks(less) != RANKS - 1;
    failures += weft_comm_get_rank(less) != (rank > 2 ? rank - 1 : rank);
    failures += weft_barrier(less, NULL) != WEFT_OK;
    /* What came of it can be shrunk in turn, and split. */
    failures += weft_comm_shrink(less, &again) != WEFT_OK;
    weft_comm_destroy(less);
    failures += weft_comm_split(again, rank % 2, 0, NULL, &less) != WEFT_OK;
    failures += weft_barrier(less, NULL) != WEFT_OK;
    weft_comm_destroy(less);
    weft_comm_destroy(again);
    return failures;
}

static void test_shrink_leaves_out_who_has_left(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = shrink_without_two};
    assert_int_equal(world_run_threads(&world), 0);
}

static int shrink_alone(weft_comm *world, void *context)
{
    weft_comm *less = world;
    (void)context;
    int failures = weft_comm_shrink(NULL, &less) != WEFT_ERR_INVALID;
    failures += weft_comm_shrink(world, NULL) != WEFT_ERR_INVALID;
    for (int round = 0; round < 8; round++) {
        failures += weft_comm_shrink(world, &less) != WEFT_OK;
        failures += weft_barrier(less, NULL) != WEFT_OK;
        weft_comm_destroy(less);
    }
    failures += weft_comm_shrink(world, &less) != WEFT_ERR_PEER;
    failures += !strstr(weft_error_text(), "8 times");
    return failures;
}

static void test_shrink_has_an_end(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = shrink_alone};
    assert_int_equal(world_run_threads(&world), 0);
    world.nranks = 1;
    assert_int_equal(world_run_threads(&world), 0);
}

static int set_up(void **state)
{
    (void)state;
    seed = random_seed();
    arena = mmap(NULL, sizeof(*arena), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return arena == MAP_FAILED;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        setenv("WEFT_DOMAIN", argv[1], 1);
    }
    /* Processes first: a process with threads must not fork. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shrink_after_a_death_goes_on_without_it),
        cmocka_unit_test(test_shrink_survives_a_death_during_the_agreement),
        cmocka_unit_test(test_shrink_goes_on_without_one_that_stands_still),
        cmocka_unit_test(test_shrink_where_one_cannot_build_fails_alike),
        cmocka_unit_test(test_shrink_leaves_out_who_has_left),
        cmocka_unit_test(test_shrink_has_an_end),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
