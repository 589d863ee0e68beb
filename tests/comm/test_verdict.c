/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what begins with several ranks ends alike on all of them, at once: one
 * with the job's secret that says another size or another's number is refused
 * with its reason on all; one that dies when all have the bootstrap's verdict
 * fails no other's creation, and is named by the next operation of each.
 *
 * Method: worlds of processes with a long time limit, one of which is given
 * wrong variables, or takes part in the bootstrap and ends before any
 * operation.
 */
#include "tests/comm/spread.h"
#include "tests/comm/world.h"

#include "base/clock.h"
#include "comm/oob/bootstrap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3, ODD = 1, LIMIT_MS = 40000, SOON_MS = 10000 };

typedef struct scene {
    const char *variable, *value; /* what rank ODD believes; NULL: it ends */
    const char *text;
    int64_t begin_ns;
} scene;

static int must_not_begin(weft_comm *comm, void *context)
{
    (void)context;
    fprintf(stderr, "rank %d has begun\n", weft_comm_get_rank(comm));
    return 1;
}

/* Each rank has the same words, and long before the time limit. */
static int check_reason(int rank, weft_status status, void *context)
{
    const scene *own = context;
    int64_t took_ms = (wefti_clock_ns() - own->begin_ns) / 1000000;
    bool right = status == WEFT_ERR_BOOTSTRAP && took_ms < SOON_MS &&
                 strstr(weft_error_text(), own->text);
    if (!right) {
        fprintf(stderr, "rank %d after %lld ms: %s: %s\n", rank,
                (long long)took_ms, weft_status_text(status),
                weft_error_text());
    }
    return !right;
}

static void be_odd(int rank, void *context)
{
    scene *own = context;
    own->begin_ns = wefti_clock_ns();
    if (rank == ODD) {
        setenv(own->variable, own->value, 1);
    }
}

static void run_refused(scene *own)
{
    struct world world = {.nranks = RANKS,
                          .config = {.timeout_ms = LIMIT_MS},
                          .call = must_not_begin,
                          .context = own,
                          .before = be_odd,
                          .refused = check_reason};
    assert_int_equal(world_run_processes(&world), 0);
}

static void test_verdict_rank_with_other_size_all_receive_it(void **state)
{
    (void)state;
    scene own = {.variable = "WEFT_NRANKS",
                 .value = "4",
                 .text = "rank 1 says nranks 4, but this job at"};
    run_refused(&own);
}

static void test_verdict_two_of_one_number_all_receive_it(void **state)
{
    (void)state;
    scene own = {.variable = "WEFT_RANK",
                 .value = "2",
                 .text = "has already joined as rank 2"};
    run_refused(&own);
}

/* Rank ODD does all that a member has to do, receives the verdict, and ends. */
static void end_after_verdict(int rank, void *context)
{
    (void)context;
    if (rank != ODD) {
        return;
    }
    wefti_bootstrap_request request = {.rank = rank,
                                       .nranks = RANKS,
                                       .warn_ms = LIMIT_MS / 2,
                                       .timeout_ms = LIMIT_MS};
    wefti_membership membership;
    _exit(wefti_bootstrap_join(&request, &membership) != WEFT_OK);
}

static int miss_it(weft_comm *comm, void *context)
{
    (void)context;
    weft_fault fault = {.size_bytes = sizeof(fault)};
    int failures = weft_barrier(comm, NULL) != WEFT_ERR_PEER;
    failures += !strstr(weft_error_text(), "rank 1 has died");
    failures += weft_comm_get_fault(comm, &fault) != WEFT_OK;
    failures += fault.status != WEFT_ERR_PEER || fault.rank != ODD;
    return failures;
}

static void test_verdict_death_after_it_all_create_and_name_it(void **state)
{
    (void)state;
    if (spread_parts(0, 1)) {
        return; /* it would have to open the network, too */
    }
    struct world world = {.nranks = RANKS,
                          .config = {.timeout_ms = LIMIT_MS},
                          .call = miss_it,
                          .before = end_after_verdict};
    assert_int_equal(world_run_processes(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdict_rank_with_other_size_all_receive_it),
        cmocka_unit_test(test_verdict_two_of_one_number_all_receive_it),
        cmocka_unit_test(test_verdict_death_after_it_all_create_and_name_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
