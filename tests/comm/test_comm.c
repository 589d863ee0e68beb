/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: communicators split as told, refuse wrong arguments by name without
 * queueing anything, carry point-to-point operations in any number, tell their
 * flight record, and wait without burning the processor.
 *
 * Method: threads as ranks; results compared with arithmetic over ranks.
 */
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int sum_of_ranks(weft_comm *comm, int value)
{
    int32_t mine = value, sum = -1;
    return weft_allreduce(&mine, &sum, 1, WEFT_DTYPE_I32, WEFT_REDOP_SUM, comm,
                          NULL) == WEFT_OK
               ? sum
               : -1;
}

/* Odd and even ranks, in reverse order; one rank stays out. */
static int split_by_parity(weft_comm *comm, void *context)
{
    (void)context;
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    bool out = rank == 4;
    weft_comm *half;
    weft_comm_config config = {.size_bytes = sizeof(config), .name = "half"};
    int failures = weft_comm_split(comm, out ? -1 : rank % 2, -rank, &config,
                                   &half) != WEFT_OK;
    if (out) {
        return failures + (half != NULL);
    }
    int members = 0, sum = 0, place = 0;
    for (int peer = 0; peer < nranks; peer++) {
        if (peer != 4 && peer % 2 == rank % 2) {
            members++;
            sum += peer;
            place += peer > rank;
        }
    }
    failures += weft_comm_get_nranks(half) != members;
    failures += weft_comm_get_rank(half) != place;
    failures += sum_of_ranks(half, rank) != sum;
    /* Both at once: the child's traffic is its own. */
    weft_comm *pair;
    failures += weft_comm_split(half, place / 2, 0, NULL, &pair) != WEFT_OK;
    failures += weft_comm_get_rank(pair) != place % 2;
    static _Thread_local float data[70000];
    for (int i = 0; i < 5; i++) {
        failures += weft_allreduce(data, data, 70000, WEFT_DTYPE_F32,
                                   WEFT_REDOP_MAX, pair, NULL) != WEFT_OK;
    }
    weft_comm_destroy(pair);
    weft_comm_destroy(half);
    return failures;
}

static void test_split_colors_keys_and_outsiders(void **state)
{
    (void)state;
    struct world world = {.nranks = 7, .call = split_by_parity};
    assert_int_equal(world_run_threads(&world), 0);
    assert_int_equal(world_run_threads(&world), 0);
}

static int split_many_times(weft_comm *comm, void *context)
{
    (void)context;
    int failures = 0;
    for (int i = 0; i < 50; i++) {
        weft_comm *child;
        failures += weft_comm_split(comm, 0, 0, NULL, &child) != WEFT_OK;
        failures += sum_of_ranks(child, 1) != weft_comm_get_nranks(comm);
        weft_comm_destroy(child);
    }
    return failures;
}

static void test_split_fifty_times_each_usable(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = split_many_times};
    assert_int_equal(world_run_threads(&world), 0);
    assert_int_equal(world_run_processes(&world), 0);
}

