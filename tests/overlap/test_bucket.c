/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     every bucket is reduced and gathered rightly in every mode, round
 *          after round, also with more buckets than may be in flight; a failed
 *          communicator ends every wait.
 * Method   1 to 4 ranks as threads; whole numbers, so that sums are exact; the
 *          shares of others start as poison. Buckets differ in size, one is
 *          far larger than a chunk. The same on a device whose memory the host
 *          does not reach, also with data that a stream makes and uses.
 */
#include "tests/comm/world.h"
#include "tests/repeat.h"
#include "weft/bucket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BUCKETS = 21, ROUNDS = 4, POISON = -77777 };

/* A buffer cut into buckets for so many ranks. */
typedef struct layout {
    weft_bucket_extent extents[BUCKETS];
    size_t elems;
} layout;

static layout make_layout(int nranks)
{
    layout out = {.elems = 0};
    for (size_t i = 0; i < BUCKETS; i++) {
        size_t share = i == 4 ? 70001 : 100 * i + 1;
        out.extents[i] = (weft_bucket_extent){out.elems, share};
        out.elems += share * (size_t)nranks;
    }
    return out;
}

/* What rank puts at element in a round. */
static float value_of(int rank, size_t element, int round)
{
    return (float)((int)((element * 7 + (size_t)round * 3) % 100) * (rank + 1));
}

typedef struct rank_side {
    weft_comm *comm;
    weft_device *device;
    struct plan *plan; /* NULL: the host's, a device of the side's own */
    int rank, nranks;
    layout cut;
    float *buffer;        /* what the host sees */
    float *buckets;       /* the device's; the same where the host reaches it */
    weft_stream *compute; /* or NULL */
    weft_bucket_set *set;
} rank_side;

/* What all ranks of a world do. */
typedef struct plan {
    const char *kind; /* of device */
    weft_bucket_mode mode;
    bool streams;            /* sets have a compute stream */
    weft_device *devices[4]; /* of each rank */
} plan;

static void settle(const rank_side *side)
{
    if (side->compute && weft_stream_wait(side->compute) != WEFT_OK) {
        abort();
    }
}

/* The host's view of elements becomes the device's, and back. */
static void put(rank_side *side, size_t start, size_t elems)
{
    if (side->buckets != side->buffer &&
        weft_device_copy(side->device, side->buckets + start,
                         side->buffer + start, elems * sizeof(float),
                         side->compute) != WEFT_OK) {
        abort();
    }
}

static void get(const rank_side *side, size_t start, size_t elems)
{
    if (side->buckets != side->buffer &&
        weft_device_copy(side->device, side->buffer + start,
                         side->buckets + start, elems * sizeof(float),
                         side->compute) != WEFT_OK) {
        abort();
    }
    settle(side);
}

static int make_buckets(rank_side *side)
{
    void *memory = NULL;
    side->buckets = side->buffer;
    if (side->plan && strcmp(side->plan->kind, "shadow") == 0) {
        int failed =
            weft_device_alloc(side->device, side->cut.elems * sizeof(float),
                              &memory) != WEFT_OK;
        side->buckets = memory;
        return failed;
    }
    return 0;
}

static int set_up(rank_side *side, weft_comm *comm, weft_collective collective,
                  plan *made)
{
    *side = (rank_side){.comm = comm,
                        .plan = made,
                        .rank = weft_comm_get_rank(comm),
                        .nranks = weft_comm_get_nranks(comm)};
    side->cut = make_layout(side->nranks);
    side->buffer = malloc(side->cut.elems * sizeof(float));
    side->device = made ? made->devices[side->rank] : NULL;
    if (!side->buffer ||
        (!made && weft_device_open("host", 0, &side->device) != WEFT_OK) ||
        make_buckets(side) != 0 ||
        (made && made->streams &&
         weft_stream_create(side->device, 0, &side->compute) != WEFT_OK)) {
        return 1;
    }
    weft_bucket_config config = {.size_bytes = sizeof(config),
                                 .comm = comm,
                                 .device = side->device,
                                 .collective = collective,
                                 .buffer = side->buckets,
                                 .dtype = WEFT_DTYPE_F32,
                                 .extents = side->cut.extents,
                                 .count = BUCKETS,
                                 .backwards = collective ==
                                              WEFT_COLLECTIVE_REDUCESCATTER,
                                 .class_id = WEFT_CLASS_DP,
                                 .label = "test",
                                 .compute = side->compute};
    return weft_bucket_create(&config, &side->set) != WEFT_OK;
}

