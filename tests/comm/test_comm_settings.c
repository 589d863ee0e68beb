/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: each field of weft_comm_config that asks for something is heard, by
 * create, split and create_from alike: flags by the sums, sm_budget by the
 * streams that the communicator makes, device by its buffers. What cannot be is
 * refused by name on all ranks.
 *
 * Method: worlds of threads. Sums of halves that differ in their last bit
 * between one tree and a tree per host; ranks of two hosts by WEFT_DOMAIN.
 * Budgets on the fake CUDA driver, behind a table that notes what streams are
 * asked for and get.
 */
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"

#include "comm/core/core.h"
#include "device/object.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RANKS = 3,
    MANY = 1 << 16,    /* elements of a sum that is not a small one */
    PER_HOST = 0x6800, /* 2048 of f16: of 2048 + 1, rounded, + 1, rounded */
    FLAT = 0x6801      /* 2050 */
};

/* Of all elements, of a small sum and of a large one. */
static int expect_sum(weft_comm *comm, uint16_t wanted)
{
    static const uint16_t own[RANKS] = {0x6800, 0x3c00, 0x3c00}; /* 2048 1 1 */
    uint16_t *values = malloc(MANY * sizeof(*values));
    const size_t counts[] = {1, MANY};
    int failures = 0;
    for (int c = 0; c < 2; c++) {
        for (size_t i = 0; i < counts[c]; i++) {
            values[i] = own[weft_comm_get_rank(comm)];
        }
        failures +=
            expect(weft_allreduce(values, values, counts[c], WEFT_DTYPE_F16,
                                  WEFT_REDOP_SUM, comm, NULL),
                   WEFT_OK, NULL);
        for (size_t i = 0; i < counts[c]; i++) {
            if (values[i] != wanted) {
                fprintf(stderr, "element %zu of %zu: 0x%x, wanted 0x%x\n", i,
                        counts[c], values[i], wanted);
                failures++;
                break;
            }
        }
    }
    free(values);
    return failures;
}

static void flag_first(int rank, weft_comm_config *config, void *context)
{
    (void)context;
    config->flags = rank == 0 ? WEFT_COMM_SUM_FLAT : 0;
}

/* Of a parent whose sums are as context says. */
static int sum_in_children(weft_comm *world, void *context)
{
    static const int all[] = {0, 1, 2};
    const uint16_t *inherited = context;
    const weft_comm_config flat = {.size_bytes = sizeof(flat),
                                   .flags = WEFT_COMM_SUM_FLAT};
    const weft_comm_config mixed = {
        .size_bytes = sizeof(mixed),
        .flags = world->rank == 1 ? WEFT_COMM_SUM_FLAT : 0};
    const weft_comm_config unknown = {.size_bytes = sizeof(unknown),
                                      .flags = 6};
    weft_comm *child;
    int failures = expect_sum(world, *inherited);
    for (int how = 0; how < 4; how++) {
        const weft_comm_config *config = how % 2 ? &flat : NULL;
        failures += expect(
            how < 2 ? weft_comm_split(world, 0, 0, config, &child)
                    : weft_comm_create_from(world, all, 3, config, &child),
            WEFT_OK, NULL);
        failures += expect_sum(child, config ? FLAT : *inherited);
        weft_comm_destroy(child);
    }
    failures +=
        expect(weft_comm_split(world, 7, 0, &mixed, &child), WEFT_ERR_INVALID,
               "of color 7 rank 0 has 0x0, rank 1 0x1");
    failures += expect(weft_comm_create_from(world, all, 3, &mixed, &child),
                       WEFT_ERR_INVALID, "rank 0 has 0x0, rank 1 0x1");
    failures += expect(weft_comm_split(world, 0, 0, &unknown, &child),
                       WEFT_ERR_INVALID, "flags 0x6: allowed is 0 or 0x1");
    /* Of another color they may differ, and the parent stays usable. */
    failures += expect(weft_comm_split(world, world->rank, 0, &mixed, &child),
                       WEFT_OK, NULL);
    weft_comm_destroy(child);
    return failures + expect_sum(world, *inherited);
}