static int wrong_arguments(weft_comm *comm, void *context)
{
    (void)context;
    float data[64];
    int failures = 0;
    failures += refused(weft_allreduce(NULL, data, 4, WEFT_DTYPE_F32,
                                       WEFT_REDOP_SUM, comm, NULL),
                        "send is NULL");
    failures += refused(weft_allreduce(data, NULL, 4, WEFT_DTYPE_F32,
                                       WEFT_REDOP_SUM, comm, NULL),
                        "recv is NULL");
    failures += refused(weft_allreduce(data, data + 1, 4, WEFT_DTYPE_F32,
                                       WEFT_REDOP_SUM, comm, NULL),
                        "overlaps");
    failures += refused(weft_allreduce(data, data, 4, (weft_dtype)99,
                                       WEFT_REDOP_SUM, comm, NULL),
                        "dtype 99");
    failures += refused(weft_allreduce(data, data, 4, WEFT_DTYPE_F32,
                                       (weft_redop)77, comm, NULL),
                        "redop 77");
    failures += refused(weft_allreduce(data, data, SIZE_MAX / 4, WEFT_DTYPE_F32,
                                       WEFT_REDOP_SUM, comm, NULL),
                        "count");
    failures +=
        refused(weft_broadcast(data, data, 4, WEFT_DTYPE_F32, 17, comm, NULL),
                "root 17");
    failures +=
        refused(weft_send(data, 4, WEFT_DTYPE_F32, -1, comm, NULL), "peer -1");
    failures += refused(weft_barrier(NULL, NULL), "comm is NULL");
    weft_op op = {.size_bytes = 8};
    failures += refused(weft_op_post(&op, 0, comm, NULL), "size_bytes");
    op.size_bytes = SIZE_MAX;
    failures += refused(weft_op_post(&op, 0, comm, NULL), "size_bytes");
    weft_p2p part = {.size_bytes = SIZE_MAX};
    failures += refused(weft_p2p_post(&part, 1, comm, NULL), "size_bytes");
    weft_fault fault = {.size_bytes = SIZE_MAX};
    failures += refused(weft_comm_get_fault(comm, &fault), "size_bytes");
    weft_comm_bytes bytes = {.size_bytes = SIZE_MAX};
    failures += refused(weft_comm_get_bytes(comm, &bytes), "size_bytes");
    /* Nothing was queued, no number taken: the next operation matches. */
    failures += sum_of_ranks(comm, 1) != weft_comm_get_nranks(comm);
    return failures;
}

static void test_post_wrong_arguments_refused_by_name(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = wrong_arguments};
    assert_int_equal(world_run_threads(&world), 0);
}

static void test_create_wrong_config_refused_by_name(void **state)
{
    (void)state;
    weft_comm *comm;
    weft_unique_id id = {{0}};
    weft_comm_config config = {.size_bytes = sizeof(config), .flags = 4};
    assert_int_equal(refused(weft_comm_create(&config, &comm), "flags 0x4"), 0);
    config = (weft_comm_config){.size_bytes = SIZE_MAX};
    assert_int_equal(refused(weft_comm_create(&config, &comm), "size_bytes"),
                     0);
    config = (weft_comm_config){.size_bytes = 3};
    assert_int_equal(refused(weft_comm_create(&config, &comm), "size_bytes"),
                     0);
    config = (weft_comm_config){
        .size_bytes = sizeof(config), .id = &id, .rank = 3, .nranks = 2};
    assert_int_equal(refused(weft_comm_create(&config, &comm), "rank 3"), 0);
    config = (weft_comm_config){.size_bytes = sizeof(config),
                                .name = "0123456789012345678901234567890123"};
    assert_int_equal(refused(weft_comm_create(&config, &comm), "name"), 0);
    config = (weft_comm_config){.size_bytes = sizeof(config), .sm_budget = -1};
    assert_int_equal(refused(weft_comm_create(&config, &comm), "sm_budget -1"),
                     0);
    setenv("WEFT_RANKS_PER_PROCESS", "0", 1);
    assert_int_equal(
        refused(weft_comm_create(NULL, &comm), "WEFT_RANKS_PER_PROCESS=0"), 0);
    unsetenv("WEFT_RANKS_PER_PROCESS");
    setenv("WEFT_ALGO", "all_reduce:magic", 1);
    assert_int_equal(refused(weft_comm_create(NULL, &comm), "WEFT_ALGO"), 0);
    setenv("WEFT_ALGO", "all_reduce:tree,all_gather:tree", 1);
    assert_int_equal(refused(weft_comm_create(NULL, &comm),
                             "allowed for all_gather is "
                             "oneshot|dissemination|hierarchical|direct"),
                     0);
    static const char *const none[] = {"alltoallv:oneshot", "gatherv:oneshot",
                                       "send:oneshot", "barrier:oneshot"};
    static const char *const allowed[] = {
        "allowed for alltoallv is pairwise|two_hop",
        "allowed for gatherv is pairwise", "|all_gatherv|reduce_scatterv",
        "|all_gatherv|reduce_scatterv"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        setenv("WEFT_ALGO", none[i], 1);
        assert_int_equal(refused(weft_comm_create(NULL, &comm), none[i]), 0);
        /* To the end: whoever has a long value sees what is allowed too. */
        assert_int_equal(refused(weft_comm_create(NULL, &comm), allowed[i]), 0);
    }
    setenv("WEFT_ALGO", "barrier:tree", 1);
    assert_int_equal(refused(weft_comm_create(NULL, &comm), "barrier:tree"), 0);
    unsetenv("WEFT_ALGO");
    assert_null(comm);
}

