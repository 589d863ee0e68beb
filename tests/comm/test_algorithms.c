/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what WEFT_ALGO allows is what runs, and what none of it can carry out
 * is refused by name; nothing takes another way in silence.
 *
 * Method: names are read, right and wrong ones. Three ranks as threads, on one
 * host and on two, allow each algorithm alone for each collective that has it,
 * of few elements and of many: the choice is it, or the post is refused with
 * what is allowed instead, the same on all ranks, and the next one runs.
 */
#include "comm/make/explain.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NRANKS = 3, FEW = 16, MANY = 20000 };

static float inputs[NRANKS][NRANKS * MANY], outputs[NRANKS][NRANKS * MANY];

/* ---- names ----------------------------------------------------------------
 */

static void expect_read(weft_collective collective, const char *names,
                        const char *listed)
{
    char text[WEFTI_ALGORITHMS_ROOM];
    wefti_algorithms set =
        wefti_algorithms_read(collective, names, strlen(names));
    wefti_algorithms_list(set, '/', text, sizeof(text));
    assert_string_equal(text, listed);
}

static void test_names_right_ones_read_wrong_ones_not(void **state)
{
    (void)state;
    expect_read(WEFT_COLLECTIVE_ALLREDUCE, "tree", "tree");
    expect_read(WEFT_COLLECTIVE_ALLREDUCE, "tree/oneshot/direct",
                "oneshot/direct/tree");
    expect_read(WEFT_COLLECTIVE_ALLTOALLV, "two_hop/pairwise",
                "pairwise/two_hop");
    static const char *const wrong[] = {
        "",      "/",         "tree/", "/tree", "tree//one", "tre",
        "trees", "tree/tree", "Tree",  "tree ", "pairwise",  "nccl"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        expect_read(WEFT_COLLECTIVE_ALLREDUCE, wrong[i], "");
    }
    expect_read(WEFT_COLLECTIVE_ALLGATHERV, "oneshot", "");
    expect_read(WEFT_COLLECTIVE_BARRIER, "oneshot", "");
    expect_read(WEFT_COLLECTIVE_SEND, "direct", "");
    assert_null(wefti_algorithm_name(-1));
    assert_null(wefti_algorithm_name(15));
}

static void test_setting_operation_given_twice_refused(void **state)
{
    (void)state;
    wefti_tuning tuning;
    setenv("WEFT_ALGO", "reduce:tree,all_reduce:tree,all_reduce:direct", 1);
    assert_int_equal(wefti_tuning_read(&tuning), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "all_reduce is there twice"));
    setenv("WEFT_ALGO", "reduce:tree,all_reduce:tree/direct", 1);
    assert_int_equal(wefti_tuning_read(&tuning), WEFT_OK);
    unsetenv("WEFT_ALGO");
}

/* ---- what runs ------------------------------------------------------------
 */

/* Rank r's element i is r + 1 of the part for rank i / count. */
static weft_op make_op(weft_collective collective, size_t count, int rank)
{
    for (size_t i = 0; i < NRANKS * count; i++) {
        inputs[rank][i] = (float)(rank + 1 + 4 * (i % 64));
        outputs[rank][i] = -1;
    }
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = collective,
                     .send = inputs[rank],
                     .recv = outputs[rank],
                     .count = count,
                     .dtype = WEFT_DTYPE_F32};
}

/* Of an all-reduce. */
static int count_wrong(size_t count, int rank)
{
    int wrong = 0;
    for (size_t i = 0; i < count; i++) {
        wrong += outputs[rank][i] != (float)(6 + 12 * (i % 64));
    }
    return wrong != 0;
}

/* Posts with that algorithm alone; a refusal must say what is allowed. */
static int try_alone(weft_comm *comm, weft_collective collective, int bit,
                     size_t count)
{
    const char *fabric;
    char asked[64];
    int failures = 0, rank = weft_comm_get_rank(comm);
    const char *name = wefti_algorithm_name(bit);
    weft_op op = make_op(collective, count, rank);
    (void)wefti_comm_allow(comm, collective, (wefti_algorithms)(1U << bit));
    const char *choice = wefti_comm_explain(comm, &op, &fabric);
    weft_status status = weft_op_post(&op, 0, comm, NULL);
    if (strcmp(choice, "refused") == 0) {
        snprintf(asked, sizeof(asked),
                 "WEFT_ALGO=%s:%s: ", weft_collective_text(collective), name);
        failures += status != WEFT_ERR_INVALID;
        failures += strncmp(weft_error_text(), asked, strlen(asked)) != 0;
        failures += strstr(weft_error_text(), "allowed is ") == NULL;
        (void)wefti_comm_allow(comm, collective, 0);
        status = weft_op_post(&op, 0, comm, NULL);
    } else {
        failures += strcmp(choice, name) != 0;
    }
    failures += status != WEFT_OK;
    if (collective == WEFT_COLLECTIVE_ALLREDUCE) {
        failures += count_wrong(count, rank);
    }
    if (failures > 0) {
        fprintf(stderr, "rank %d: %s by %s, %zu: %s, %s\n", rank,
                weft_collective_text(collective), name, count, choice,
                weft_error_text());
    }
    (void)wefti_comm_allow(comm, collective, 0);
    return failures;
}