static void test_flags_sum_flat_one_tree_over_all_hosts(void **state)
{
    (void)state;
    uint16_t inherited = PER_HOST;
    struct world world = {
        .nranks = RANKS, .call = sum_in_children, .context = &inherited};
    setenv("WEFT_DOMAIN", "a,a,b", 1);
    assert_int_equal(world_run_threads(&world), 0);
    inherited = FLAT;
    world.configure = flag_first;
    assert_int_equal(world_run_threads(&world), 0);
    unsetenv("WEFT_DOMAIN");
}

/* What streams of the spied device were asked for since the last look. */
static struct {
    _Atomic int streams, budget, sms;
} seen;

static wefti_device_table spy;

static weft_status spy_create(weft_device *device,
                              const weft_stream_config *config,
                              weft_stream **out)
{
    weft_status status = wefti_device_cuda.stream_create(device, config, out);
    atomic_fetch_add(&seen.streams, 1);
    atomic_fetch_add(&seen.budget, config->sm_budget);
    if (status == WEFT_OK) {
        atomic_fetch_add(&seen.sms, wefti_device_cuda.stream_get_sms(*out));
    }
    return status;
}

/* Two streams of each rank, with so many multiprocessors each. */
static int expect_streams(weft_comm *comm, int ranks, int budget, int sms)
{
    int failures = weft_barrier(comm, NULL) != WEFT_OK;
    if (comm->rank == 0) {
        const int streams = atomic_exchange(&seen.streams, 0);
        const int asked = atomic_exchange(&seen.budget, 0);
        const int given = atomic_exchange(&seen.sms, 0);
        if (streams != 2 * ranks || asked != 2 * ranks * budget ||
            given != 2 * ranks * sms) {
            fprintf(stderr, "%d streams, asked for %d, have %d\n", streams,
                    asked, given);
            failures++;
        }
    }
    return failures + (weft_barrier(comm, NULL) != WEFT_OK);
}

struct plan {
    weft_device *devices[RANKS];
    const char *kind;
    int budget;
    weft_status status;
    const char *text;
};

static pthread_barrier_t opened; /* the devices of both ranks */

static void open_device(int rank, weft_comm_config *config, void *context)
{
    struct plan *plan = context;
    config->sm_budget = rank == 0 || plan->status == WEFT_OK ? plan->budget : 0;
    /* An open looks at the tables of all devices, and create opens one. */
    static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
    if (plan->kind) {
        pthread_mutex_lock(&opening);
        assert_int_equal(weft_device_open(plan->kind, 0, &plan->devices[rank]),
                         WEFT_OK);
        if (strcmp(plan->kind, "cuda") == 0) {
            plan->devices[rank]->table = &spy;
        }
        pthread_mutex_unlock(&opening);
        config->device = plan->devices[rank];
    }
    pthread_barrier_wait(&opened);
}

static int close_device(int rank, void *context)
{
    struct plan *plan = context;
    weft_device_close(plan->devices[rank]);
    plan->devices[rank] = NULL;
    return 0;
}

static int budget_streams(weft_comm *world, void *context)
{
    const struct plan *plan = context;
    weft_device *own;
    weft_comm *child;
    weft_comm_config less = {.size_bytes = sizeof(less), .sm_budget = 8};
    weft_comm_config least = {.size_bytes = sizeof(least), .sm_budget = 5};
    weft_comm_config other = {.size_bytes = sizeof(other)};
    int failures = expect_streams(world, 2, plan->budget, plan->budget);
    failures +=
        expect(weft_comm_split(world, 0, 0, NULL, &child), WEFT_OK, NULL);
    failures += expect_streams(world, 2, plan->budget, plan->budget);
    weft_comm_destroy(child);
    failures +=
        expect(weft_comm_split(world, 0, 0, &less, &child), WEFT_OK, NULL);
    failures += expect_streams(world, 2, 8, 8);
    weft_comm_destroy(child);
    /* One rank's is below what the chip can part: both hear of it. */
    failures += expect(
        weft_comm_split(world, 0, 0, world->rank == 1 ? &least : NULL, &child),
        WEFT_ERR_INVALID, "sm_budget 5: the least that cuda");
    /* Another device begins without the parent's budget, here with no copies
     * at all. */
    failures += expect(weft_device_open("host", 0, &own), WEFT_OK, NULL);
    other.device = own;
    failures +=
        expect(weft_comm_split(world, 0, 0, &other, &child), WEFT_OK, NULL);
    failures += child->sm_budget != 0 || child->copies;
    weft_comm_destroy(child);
    weft_device_close(own);
    return failures;
}

