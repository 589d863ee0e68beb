/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    creating and splitting end alike on all ranks: all succeed, or all
 *         return the reason of the one that could not.
 * Method  worlds of processes in which one rank is given an impossible setting
 *         or too little address space; every rank checks status, text and the
 *         time it took. And a crowd of 256 ranks, as threads.
 */
#include "base/clock.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { CROWD = 64, CROWD_MS = 60000 };
#else
enum { CROWD = 256, CROWD_MS = 5000 };
#endif
enum { RANKS = 3, VICTIM = 1, SOON_MS = 5000 };

/* What stops the victim, and what everybody is to hear. */
typedef struct scene {
    void (*harm)(void);
    weft_status status;
    const char *text;
    int64_t begin_ns;
} scene;

static void before(int rank, void *context)
{
    const scene *own = context;
    if (rank == VICTIM && own->harm) {
        own->harm();
    }
}

static int check(int rank, weft_status status, const scene *own)
{
    int64_t took_ms = (wefti_clock_ns() - own->begin_ns) / 1000000;
    if (status == own->status && strstr(weft_error_text(), own->text) &&
        took_ms < SOON_MS) {
        return 0;
    }
    fprintf(stderr, "rank %d: %s: \"%s\" after %lld ms, wanted %s: \"%s\"\n",
            rank, weft_status_text(status), weft_error_text(),
            (long long)took_ms, weft_status_text(own->status), own->text);
    return 1;
}

static int refused(int rank, weft_status status, void *context)
{
    return check(rank, status, context);
}

static int must_not_begin(weft_comm *comm, void *context)
{
    (void)comm;
    (void)context;
    return 1;
}

static void run(scene *own, world_rank_call call)
{
    own->begin_ns = wefti_clock_ns();
    struct world world = {.nranks = RANKS,
                          .config.timeout_ms = 20000,
                          .call = call,
                          .context = own,
                          .before = before,
                          .refused = refused};
    assert_int_equal(world_run_processes(&world), 0);
}

static void spoil_board(void)
{
    setenv("WEFT_BOARD_FD", "9999", 1);
}

static void spoil_log(void)
{
    setenv("WEFT_LOG", "loud", 1);
}

static void spoil_algorithm(void)
{
    setenv("WEFT_ALGORITHM", "all_reduce:magic", 1);
}

/* Bytes of address space in use. */
static rlim_t used_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1) {
        abort();
    }
    fclose(file);
    return (rlim_t)pages * 4096;
}

/* Room for small things, and not for a communicator. */
static void take_space(void)
{
    struct rlimit limit = {used_bytes() + (64 << 20), RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit) != 0) {
        abort();
    }
}

static void take_file_size(void)
{
    struct rlimit limit = {1 << 30, RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        abort();
    }
}

static void test_create_where_one_rank_cannot_build_fails_alike(void **state)
{
    (void)state;
    scene scenes[] = {
        {spoil_board, WEFT_ERR_SYSTEM, "rank 1: WEFT_BOARD_FD=9999", 0},
        {spoil_log, WEFT_ERR_INVALID, "rank 1: WEFT_LOG=loud: allowed", 0},
        {spoil_algorithm, WEFT_ERR_INVALID, "rank 1: WEFT_ALGORITHM", 0},
        {take_space, WEFT_ERR_NO_MEMORY, "(RLIMIT_AS, ulimit -v)", 0},
        {take_file_size, WEFT_ERR_SYSTEM, "(RLIMIT_FSIZE, ulimit -f)", 0},
    };
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
        run(&scenes[i], must_not_begin);
    }
}

static void test_create_alone_with_a_misspelt_level_is_refused(void **state)
{
    (void)state;
    weft_comm *comm = (weft_comm *)&state;
    setenv("WEFT_LOG", "loud", 1);
    weft_status status = weft_comm_create(NULL, &comm);
    unsetenv("WEFT_LOG");
    assert_int_equal(status, WEFT_ERR_INVALID);
    assert_null(comm);
    assert_non_null(strstr(weft_error_text(), "WEFT_LOG=loud"));
}

static int split_in_a_corner(weft_comm *comm, void *context)
{
    scene *own = context;
    weft_comm *part;
    int rank = weft_comm_get_rank(comm), failures = 0;
    for (int round = 0; round < 2; round++) {
        if (rank == VICTIM && round == 0) {
            take_space();
        }
        own->begin_ns = wefti_clock_ns();
        weft_status status = weft_comm_split(comm, 0, 0, NULL, &part);
        if (round == 0) {
            failures += check(rank, status, own);
            failures += part != NULL;
        } else if (status == WEFT_OK) {
            failures += weft_barrier(part, NULL) != WEFT_OK;
            weft_comm_destroy(part);
        } else {
            fprintf(stderr, "rank %d: %s\n", rank, weft_error_text());
            failures++;
        }
        if (rank == VICTIM && round == 0) {
            struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
            failures += setrlimit(RLIMIT_AS, &limit) != 0;
        }
    }
    return failures;
}

static void test_split_where_one_rank_has_no_memory_fails_alike(void **state)
{
    (void)state;
    scene own = {NULL, WEFT_ERR_NO_MEMORY,
                 "rank 1 could not join the split: cannot map", 0};
    run(&own, split_in_a_corner);
}

static int come_and_go(weft_comm *comm, void *context)
{
    (void)context;
    return weft_comm_get_nranks(comm) != CROWD;
}

static void test_create_of_a_crowd_of_threads_is_quick(void **state)
{
    (void)state;
    int64_t begin_ns = wefti_clock_ns();
    struct world world = {.nranks = CROWD, .call = come_and_go};
    assert_int_equal(world_run_threads(&world), 0);
    int64_t took_ms = (wefti_clock_ns() - begin_ns) / 1000000;
    print_message("%d ranks came and went in %lld ms\n", CROWD,
                  (long long)took_ms);
    assert_true(took_ms < CROWD_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create_where_one_rank_cannot_build_fails_alike),
        cmocka_unit_test(test_create_alone_with_a_misspelt_level_is_refused),
        cmocka_unit_test(test_split_where_one_rank_has_no_memory_fails_alike),
        cmocka_unit_test(test_create_of_a_crowd_of_threads_is_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