static int try_all(weft_comm *comm, void *context)
{
    int failures = 0;
    (void)context;
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        weft_collective collective = (weft_collective)c;
        wefti_algorithms set = wefti_algorithms_of(collective);
        if (wefti_shape_get(collective)->varied) {
            continue; /* one algorithm each */
        }
        for (int bit = 0; set >> bit; bit++) {
            if (set >> bit & 1) {
                failures += try_alone(comm, collective, bit, FEW);
                failures += try_alone(comm, collective, bit, MANY);
            }
        }
    }
    return failures;
}

static void test_algorithm_alone_runs_or_is_refused_by_name(void **state)
{
    (void)state;
    struct world world = {.nranks = NRANKS, .call = try_all};
    assert_int_equal(world_run_threads(&world), 0);
    setenv("WEFT_DOMAIN", "a,a,b", 1);
    assert_int_equal(world_run_threads(&world), 0);
    unsetenv("WEFT_DOMAIN");
}

/* One host, what is asked for, few and many: what comes of it. */
struct expected {
    const char *setting;
    const char *few, *many;
    const char *text; /* of the refusal */
};

static int compare(weft_comm *comm, void *context)
{
    const struct expected *wanted = context;
    const char *fabric;
    int failures = 0, rank = weft_comm_get_rank(comm);
    for (int large = 0; large < 2; large++) {
        size_t count = large ? MANY : FEW;
        weft_op op = make_op(WEFT_COLLECTIVE_ALLREDUCE, count, rank);
        const char *name = wefti_comm_explain(comm, &op, &fabric);
        weft_status status = weft_op_post(&op, 0, comm, NULL);
        failures += strcmp(name, large ? wanted->many : wanted->few) != 0;
        if (strcmp(name, "refused") == 0) {
            failures += status != WEFT_ERR_INVALID;
            failures += strstr(weft_error_text(), wanted->text) == NULL;
        } else {
            failures += status != WEFT_OK || count_wrong(count, rank);
        }
    }
    /* What weft itself exchanges for a split is no concern of the setting. */
    weft_comm *part = NULL;
    failures += weft_comm_split(comm, 0, -rank, NULL, &part) != WEFT_OK;
    weft_comm_destroy(part);
    return failures;
}

static void test_setting_several_first_that_can_else_refused(void **state)
{
    (void)state;
    static const struct expected cases[] = {
        {"all_reduce:oneshot/tree,all_gather:hierarchical", "oneshot", "tree",
         NULL},
        {"all_reduce:hierarchical/direct", "direct", "direct", NULL},
        {"all_reduce:oneshot", "oneshot", "refused",
         "WEFT_ALGO=all_reduce:oneshot: all_reduce of 20000 f32 among 3 ranks "
         "of one level cannot take that way: allowed is direct|tree|exchange"},
        {"all_reduce:hierarchical", "refused", "refused",
         "WEFT_ALGO=all_reduce:hierarchical: all_reduce of "}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct expected wanted = cases[i];
        struct world world = {
            .nranks = NRANKS, .call = compare, .context = &wanted};
        setenv("WEFT_ALGO", wanted.setting, 1);
        assert_int_equal(world_run_threads(&world), 0);
    }
    unsetenv("WEFT_ALGO");
}

/* Alone there is nothing to choose; nothing to move goes any way. */
static int move_nothing(weft_comm *comm, void *context)
{
    float one = 1;
    (void)context;
    int alone = weft_comm_get_nranks(comm) == 1;
    return weft_allreduce(&one, &one, (size_t)alone, WEFT_DTYPE_F32,
                          WEFT_REDOP_SUM, comm, NULL) != WEFT_OK;
}

static void test_setting_one_rank_or_no_element_never_refused(void **state)
{
    (void)state;
    setenv("WEFT_ALGO", "all_reduce:hierarchical", 1);
    for (int nranks = 1; nranks <= 2; nranks++) {
        struct world world = {.nranks = nranks, .call = move_nothing};
        assert_int_equal(world_run_threads(&world), 0);
    }
    unsetenv("WEFT_ALGO");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_right_ones_read_wrong_ones_not),
        cmocka_unit_test(test_setting_operation_given_twice_refused),
        cmocka_unit_test(test_algorithm_alone_runs_or_is_refused_by_name),
        cmocka_unit_test(test_setting_several_first_that_can_else_refused),
        cmocka_unit_test(test_setting_one_rank_or_no_element_never_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