/* Everybody sends everybody many messages before anybody receives. */
static int many_messages(weft_comm *comm, void *context)
{
    (void)context;
    enum { MESSAGES = 40, WORDS = 300 };
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    weft_device *device;
    weft_stream *sending;
    int failures = weft_device_open("host", 0, &device) != WEFT_OK ||
                   weft_stream_create(device, 0, &sending) != WEFT_OK;
    int32_t *out = malloc((size_t)nranks * MESSAGES * WORDS * sizeof(*out));
    for (int peer = 0; peer < nranks; peer++) {
        for (int i = 0; i < MESSAGES; i++) {
            int32_t *words = out + (peer * MESSAGES + i) * WORDS;
            for (int w = 0; w < WORDS; w++) {
                words[w] = rank * 1000000 + i * 1000 + w;
            }
            failures += weft_send(words, WORDS, WEFT_DTYPE_I32, peer, comm,
                                  sending) != WEFT_OK;
        }
    }
    for (int i = 0; i < MESSAGES; i++) {
        for (int peer = nranks - 1; peer >= 0; peer--) {
            int32_t words[WORDS];
            memset(words, 0xA5, sizeof(words));
            failures += weft_recv(words, WORDS, WEFT_DTYPE_I32, peer, comm,
                                  NULL) != WEFT_OK;
            for (int w = 0; w < WORDS; w++) {
                failures += words[w] != peer * 1000000 + i * 1000 + w;
            }
        }
    }
    failures += weft_stream_wait(sending) != WEFT_OK;
    weft_stream_destroy(sending);
    weft_device_close(device);
    free(out);
    return failures > 63 ? 63 : failures;
}

static void test_messages_many_before_any_is_read_in_order(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = many_messages};
    assert_int_equal(world_run_threads(&world), 0);
    assert_int_equal(world_run_processes(&world), 0);
}

static int messages_differ(weft_comm *comm, void *context)
{
    (void)context;
    float data[4] = {0};
    weft_status status =
        weft_comm_get_rank(comm) == 0
            ? weft_send(data, 4, WEFT_DTYPE_F32, 1, comm, NULL)
            : weft_recv(data, 3, WEFT_DTYPE_F32, 0, comm, NULL);
    if (status == WEFT_OK) {
        status = weft_barrier(comm, NULL);
    }
    return status != WEFT_ERR_MISMATCH ||
           !strstr(weft_error_text(), "rank 0 posted send of 4 f32");
}

static void test_messages_other_count_mismatch_named(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = messages_differ};
    assert_int_equal(world_run_threads(&world), 0);
}

static int tell_record(weft_comm *comm, void *context)
{
    (void)context;
    static _Thread_local float data[8];
    char text[4096];
    int failures = weft_allreduce(data, data, 8, WEFT_DTYPE_F32, WEFT_REDOP_SUM,
                                  comm, NULL) != WEFT_OK;
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    failures += weft_comm_dump(comm, text, sizeof(text)) != WEFT_OK;
    failures += !strstr(text, "rank 1:");
    failures += !strstr(text, "#2 all_reduce of 8 f32, sum");
    failures += weft_comm_dump(comm, text, 10) != WEFT_OK;
    failures += strlen(text) != 9;
    return failures;
}

static void test_dump_names_last_operations_of_all(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = tell_record};
    assert_int_equal(world_run_threads(&world), 0);
}

enum { CROWD = 16, LATE_NS = 400000000 };