static void tear_down(rank_side *side)
{
    weft_stream_destroy(side->compute);
    weft_bucket_destroy(side->set);
    if (side->buckets != side->buffer) {
        weft_device_free(side->device, side->buckets);
    }
    if (!side->plan) {
        weft_device_close(side->device);
    }
    free(side->buffer);
}

static size_t own_start(const rank_side *side, size_t bucket)
{
    weft_bucket_extent extent = side->cut.extents[bucket];
    return extent.start_elems + (size_t)side->rank * extent.share_elems;
}

/* This rank's data of a bucket: all of it, or its own share. */
static void fill_bucket(rank_side *side, size_t bucket, int round, bool all)
{
    weft_bucket_extent extent = side->cut.extents[bucket];
    size_t start = all ? extent.start_elems : own_start(side, bucket);
    size_t shares = all ? (size_t)side->nranks : 1;
    for (size_t i = start; i < start + shares * extent.share_elems; i++) {
        side->buffer[i] = value_of(side->rank, i, round);
    }
    put(side, start, shares * extent.share_elems);
}

/* Before a round begins: from then on others' shares are the operations'. */
static void poison(rank_side *side)
{
    side->buffer[0] = (float)POISON;
    repeat(side->buffer, sizeof(*side->buffer),
           side->cut.elems * sizeof(*side->buffer));
    put(side, 0, side->cut.elems);
    settle(side); /* the host's view changes next */
}

static int check_reduced(const rank_side *side, size_t bucket, int round)
{
    int wrong = 0;
    size_t own = own_start(side, bucket);
    get(side, own, side->cut.extents[bucket].share_elems);
    for (size_t i = own; i < own + side->cut.extents[bucket].share_elems; i++) {
        float wanted = 0;
        for (int rank = 0; rank < side->nranks; rank++) {
            wanted += value_of(rank, i, round);
        }
        wrong += side->buffer[i] != wanted;
    }
    return wrong;
}

static int check_gathered(const rank_side *side, size_t bucket, int round)
{
    int wrong = 0;
    weft_bucket_extent extent = side->cut.extents[bucket];
    get(side, extent.start_elems, (size_t)side->nranks * extent.share_elems);
    for (int rank = 0; rank < side->nranks; rank++) {
        size_t start = extent.start_elems + (size_t)rank * extent.share_elems;
        for (size_t i = start; i < start + extent.share_elems; i++) {
            wrong += side->buffer[i] != value_of(rank, i, round);
        }
    }
    return wrong;
}

/* Both collectives, in the order of a step. */
static int run_rounds(weft_comm *comm, void *context)
{
    plan *made = context;
    weft_bucket_mode mode = made->mode;
    rank_side reduce, gather;
    int wrong = set_up(&reduce, comm, WEFT_COLLECTIVE_REDUCESCATTER, made) +
                set_up(&gather, comm, WEFT_COLLECTIVE_ALLGATHER, made);
    for (int round = 0; round < ROUNDS && wrong == 0; round++) {
        poison(&reduce);
        poison(&gather);
        wrong += weft_bucket_begin(reduce.set, mode) != WEFT_OK;
        for (size_t i = BUCKETS; i > 0; i--) {
            fill_bucket(&reduce, i - 1, round, true);
            wrong += weft_bucket_ready(reduce.set, i - 1) != WEFT_OK;
        }
        for (size_t i = BUCKETS; i > 0; i--) {
            wrong += weft_bucket_wait(reduce.set, i - 1) != WEFT_OK;
            wrong += check_reduced(&reduce, i - 1, round);
        }
        wrong += weft_barrier(comm, NULL) != WEFT_OK;
        wrong += weft_bucket_begin(gather.set, mode) != WEFT_OK;
        for (size_t i = 0; i < BUCKETS; i++) {
            fill_bucket(&gather, i, round, false);
            wrong += weft_bucket_ready(gather.set, i) != WEFT_OK;
        }
        for (size_t i = 0; i < BUCKETS; i++) {
            wrong += weft_bucket_wait(gather.set, i) != WEFT_OK;
            wrong += check_gathered(&gather, i, round);
        }
        wrong += weft_barrier(comm, NULL) != WEFT_OK;
    }
    tear_down(&gather);
    tear_down(&reduce);
    return wrong;
}

static void open_device(int rank, void *context)
{
    plan *made = context;
    if (weft_device_open(made->kind, 0, &made->devices[rank]) != WEFT_OK) {
        abort();
    }
}