static void test_sm_budget_reaches_the_streams_of_the_communicator(void **state)
{
    (void)state;
    struct plan plan = {.kind = "cuda", .budget = 16};
    struct world world = {.nranks = 2,
                          .call = budget_streams,
                          .context = &plan,
                          .configure = open_device,
                          .after = close_device};
    spy = wefti_device_cuda;
    spy.stream_create = spy_create;
    assert_int_equal(world_run_threads(&world), 0);
}

static int not_reached(weft_comm *comm, void *context)
{
    (void)comm;
    (void)context;
    fprintf(stderr, "a budget that cannot be was taken\n");
    return 1;
}

static int expect_refusal(int rank, weft_status status, void *context)
{
    const struct plan *plan = context;
    (void)rank;
    return expect(status, plan->status, plan->text);
}

/* Rank 0's alone is wrong. */
static void test_sm_budget_that_cannot_be_refused_on_all_ranks(void **state)
{
    (void)state;
    static const struct plan plans[] = {
        {{0}, NULL, 16, WEFT_ERR_INVALID, "sm_budget 16: without a device"},
        {{0}, NULL, -1, WEFT_ERR_INVALID, "sm_budget -1: allowed is 0"},
        {{0}, "host", 16, WEFT_ERR_UNSUPPORTED, "the host device has no"},
        {{0}, "shadow", 16, WEFT_ERR_UNSUPPORTED, "the shadow device has no"},
        {{0}, "cuda", 7, WEFT_ERR_INVALID, "the least that cuda device 0"}};
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        struct plan plan = plans[i];
        struct world world = {.nranks = 2,
                              .call = not_reached,
                              .context = &plan,
                              .configure = open_device,
                              .refused = expect_refusal,
                              .after = close_device};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

/* The parent knows host memory only. */
static int split_with_a_device(weft_comm *world, void *context)
{
    int32_t own = world->rank + 1, sum = 0;
    void *there;
    weft_device *device;
    weft_comm *child;
    (void)context;
    int failures =
        expect(weft_device_open("shadow", 0, &device), WEFT_OK, NULL);
    const weft_comm_config config = {
        .size_bytes = sizeof(config), .device = device, .ops_in_flight = 2};
    failures +=
        expect(weft_device_alloc(device, sizeof(own), &there), WEFT_OK, NULL);
    failures += expect(weft_device_copy(device, there, &own, sizeof(own), NULL),
                       WEFT_OK, NULL);
    failures +=
        expect(weft_comm_split(world, 0, 0, &config, &child), WEFT_OK, NULL);
    failures += child->ops_in_flight != 2;
    failures += expect(weft_allreduce(there, there, 1, WEFT_DTYPE_I32,
                                      WEFT_REDOP_SUM, child, NULL),
                       WEFT_OK, NULL);
    failures += expect(weft_device_copy(device, &sum, there, sizeof(sum), NULL),
                       WEFT_OK, NULL);
    failures += sum != RANKS * (RANKS + 1) / 2;
    weft_comm_destroy(child);
    weft_device_free(device, there);
    weft_device_close(device);
    return failures;
}

static void test_split_with_its_own_device_takes_its_memory(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = split_with_a_device};
    assert_int_equal(world_run_threads(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags_sum_flat_one_tree_over_all_hosts),
        cmocka_unit_test(
            test_sm_budget_reaches_the_streams_of_the_communicator),
        cmocka_unit_test(test_sm_budget_that_cannot_be_refused_on_all_ranks),
        cmocka_unit_test(test_split_with_its_own_device_takes_its_memory),
    };
    pthread_barrier_init(&opened, NULL, 2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
