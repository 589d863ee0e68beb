/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: an operation's own time limit fails the communicator, with one fault
 * for all ranks, long before the communicator's; a longer one outlives it; and
 * callers whose structs end before the limit are served as ever.
 *
 * Method: one rank stays away until the others have the fault. Limits are a
 * tenth of a second against a minute, so that only the right one can end the
 * test in time. Older structs lie before poison. Modes: threads, processes.
 */
#include "tests/comm/all_reduce_op.h"
#include "tests/comm/world.h"

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

enum { SHORT_MS = 150, LONG_MS = 60000, SOON_S = 20 };

typedef int (*runner)(const struct world *world);
static runner run = world_run_threads;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The last rank looks for the fault without entering anything. */
static weft_status watch(weft_comm *comm)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    double end_s = now_s() + SOON_S;
    while (weft_comm_get_fault(comm, &fault) == WEFT_OK &&
           fault.status == WEFT_OK && now_s() < end_s) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return fault.status;
}

/* Whether comm's fault is the time-out of the operation, about the last. */
static int check_fault(weft_comm *comm, weft_status status, const char *part)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    int last = weft_comm_get_nranks(comm) - 1;
    bool right = status == WEFT_ERR_TIMEOUT &&
                 weft_comm_get_fault(comm, &fault) == WEFT_OK &&
                 fault.status == WEFT_ERR_TIMEOUT && fault.rank == last &&
                 strstr(fault.text, part);
    if (!right) {
        fprintf(stderr, "rank %d: %s; fault %s about rank %d: %s\n",
                weft_comm_get_rank(comm), weft_status_text(status),
                weft_status_text(fault.status), fault.rank, fault.text);
    }
    return !right;
}

static int stay_away(weft_comm *comm, void *context)
{
    size_t count = *(const size_t *)context;
    uint32_t *data = calloc(count, sizeof(*data));
    bool away = weft_comm_get_rank(comm) == weft_comm_get_nranks(comm) - 1;
    weft_op op = all_reduce_op(data, count, WEFT_DTYPE_U32);
    op.timeout_ms = SHORT_MS;
    int failures = weft_barrier(comm, NULL) != WEFT_OK;
    double begin_s = now_s();
    weft_status status = away ? watch(comm) : weft_op_post(&op, 0, comm, NULL);
    failures += check_fault(comm, status, "all_reduce #3 on \"world\": rank");
    failures += now_s() - begin_s > SOON_S;
    /* The same for whoever comes later. */
    failures += check_fault(comm, weft_barrier(comm, NULL), "all_reduce #3");
    free(data);
    return failures;
}

static void test_op_own_limit_fails_all_ranks_alike(void **state)
{
    (void)state;
    for (size_t count = 4; count < 100000; count *= 10000) {
        struct world world = {.nranks = 3,
                              .call = stay_away,
                              .context = &count,
                              .config = {.timeout_ms = LONG_MS}};
        assert_int_equal(run(&world), 0);
    }
}

static int post_nothing(weft_comm *comm, void *context)
{
    bool listed = *(const bool *)context;
    uint32_t data[4] = {0};
    int last = weft_comm_get_nranks(comm) - 1;
    bool away = weft_comm_get_rank(comm) == last;
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_RECV,
                  .recv = data,
                  .count = 4,
                  .dtype = WEFT_DTYPE_U32,
                  .root = last,
                  .timeout_ms = SHORT_MS};
    const weft_p2p part = {.size_bytes = sizeof(part),
                           .kind = WEFT_P2P_RECV,
                           .buffer = data,
                           .count = 4,
                           .dtype = WEFT_DTYPE_U32,
                           .peer = last,
                           .timeout_ms = SHORT_MS};
    weft_status status = away     ? watch(comm)
                         : listed ? weft_p2p_post(&part, 1, comm, NULL)
                                  : weft_op_post(&op, 0, comm, NULL);
    return check_fault(comm, status, "has not sent");
}

static void test_receive_own_limit_fails_all_ranks_alike(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool listed = i == 1;
        struct world world = {.nranks = 2,
                              .call = post_nothing,
                              .context = &listed,
                              .config = {.timeout_ms = LONG_MS}};
        assert_int_equal(run(&world), 0);
    }
}

/*
 * The last rank comes when the communicator's own limit is long over. One that
 * short is made from another, whose limit is what its making may take.
 */
