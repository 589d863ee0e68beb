/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what a class' bytes cost plain sockets is one figure for all its ranks,
 * in proportion where they are more than a round has; and where it cannot be
 * measured, or is nothing, all ranks have a reason and go on.
 * Method: ranks that share no memory, some or all of it, as WEFT_DOMAIN says;
 * each a process, as one of them is left no file descriptors.
 */
#include "trainer/measure_cost.h"

#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"

#include <math.h>
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

enum { SMALL_BYTES = 4 << 20, OPERATIONS = 4, TIMES = 2048 };

typedef struct scene {
    int poor_rank;   /* without descriptors; -1: none */
    bool nothing;    /* no c to count */
    const char *why; /* NULL: it is measured */
} scene;

static weft_status find_cost(weft_comm *comm, size_t times,
                             wefti_measure_cost *cost)
{
    wefti_replica replica = {0};
    replica.mesh.comms[WEFTI_MESH_DATA] = comm;
    return wefti_cost_find(&replica, WEFT_CLASS_DP, times * SMALL_BYTES,
                           times * OPERATIONS, cost);
}

/* Gigabytes, of which a round has a part. */
static int check_measured(weft_comm *comm, const wefti_measure_cost *small)
{
    wefti_measure_cost large;
    double most[2] = {small->cpu_ms, -small->cpu_ms};
    int failures = CHECK(small->cpu_ms > 0) + CHECK(!small->why) +
                   CHECK(find_cost(comm, TIMES, &large) == WEFT_OK) +
                   CHECK(weft_allreduce(most, most, 2, WEFT_DTYPE_F64,
                                        WEFT_REDOP_MAX, comm, NULL) == WEFT_OK);
    failures += CHECK(most[0] == -most[1]);
    failures += CHECK(large.cpu_ms > small->cpu_ms * (TIMES / 20.));
    printf("c: %g ms, of %d times as much %g ms\n", small->cpu_ms, TIMES,
           large.cpu_ms);
    return failures;
}

static int run_rank(weft_comm *comm, void *context)
{
    const scene *what = context;
    wefti_measure_cost cost;
    struct rlimit before;
    const bool poor = weft_comm_get_rank(comm) == what->poor_rank;
    int failures = CHECK(weft_barrier(comm, NULL) == WEFT_OK) +
                   CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const struct rlimit none = {0, before.rlim_max};
    failures += CHECK(!poor || setrlimit(RLIMIT_NOFILE, &none) == 0);
    failures += CHECK(find_cost(comm, 1, &cost) == WEFT_OK);
    failures += CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    if (!what->why) {
        failures += check_measured(comm, &cost);
    } else {
        failures += CHECK(isnan(cost.cpu_ms)) + CHECK(cost.why != NULL) +
                    CHECK(cost.why && strstr(cost.why, what->why));
    }
    failures += CHECK(cost.nothing == what->nothing);
    return failures + CHECK(weft_barrier(comm, NULL) == WEFT_OK);
}

static void run_scene(const char *domains, int nranks, const scene *what)
{
    const struct world world = {
        .nranks = nranks,
        .config = {.size_bytes = sizeof(weft_comm_config)},
        .call = run_rank,
        .context = (void *)what};
    assert_int_equal(setenv("WEFT_DOMAIN", domains, 1), 0);
    assert_int_equal(world_run_processes(&world), 0);
    assert_int_equal(unsetenv("WEFT_DOMAIN"), 0);
}

static void test_cost_between_hosts_is_measured(void **state)
{
    (void)state;
    run_scene("a,b", 2, &(scene){.poor_rank = -1});
}

static void test_cost_without_a_socket_has_a_reason(void **state)
{
    (void)state;
    run_scene("a,b", 2,
              &(scene){.poor_rank = 1, .why = "WEFT_NET_INTERFACE names"});
}

static void test_cost_of_ranks_that_share_memory_has_a_reason(void **state)
{
    (void)state;
    run_scene("a,a", 2,
              &(scene){.poor_rank = -1, .nothing = true, .why = "its ranks"});
    run_scene("a,a,b", 3, &(scene){.poor_rank = -1, .why = "some of its"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cost_between_hosts_is_measured),
        cmocka_unit_test(test_cost_without_a_socket_has_a_reason),
        cmocka_unit_test(test_cost_of_ranks_that_share_memory_has_a_reason)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