/* One rank is late; the others wait and must not burn the cores meanwhile. */
static int wait_for_the_late(weft_comm *comm, void *context)
{
    (void)context;
    int rank = weft_comm_get_rank(comm), failures = 0;
    for (int i = 0; i < 20; i++) {
        failures += sum_of_ranks(comm, 1) != CROWD;
    }
    int64_t cpu_ns = wefti_clock_thread_ns();
    if (rank == 0) {
        struct timespec nap = {0, LATE_NS};
        nanosleep(&nap, NULL);
    }
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    cpu_ns = wefti_clock_thread_ns() - cpu_ns;
    /* 15 waiters that each take less than 1/50 of the time they wait. */
    if (cpu_ns > LATE_NS / 50) {
        fprintf(stderr, "rank %d: %lld ns of CPU while waiting %d ns\n", rank,
                (long long)cpu_ns, LATE_NS);
        failures++;
    }
    return failures;
}

static void test_wait_sixteen_ranks_progress_without_burning(void **state)
{
    (void)state;
    struct world world = {.nranks = CROWD, .call = wait_for_the_late};
    assert_int_equal(world_run_processes(&world), 0);
}

/* Whether comm calls itself so. */
static int check_name(weft_comm *comm, const char *name)
{
    char text[4096], wanted[64];
    snprintf(wanted, sizeof(wanted), "\"%s\": healthy", name);
    bool right = weft_comm_get_health(comm, WEFT_COMM_TEXT, text,
                                      sizeof(text)) == WEFT_OK &&
                 strncmp(text, wanted, strlen(wanted)) == 0;
    if (!right) {
        fprintf(stderr, "wanted %s, got %.60s\n", wanted, text);
    }
    return !right;
}

/* Colors of each rank in each of the splits, and the names they get. */
static int name_apart(weft_comm *comm, void *context)
{
    (void)context;
    static const int colors[4][3] = {
        {0, 0, 0}, {0, 0, 7}, {0, 7, 0}, {-1, 0, 0}};
    static const char *const names[4][3] = {
        {"world/0", "world/0", "world/0"},
        {"world/0#2", "world/0#2", "world/7"},
        {"world/0#3", "world/7#2", "world/0#3"},
        {NULL, "world/0#4", "world/0#4"}};
    int rank = weft_comm_get_rank(comm), failures = 0;
    const int some[] = {1, 2};
    weft_comm *made[4] = {NULL}, *below, *listed;
    for (int i = 0; i < 4; i++) {
        failures += weft_comm_split(comm, colors[i][rank], rank, NULL,
                                    &made[i]) != WEFT_OK;
        failures += made[i] && check_name(made[i], names[i][rank]);
    }
    failures += weft_comm_split(made[0], 3, rank, NULL, &below) != WEFT_OK;
    failures += check_name(below, "world/0/3");
    weft_comm_destroy(below);
    for (int i = 0; i < 2 && rank > 0; i++) {
        failures +=
            weft_comm_create_from(comm, some, 2, NULL, &listed) != WEFT_OK;
        failures += check_name(listed, i ? "world/1,2#2" : "world/1,2");
        weft_comm_destroy(listed);
    }
    for (int i = 0; i < 4; i++) {
        weft_comm_destroy(made[i]);
    }
    return failures;
}

static void test_split_by_equal_colors_names_differ(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = name_apart};
    assert_int_equal(world_run_threads(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_by_equal_colors_names_differ),
        cmocka_unit_test(test_wait_sixteen_ranks_progress_without_burning),
        cmocka_unit_test(test_split_colors_keys_and_outsiders),
        cmocka_unit_test(test_split_fifty_times_each_usable),
        cmocka_unit_test(test_post_wrong_arguments_refused_by_name),
        cmocka_unit_test(test_create_wrong_config_refused_by_name),
        cmocka_unit_test(test_messages_many_before_any_is_read_in_order),
        cmocka_unit_test(test_messages_other_count_mismatch_named),
        cmocka_unit_test(test_dump_names_last_operations_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
