/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: plain sockets move the bytes of the rank that sends most, of each class
 * asked for and no other, once a round; how long that takes alone is one figure
 * for all ranks; and where there are none, all ranks have a reason and go on.
 * Method: ranks that share no memory, some or all of it, as WEFT_DOMAIN says;
 * each a process, as one of them is left no file descriptors. What has come is
 * what the receiving threads count.
 */
#include "trainer/measure_bare.h"

#include "tests/comm/rank_checks.h"
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

#define MUST(call) CHECK((call) == WEFT_OK)

enum { BYTES = 3 << 20, STEPS = 3, ALONE_ROUNDS = 8 };

/* why: of dp; NULL: it has sockets. */
typedef struct scene {
    int poor_rank; /* without descriptors; -1: none */
    double times;
    const char *why;
} scene;

static const unsigned of_dp = 1u << WEFT_CLASS_DP;

static uint64_t received(const wefti_measure_bare *bare, weft_class class_id)
{
    return wefti_bare_get_usage(bare->sockets[class_id].bare).received_bytes;
}

/* Both classes have rounds of their own. */
static int use(weft_comm *comm, wefti_measure_bare *bare)
{
    const unsigned both = of_dp | 1u << WEFT_CLASS_CP;
    const char *why;
    double took[2];
    int failures = CHECK(bare->classes == both) +
                   CHECK(!bare->sockets[WEFT_CLASS_DP].why) +
                   CHECK(bare->sockets[WEFT_CLASS_TP].why != NULL) +
                   MUST(wefti_measure_bare_why(bare, both, comm, &why)) +
                   CHECK(!why);
    for (int i = 0; i < STEPS; i++) {
        wefti_measure_bare_begin(bare, i == 0 ? both : of_dp);
        wefti_measure_bare_wait(bare, i == 0 ? both : of_dp);
        failures += CHECK(received(bare, WEFT_CLASS_DP) ==
                          (uint64_t)BYTES * (uint64_t)(i + 1));
    }
    failures += CHECK(received(bare, WEFT_CLASS_CP) == BYTES / 2) +
                MUST(wefti_measure_bare_alone(bare, of_dp, comm, took)) +
                CHECK(received(bare, WEFT_CLASS_DP) ==
                      (uint64_t)BYTES * (STEPS + ALONE_ROUNDS));
    took[1] = -took[0];
    const double own = took[0];
    failures += MUST(weft_allreduce(took, took, 2, WEFT_DTYPE_F64,
                                    WEFT_REDOP_MAX, comm, NULL)) +
                CHECK(own > 0 && took[0] == own && took[1] == -own);
    bare->failed = weft_comm_get_rank(comm) == 1;
    failures += MUST(wefti_measure_bare_why(bare, of_dp, comm, &why)) +
                CHECK(why && strstr(why, "broke"));
    return failures;
}

static int run_rank(weft_comm *comm, void *context)
{
    const scene *what = context;
    const int rank = weft_comm_get_rank(comm);
    wefti_replica replica = {.config = {.comm = comm}};
    wefti_measure_bare bare;
    struct rlimit before;
    const char *why = NULL;
    double bytes[WEFT_CLASS_COUNT] = {0};
    replica.mesh.comms[WEFTI_MESH_DATA] = comm;
    replica.mesh.comms[WEFTI_MESH_CONTEXT] = comm;
    bytes[WEFT_CLASS_DP] = what->times * BYTES / (1 + rank);
    bytes[WEFT_CLASS_CP] = BYTES / 2.;
    int failures = MUST(weft_barrier(comm, NULL)) +
                   CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const struct rlimit none = {0, before.rlim_max};
    failures +=
        CHECK(rank != what->poor_rank || setrlimit(RLIMIT_NOFILE, &none) == 0);
    failures += MUST(wefti_measure_bare_open(&replica, bytes, &bare));
    failures += CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    if (what->why) {
        failures += MUST(wefti_measure_bare_why(&bare, of_dp, comm, &why)) +
                    CHECK(!(bare.classes & of_dp)) + CHECK(why != NULL) +
                    CHECK(why && strstr(why, what->why));
        wefti_measure_bare_begin(&bare, of_dp); /* nothing */
        wefti_measure_bare_wait(&bare, of_dp);
    } else {
        failures += use(comm, &bare);
    }
    wefti_measure_bare_close(&bare);
    return failures + MUST(weft_barrier(comm, NULL));
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

static void test_sockets_between_hosts_move_a_steps_bytes(void **state)
{
    (void)state;
    run_scene("a,b", 2, &(scene){-1, 1, NULL});
}

static void test_sockets_that_cannot_be_have_a_reason(void **state)
{
    (void)state;
    run_scene("a,b", 2, &(scene){1, 1, "WEFT_NET_INTERFACE names"});
    run_scene("a,b", 2, &(scene){-1, 30, "more than 64 MiB"});
    run_scene("a,b", 2, &(scene){-1, 0, "nothing is sent"});
    run_scene("a,a", 2, &(scene){-1, 1, "its ranks share"});
    run_scene("a,a,b", 3, &(scene){-1, 1, "some of its"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sockets_between_hosts_move_a_steps_bytes),
        cmocka_unit_test(test_sockets_that_cannot_be_have_a_reason)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