static void set_device(int rank, weft_comm_config *config, void *context)
{
    plan *made = context;
    config->device = made->devices[rank];
}

static void run_world(const char *kind, int nranks, weft_bucket_mode mode,
                      bool streams)
{
    plan made = {.kind = kind, .mode = mode, .streams = streams};
    struct world world = {
        .nranks = nranks,
        .config = {.size_bytes = sizeof(world.config), .timeout_ms = 20000},
        .call = run_rounds,
        .context = &made,
        .before = open_device,
        .configure = set_device};
    assert_int_equal(world_run_threads(&world), 0);
    for (int rank = 0; rank < nranks; rank++) {
        weft_device_close(made.devices[rank]);
    }
}

static void run_worlds(weft_bucket_mode mode)
{
    for (int nranks = 1; nranks <= 4; nranks++) {
        run_world("host", nranks, mode, false);
    }
}

static void test_bucket_overlapped_is_right(void **state)
{
    (void)state;
    run_worlds(WEFT_BUCKET_OVERLAPPED);
}

static void test_bucket_blocking_is_right(void **state)
{
    (void)state;
    run_worlds(WEFT_BUCKET_BLOCKING);
}

static void test_bucket_on_the_shadow_device_is_right(void **state)
{
    (void)state;
    run_world("shadow", 3, WEFT_BUCKET_OVERLAPPED, false);
    run_world("shadow", 2, WEFT_BUCKET_BLOCKING, false);
}

static void test_bucket_of_a_stream_is_right(void **state)
{
    (void)state;
    run_world("host", 2, WEFT_BUCKET_OVERLAPPED, true);
    run_world("shadow", 3, WEFT_BUCKET_OVERLAPPED, true);
    run_world("shadow", 2, WEFT_BUCKET_BLOCKING, true);
    run_world("shadow", 1, WEFT_BUCKET_OVERLAPPED, true);
}

/* Nothing is sent, and no rank waits; then the set works as ever. */
static int run_off(weft_comm *comm, void *context)
{
    (void)context;
    rank_side side;
    int wrong = set_up(&side, comm, WEFT_COLLECTIVE_ALLGATHER, NULL);
    poison(&side);
    /* Before the first round all is there. */
    wrong += weft_bucket_wait(side.set, 3) != WEFT_OK;
    wrong += weft_bucket_begin(side.set, WEFT_BUCKET_OFF) != WEFT_OK;
    for (size_t i = 0; i < BUCKETS; i++) {
        fill_bucket(&side, i, 1, false);
        wrong += weft_bucket_ready(side.set, i) != WEFT_OK;
        wrong += weft_bucket_wait(side.set, i) != WEFT_OK;
        int changed = check_gathered(&side, i, 1);
        wrong += (changed != 0) != (side.nranks > 1);
    }
    wrong += weft_bucket_begin(side.set, WEFT_BUCKET_OVERLAPPED) != WEFT_OK;
    for (size_t i = 0; i < BUCKETS; i++) {
        wrong += weft_bucket_ready(side.set, i) != WEFT_OK;
    }
    for (size_t i = 0; i < BUCKETS; i++) {
        wrong += weft_bucket_wait(side.set, i) != WEFT_OK;
        wrong += check_gathered(&side, i, 1);
    }
    wrong += weft_barrier(comm, NULL) != WEFT_OK;
    tear_down(&side);
    return wrong;
}

