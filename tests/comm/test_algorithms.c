/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what WEFT_ALGO allows is what runs, and what none of it can carry out
 * is refused by name; nothing takes another way in silence.
 *
 * Method: names are read, right and wrong ones. Three ranks as threads, on one
 * host, on two and on one with levels inside, allow each algorithm alone for
 * each collective that has it, of few elements and of many: the choice is it,
 * with the result that weft/op.h defines and nothing written beside it, or the
 * post is refused with what is allowed instead, the same on all ranks, and the
 * next one runs. Each algorithm must have run for each of its collectives.
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

enum { NRANKS = 3, ROOT = 1, FEW = 16, MANY = 20000 };

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

static float input(int rank, size_t elem)
{
    return (float)((size_t)rank + 1 + 4 * (elem % 64));
}

/* Elements that go from one rank to another; of a part of the v forms, which
 * all have room for count. */
static size_t elems_of(const wefti_shape *shape, int from, int to, size_t count)
{
    const int sender = shape->recv_parts ? from : 0;
    const int receiver = shape->send_parts ? to : 0;
    return shape->varied ? count - (size_t)(3 * sender + 5 * receiver) % 7
                         : count;
}

/* What rank is to have at an element of its output; -1: it is not written. */
static float expected(const wefti_shape *shape, int rank, size_t elem,
                      size_t count)
{
    const size_t first = shape->send_parts ? (size_t)rank * count : 0;
    const int from = shape->recv_parts ? (int)(elem / count) : ROOT;
    const size_t place = shape->recv_parts ? elem % count : elem;
    float sum = 0;
    if (!wefti_who_has(shape->receives, rank, ROOT) ||
        place >= elems_of(shape, from, rank, count)) {
        return -1;
    }
    if (!shape->reduces) {
        return input(from, first + place);
    }
    for (int p = 0; p < NRANKS; p++) {
        sum += input(p, first + place);
    }
    return sum;
}

static int count_wrong(weft_collective collective, size_t count, int rank)
{
    const wefti_shape *shape = wefti_shape_get(collective);
    int wrong = 0;
    for (size_t i = 0; i < NRANKS * count; i++) {
        wrong += outputs[rank][i] != expected(shape, rank, i, count);
    }
    return wrong != 0;
}

/* The arrays of a v form as one rank has them. */
typedef struct count_lists {
    size_t sent[NRANKS], got[NRANKS], places[NRANKS];
} count_lists;

static weft_op make_op(weft_collective collective, size_t count, int rank,
                       count_lists *at)
{
    const wefti_shape *shape = wefti_shape_get(collective);
    const bool sent = shape->varied && shape->send_parts;
    const bool got = shape->varied && shape->recv_parts;
    for (size_t i = 0; i < NRANKS * count; i++) {
        inputs[rank][i] = input(rank, i);
        outputs[rank][i] = -1;
    }
    for (int p = 0; p < NRANKS; p++) {
        at->sent[p] = elems_of(shape, rank, p, count);
        at->got[p] = elems_of(shape, p, rank, count);
        at->places[p] = (size_t)p * count;
    }
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = collective,
                     .send = inputs[rank],
                     .recv = outputs[rank],
                     .count = elems_of(shape, rank, rank, count),
                     .send_counts = sent ? at->sent : NULL,
                     .send_displs = sent ? at->places : NULL,
                     .recv_counts = got ? at->got : NULL,
                     .recv_displs = got ? at->places : NULL,
                     .dtype = WEFT_DTYPE_F32,
                     .root = shape->rooted ? ROOT : 0};
}

/* Which algorithms have carried each collective out, as rank 0 saw it. */
static wefti_algorithms carried[WEFT_COLLECTIVE_COUNT];

/* Posts with that algorithm alone; a refusal must say what is allowed. */
static int try_alone(weft_comm *comm, weft_collective collective, int bit,
                     size_t count)
{
    const char *fabric;
    char asked[64];
    int failures = 0, rank = weft_comm_get_rank(comm);
    const char *name = wefti_algorithm_name(bit);
    count_lists at;
    weft_op op = make_op(collective, count, rank, &at);
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
        if (rank == 0) {
            carried[collective] |= (wefti_algorithms)(1U << bit);
        }
    }
    failures += status != WEFT_OK;
    failures += count_wrong(collective, count, rank);
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
        for (int bit = 0; set >> bit; bit++) {
            if (set >> bit & 1) {
                failures += try_alone(comm, collective, bit, FEW);
                failures += try_alone(comm, collective, bit, MANY);
            }
        }
    }
    return failures;
}

/* Names that were allowed alone and never ran. */
static int count_left_out(void)
{
    int left_out = 0;
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        char text[WEFTI_ALGORITHMS_ROOM];
        wefti_algorithms never = wefti_algorithms_of((weft_collective)c);
        never &= (wefti_algorithms)~carried[c];
        if (never) {
            wefti_algorithms_list(never, '/', text, sizeof(text));
            fprintf(stderr, "%s never ran by %s\n",
                    weft_collective_text((weft_collective)c), text);
            left_out++;
        }
    }
    return left_out;
}

static void test_algorithm_alone_runs_or_is_refused_by_name(void **state)
{
    (void)state;
    struct world world = {.nranks = NRANKS, .call = try_all};
    assert_int_equal(world_run_threads(&world), 0);
    setenv("WEFT_DOMAIN", "a,a,b", 1);
    assert_int_equal(world_run_threads(&world), 0);
    unsetenv("WEFT_DOMAIN");
    setenv("WEFT_LEVELS", "2", 1);
    assert_int_equal(world_run_threads(&world), 0);
    unsetenv("WEFT_LEVELS");
    assert_int_equal(count_left_out(), 0);
}

/* One host, what is asked for, few and many: what comes of it. */
struct setting_outcome {
    const char *setting;
    const char *few, *many;
    const char *text; /* of the refusal */
};

static int compare(weft_comm *comm, void *context)
{
    const struct setting_outcome *wanted = context;
    const char *fabric;
    int failures = 0, rank = weft_comm_get_rank(comm);
    for (int large = 0; large < 2; large++) {
        size_t count = large ? MANY : FEW;
        count_lists at;
        weft_op op = make_op(WEFT_COLLECTIVE_ALLREDUCE, count, rank, &at);
        const char *name = wefti_comm_explain(comm, &op, &fabric);
        weft_status status = weft_op_post(&op, 0, comm, NULL);
        failures += strcmp(name, large ? wanted->many : wanted->few) != 0;
        if (strcmp(name, "refused") == 0) {
            failures += status != WEFT_ERR_INVALID;
            failures += strstr(weft_error_text(), wanted->text) == NULL;
        } else {
            failures += status != WEFT_OK ||
                        count_wrong(WEFT_COLLECTIVE_ALLREDUCE, count, rank);
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
    static const struct setting_outcome cases[] = {
        {"all_reduce:oneshot/tree,all_gather:hierarchical", "oneshot", "tree",
         NULL},
        {"all_reduce:hierarchical/direct", "direct", "direct", NULL},
        {"all_reduce:oneshot", "oneshot", "refused",
         "WEFT_ALGO=all_reduce:oneshot: all_reduce of 20000 f32 among 3 ranks "
         "of one level cannot take that way: allowed is direct|tree|exchange"},
        {"all_reduce:hierarchical", "refused", "refused",
         "WEFT_ALGO=all_reduce:hierarchical: all_reduce of "}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct setting_outcome wanted = cases[i];
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
