/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    creating and splitting end alike on all ranks: all succeed, or all
 *         return the reason of the one that could not.
 * Method  worlds of processes in which one rank is given an impossible setting
 *         or config, or too little address space or descriptors; every rank
 *         checks status, text and the time it took. And a crowd of 256 ranks,
 *         as threads.
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
enum { CROWD = 64, CROWD_MS = 60000, STRIDE = 3 }; /* of the scenes */
#else
enum { CROWD = 256, CROWD_MS = 5000, STRIDE = 1 };
#endif
enum { RANKS = 3, VICTIM = 1, SOON_MS = 5000 };

/* What stops the victim, and what everybody is to hear. */
typedef struct scene {
    void (*harm)(void);
    weft_status status;
    const char *text;
    int64_t begin_ns;
    void (*spoil)(weft_comm_config *config);
} scene;

static void before(int rank, void *context)
{
    const scene *own = context;
    if (rank == VICTIM && own->harm) {
        own->harm();
    }
}

static void configure(int rank, weft_comm_config *config, void *context)
{
    const scene *own = context;
    if (rank == VICTIM && own->spoil) {
        own->spoil(config);
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
                          .configure = configure,
                          .refused = refused};
    assert_int_equal(world_run_processes(&world), 0);
}

static void spoil_board(void)
{
    setenv("WEFT_BOARD_FD", "9999", 1);
}

static void spoil_domain(void)
{
    setenv("WEFT_DOMAIN", "a,b", 1);
}

static void spoil_log(void)
{
    setenv("WEFT_LOG", "loud", 1);
}

static void spoil_algorithm(void)
{
    setenv("WEFT_ALGO", "all_reduce:magic", 1);
}

static void spoil_warn(void)
{
    setenv("WEFT_WARN_MS", "soon", 1);
}

static void spoil_spin(void)
{
    setenv("WEFT_SPIN_US", "-7", 1);
}

static void spoil_flags(weft_comm_config *config)
{
    config->flags = 4;
}

static void spoil_op_slots(weft_comm_config *config)
{
    config->ops_in_flight = 99;
}

static void spoil_name(weft_comm_config *config)
{
    config->name = "a name of more bytes than there is room for";
}

static void spoil_limit(weft_comm_config *config)
{
    config->timeout_ms = -1;
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

static void take_descriptors(void)
{
    struct rlimit limit = {40, 40};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        abort();
    }
}

static void test_create_where_one_rank_cannot_build_fails_alike(void **state)
{
    (void)state;
    scene scenes[] = {
        {spoil_board, WEFT_ERR_SYSTEM, "rank 1: WEFT_BOARD_FD=9999", 0, NULL},
        {spoil_domain, WEFT_ERR_INVALID, "rank 1: WEFT_DOMAIN=a,b: 2 words", 0,
         NULL},
        {spoil_log, WEFT_ERR_INVALID, "rank 1: WEFT_LOG=loud: allowed", 0,
         NULL},
        {spoil_algorithm, WEFT_ERR_INVALID, "rank 1: WEFT_ALGO", 0, NULL},
        {spoil_warn, WEFT_ERR_INVALID, "rank 1: WEFT_WARN_MS=soon: allowed", 0,
         NULL},
        {spoil_spin, WEFT_ERR_INVALID, "rank 1: WEFT_SPIN_US=-7: allowed", 0,
         NULL},
        {take_space, WEFT_ERR_NO_MEMORY, "(RLIMIT_AS, ulimit -v)", 0, NULL},
        {take_file_size, WEFT_ERR_SYSTEM, "(RLIMIT_FSIZE, ulimit -f)", 0, NULL},
        {take_descriptors, WEFT_ERR_SYSTEM,
         "rank 1: the limit on open files (RLIMIT_NOFILE, ulimit -n) is 40", 0,
         NULL},
        {NULL, WEFT_ERR_INVALID, "rank 1: flags 0x4: allowed is 0", 0,
         spoil_flags},
        {NULL, WEFT_ERR_INVALID, "rank 1: ops_in_flight 99: allowed", 0,
         spoil_op_slots},
        {NULL, WEFT_ERR_INVALID, "rank 1: name \"a name of", 0, spoil_name},
        {NULL, WEFT_ERR_INVALID, "rank 1: timeout_ms -1: allowed", 0,
         spoil_limit},
    };
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i += STRIDE) {
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

/* With a number that nobody has, and without any meeting to be told at. */
static void
test_create_with_a_wrong_config_alone_is_refused_at_once(void **state)
{
    weft_comm *comm;
    weft_unique_id id = {{0}};
    weft_comm_config config = {.size_bytes = sizeof(config), .flags = 2};
    int64_t begin_ns = wefti_clock_ns();
    (void)state;
    assert_int_equal(weft_comm_create(&config, &comm), WEFT_ERR_INVALID);
    assert_string_equal(weft_error_text(),
                        "flags 0x2: allowed is 0 or 0x1 (WEFT_COMM_SUM_FLAT)");
    config.id = &id;
    config.nranks = 2;
    assert_int_equal(weft_comm_create(&config, &comm), WEFT_ERR_INVALID);
    config.rank = 2;
    assert_int_equal(weft_comm_create(&config, &comm), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "rank 2 of nranks 2"));
    config.size_bytes = 8;
    assert_int_equal(weft_comm_create(&config, &comm), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "config->size_bytes 8"));
    assert_true(wefti_clock_ns() - begin_ns < SOON_MS * INT64_C(1000000));
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
                 "rank 1 could not join the split: cannot map", 0, NULL};
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
        cmocka_unit_test(
            test_create_with_a_wrong_config_alone_is_refused_at_once),
        cmocka_unit_test(test_split_where_one_rank_has_no_memory_fails_alike),
        cmocka_unit_test(test_create_of_a_crowd_of_threads_is_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