static void test_bucket_off_sends_nothing(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 3; nranks++) {
        struct world world = {
            .nranks = nranks,
            .config = {.size_bytes = sizeof(world.config), .timeout_ms = 20000},
            .call = run_off};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

/* Rank 1 aborts where the others wait for its buckets, and is named. */
static int run_failing(weft_comm *comm, void *context)
{
    (void)context;
    rank_side side;
    int wrong = set_up(&side, comm, WEFT_COLLECTIVE_REDUCESCATTER, NULL);
    /* Rank 1 may have given up before the others leave this, or begin. */
    weft_status status = weft_barrier(comm, NULL);
    if (status == WEFT_OK) {
        status = weft_bucket_begin(side.set, WEFT_BUCKET_OVERLAPPED);
    }
    if (side.rank == 1) {
        wrong += weft_comm_abort(comm) != WEFT_OK;
    } else {
        size_t last = BUCKETS - 1;
        fill_bucket(&side, last, 0, true);
        if (status == WEFT_OK) {
            status = weft_bucket_ready(side.set, last);
        }
        if (status == WEFT_OK) {
            status = weft_bucket_wait(side.set, last);
        }
        wrong += status >= WEFT_OK || !strstr(weft_error_text(), "rank 1");
    }
    tear_down(&side);
    return wrong;
}

static void test_bucket_failed_communicator_ends_waits(void **state)
{
    (void)state;
    struct world world = {
        .nranks = 3,
        .config = {.size_bytes = sizeof(world.config), .timeout_ms = 20000},
        .call = run_failing};
    assert_int_equal(world_run_threads(&world), 0);
}

static int run_misuse(weft_comm *comm, void *context)
{
    (void)context;
    weft_bucket_set *set = NULL;
    weft_bucket_config config = {.size_bytes = sizeof(config),
                                 .comm = comm,
                                 .collective = WEFT_COLLECTIVE_BROADCAST};
    return weft_bucket_create(&config, &set) != WEFT_ERR_INVALID || set != NULL;
}

static void test_bucket_other_collectives_are_refused(void **state)
{
    (void)state;
    struct world world = {.nranks = 1,
                          .config = {.size_bytes = sizeof(world.config)},
                          .call = run_misuse};
    assert_int_equal(world_run_threads(&world), 0);
}

static int expect_refusal(weft_status status, const char *text)
{
    const int wrong =
        status != WEFT_ERR_INVALID || !strstr(weft_error_text(), text);
    if (wrong) {
        fprintf(stderr, "wanted \"%s\", got %s: %s\n", text,
                weft_status_text(status), weft_error_text());
    }
    return wrong;
}

/* Each is refused by name, and the round goes on as if nothing had been. */
static int run_disorder(weft_comm *comm, void *context)
{
    (void)context;
    float data[2] = {3, 4};
    const weft_bucket_extent extents[] = {{0, 1}, {1, 1}};
    weft_device *device;
    weft_bucket_set *set;
    if (weft_device_open("host", 0, &device) != WEFT_OK) {
        return 1;
    }
    weft_bucket_config config = {.size_bytes = sizeof(config),
                                 .comm = comm,
                                 .device = device,
                                 .collective = WEFT_COLLECTIVE_ALLGATHER,
                                 .dtype = WEFT_DTYPE_F32,
                                 .buffer = data,
                                 .extents = extents,
                                 .count = 2,
                                 .backwards = true};
    if (weft_bucket_create(&config, &set) != WEFT_OK) {
        return 1;
    }
    const weft_bucket_mode unknown = (weft_bucket_mode)9;
    int wrong = expect_refusal(weft_bucket_begin(NULL, unknown), "set is NULL");
    wrong += expect_refusal(weft_bucket_begin(set, unknown), "mode 9");
    wrong += expect_refusal(weft_bucket_ready(set, 1), "no round has begun");
    wrong += weft_bucket_begin(set, WEFT_BUCKET_OVERLAPPED) != WEFT_OK;
    wrong +=
        expect_refusal(weft_bucket_ready(set, 0), "allowed is 1, the next");
    wrong += expect_refusal(weft_bucket_ready(set, 2), "allowed is 0 .. 1");
    wrong += weft_bucket_ready(set, 1) != WEFT_OK;
    wrong += expect_refusal(weft_bucket_begin(set, WEFT_BUCKET_OVERLAPPED),
                            "bucket 0 of round 1 is not ready yet");
    wrong += weft_bucket_ready(set, 0) != WEFT_OK;
    wrong += expect_refusal(weft_bucket_wait(set, 7), "bucket 7: allowed is");
    wrong += expect_refusal(weft_bucket_test(NULL, 0), "set is NULL");
    for (size_t b = 0; b < 2; b++) {
        wrong += weft_bucket_wait(set, b) != WEFT_OK;
    }
    weft_bucket_destroy(set);
    weft_device_close(device);
    return wrong;
}

static void test_bucket_out_of_order_is_refused(void **state)
{
    (void)state;
    struct world world = {.nranks = 1,
                          .config = {.size_bytes = sizeof(world.config)},
                          .call = run_disorder};
    assert_int_equal(world_run_threads(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bucket_overlapped_is_right),
        cmocka_unit_test(test_bucket_blocking_is_right),
        cmocka_unit_test(test_bucket_on_the_shadow_device_is_right),
        cmocka_unit_test(test_bucket_of_a_stream_is_right),
        cmocka_unit_test(test_bucket_off_sends_nothing),
        cmocka_unit_test(test_bucket_failed_communicator_ends_waits),
        cmocka_unit_test(test_bucket_other_collectives_are_refused),
        cmocka_unit_test(test_bucket_out_of_order_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