static int come_late(weft_comm *comm, void *context)
{
    uint32_t data[4] = {1, 2, 3, 4};
    weft_op op = all_reduce_op(data, 4, WEFT_DTYPE_U32);
    op.timeout_ms = *(const uint64_t *)context;
    const weft_comm_config config = {.size_bytes = sizeof(config),
                                     .timeout_ms = SHORT_MS};
    weft_comm *hasty;
    if (weft_comm_split(comm, 0, 0, &config, &hasty) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
        return 1;
    }
    if (weft_comm_get_rank(comm) == weft_comm_get_nranks(comm) - 1) {
        double until_s = now_s() + 4e-3 * SHORT_MS;
        while (now_s() < until_s) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
    }
    weft_status status = weft_op_post(&op, 0, hasty, NULL);
    bool right = status == WEFT_OK && data[3] == 12;
    if (!right) {
        fprintf(stderr, "%s: %s\n", weft_status_text(status),
                weft_error_text());
    }
    weft_comm_destroy(hasty);
    return !right;
}

static void test_op_longer_limit_outlives_the_communicators(void **state)
{
    (void)state;
    static const uint64_t limits[] = {LONG_MS, UINT64_MAX};
    for (int i = 0; i < 2; i++) {
        uint64_t limit_ms = limits[i];
        struct world world = {.nranks = 3,
                              .call = come_late,
                              .context = &limit_ms,
                              .config = {.timeout_ms = LONG_MS}};
        assert_int_equal(run(&world), 0);
    }
}

/* What callers of the first version pass, with garbage after it. */
static int post_old(weft_comm *comm, void *context)
{
    enum { PARTS = 2, ROOM = 512 };
    (void)context;
    const size_t op_bytes = offsetof(weft_op, timeout_ms);
    const size_t part_bytes = offsetof(weft_p2p, timeout_ms);
    _Alignas(weft_op) unsigned char room[ROOM];
    int rank = weft_comm_get_rank(comm), failures = 0;
    uint32_t data[4] = {1, 2, 3, 4}, in = 0, out = 70 + (uint32_t)rank;
    weft_op op = all_reduce_op(data, 4, WEFT_DTYPE_U32);
    memset(room, 0xA5, sizeof(room));
    op.size_bytes = op_bytes;
    memcpy(room, &op, op_bytes);
    failures += weft_op_post((const void *)room, 0, comm, NULL) != WEFT_OK;
    failures += data[3] != 8;
    weft_plan *plan = NULL;
    failures += weft_op_plan((const void *)room, comm, &plan) != WEFT_OK;
    failures += weft_plan_post(plan, 0, NULL) != WEFT_OK || data[3] != 16;
    weft_plan_destroy(plan);
    op.size_bytes = offsetof(weft_op, ready) - 1;
    memcpy(room, &op, op_bytes);
    failures +=
        weft_op_post((const void *)room, 0, comm, NULL) != WEFT_ERR_INVALID ||
        !strstr(weft_error_text(), "op->size_bytes");

    const weft_p2p parts[PARTS] = {{.size_bytes = part_bytes,
                                    .kind = WEFT_P2P_SEND,
                                    .buffer = &out,
                                    .count = 1,
                                    .dtype = WEFT_DTYPE_U32,
                                    .peer = 1 - rank},
                                   {.size_bytes = part_bytes,
                                    .kind = WEFT_P2P_RECV,
                                    .buffer = &in,
                                    .count = 1,
                                    .dtype = WEFT_DTYPE_U32,
                                    .peer = 1 - rank}};
    memset(room, 0xA5, sizeof(room));
    for (size_t i = 0; i < PARTS; i++) {
        memcpy(room + i * part_bytes, &parts[i], part_bytes);
    }
    failures += weft_p2p_post((const void *)room, PARTS, comm, NULL) != WEFT_OK;
    failures += in != 71 - (uint32_t)rank;
    if (failures) {
        fprintf(stderr, "rank %d: %s\n", rank, weft_error_text());
    }
    return failures;
}

static void test_op_of_an_older_caller_served(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = post_old};
    assert_int_equal(run(&world), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_op_own_limit_fails_all_ranks_alike),
        cmocka_unit_test(test_receive_own_limit_fails_all_ranks_alike),
        cmocka_unit_test(test_op_longer_limit_outlives_the_communicators),
        cmocka_unit_test(test_op_of_an_older_caller_served),
    };
    if (argc > 1 && strcmp(argv[1], "processes") == 0) {
        run = world_run_processes;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
