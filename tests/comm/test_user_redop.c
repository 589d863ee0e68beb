/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a program's own reduction gives exactly the balanced tree over the rank
 * index, whatever the collective, algorithm, count, place and fabric; it is
 * created, compared, refused and given back as weft/redop.h says.
 *
 * Method: functions that neither commute nor associate, so that any other order
 * or bracket gives other bits; the expected result is the tree, computed here.
 * Outputs are poisoned and have guard bytes. Modes: threads, processes.
 */
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

enum { MOST_ELEMS = 20011, GUARD = 64, POISON = 0xA5, RANKS = 8 };

typedef int (*runner)(const struct world *world);
static runner run = world_run_threads;

/* What a function is called with, counted. */
typedef struct calls {
    size_t made, wrong;
} calls;

static uint64_t load(const void *at, size_t i, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, (const unsigned char *)at + i * bytes, bytes);
    return value;
}

static void store(void *at, size_t i, size_t bytes, uint64_t value)
{
    memcpy((unsigned char *)at + i * bytes, &value, bytes);
}

static uint64_t mixed(uint64_t low, uint64_t high)
{
    return low * 3 + high * 5 + 7;
}

/* Neither commutes nor associates; modulo 2^bits of any type. */
static void mix(void *context, void *inout, const void *in, size_t count,
                weft_dtype dtype)
{
    calls *seen = context;
    size_t bytes = weft_dtype_bytes(dtype);
    seen->made++;
    seen->wrong += count == 0 || (uintptr_t)inout % 64 || (uintptr_t)in % 64;
    for (size_t i = 0; i < count; i++) {
        store(inout, i, bytes,
              mixed(load(inout, i, bytes), load(in, i, bytes)));
    }
}

/* Element i of a rank's send buffer. */
static uint64_t given(int rank, size_t i)
{
    uint64_t x = (uint64_t)rank * 0x9e3779b97f4a7c15u + i;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

static uint64_t expected(int first, int end, size_t i)
{
    if (end - first == 1) {
        return given(first, i);
    }
    int half = 1;
    while (half * 2 < end - first) {
        half *= 2;
    }
    return mixed(expected(first, first + half, i),
                 expected(first + half, end, i));
}

/* One operation: parts is how many ranks' parts send has. */
typedef struct probe {
    weft_collective collective;
    weft_dtype dtype;
    size_t count;
    int root;
    bool in_place, odd; /* odd: no buffer is aligned */
} probe;

static size_t uneven_part(const probe *what, int rank)
{
    return what->count * (size_t)(rank % 3);
}

/* Where this rank's part of the result begins, and how long it is. */
static size_t own_part(const probe *what, int rank, size_t *elems_out)
{
    size_t first = 0;
    *elems_out = what->count;
    if (what->collective == WEFT_COLLECTIVE_REDUCESCATTER) {
        return what->count * (size_t)rank;
    }
    if (what->collective == WEFT_COLLECTIVE_REDUCESCATTERV) {
        *elems_out = uneven_part(what, rank);
        for (int p = 0; p < rank; p++) {
            first += uneven_part(what, p);
        }
    }
    return first;
}

static size_t send_elems(const probe *what, int nranks)
{
    size_t last = 0;
    size_t first = own_part(what, nranks - 1, &last);
    return first + last;
}

static weft_status call(const probe *what, const void *send, void *recv,
                        weft_redop redop, weft_comm *comm, weft_stream *stream)
{
    size_t counts[RANKS];
    int nranks = weft_comm_get_nranks(comm);
    for (int p = 0; p < nranks; p++) {
        counts[p] = uneven_part(what, p);
    }
    switch (what->collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
        return weft_allreduce(send, recv, what->count, what->dtype, redop, comm,
                              stream);
    case WEFT_COLLECTIVE_REDUCE:
        return weft_reduce(send, recv, what->count, what->dtype, redop,
                           what->root, comm, stream);
    case WEFT_COLLECTIVE_REDUCESCATTER:
        return weft_reducescatter(send, recv, what->count, what->dtype, redop,
                                  comm, stream);
    default:
        return weft_reducescatterv(send, recv, counts, what->dtype, redop, comm,
                                   stream);
    }
}

/* Wrong elements and guards of one call; says so once. */
static int try_one(const probe *what, weft_redop redop, weft_comm *comm,
                   weft_stream *stream)
{
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    size_t bytes = weft_dtype_bytes(what->dtype), own = 0;
    size_t elems = send_elems(what, nranks);
    size_t first = own_part(what, rank, &own);
    size_t room = 2 * GUARD + elems * bytes + 1;
    unsigned char *block = malloc(2 * room);
    unsigned char *send = block + GUARD + what->odd;
    memset(block, POISON, 2 * room);
    for (size_t i = 0; i < elems; i++) {
        store(send, i, bytes, given(rank, i));
    }
    unsigned char *recv = what->in_place ? send + first * bytes : send + room;
    bool gets =
        what->collective != WEFT_COLLECTIVE_REDUCE || rank == what->root;
    weft_status status = call(what, send, recv, redop, comm, stream);
    if (status == WEFT_OK && stream) {
        status = weft_stream_wait(stream);
    }
    size_t wrong = 0;
    for (size_t i = 0; gets && i < own; i++) {
        uint64_t mask = bytes == 8 ? UINT64_MAX : (1ull << bytes * 8) - 1;
        wrong +=
            load(recv, i, bytes) != (expected(0, nranks, first + i) & mask);
    }
    for (size_t i = 0; i < GUARD; i++) {
        wrong += send[elems * bytes + i] != POISON ||
                 (!what->in_place && recv[own * bytes + i] != POISON);
    }
    free(block);
    if (status != WEFT_OK || wrong) {
        fprintf(stderr,
                "%s of %zu %s, root %d, %s, %s: rank %d of %d: %zu wrong: %s\n",
                weft_collective_text(what->collective), what->count,
                weft_dtype_text(what->dtype), what->root,
                what->in_place ? "in place" : "apart",
                what->odd ? "unaligned" : "aligned", rank, nranks, wrong,
                status == WEFT_OK ? "done" : weft_error_text());
    }
    return status != WEFT_OK || wrong > 0;
}

static weft_redop create(weft_comm *comm, const char *name, calls *seen)
{
    weft_redop redop;
    if (weft_redop_create_user(comm, name, mix, seen, &redop) != WEFT_OK) {
        fprintf(stderr, "%s: %s\n", name, weft_error_text());
        exit(1);
    }
    return redop;
}

/* A few counts of every collective; types and places go round. */
static int try_matrix(weft_comm *comm, void *context)
{
    static const weft_collective collectives[] = {
        WEFT_COLLECTIVE_ALLREDUCE, WEFT_COLLECTIVE_REDUCE,
        WEFT_COLLECTIVE_REDUCESCATTER, WEFT_COLLECTIVE_REDUCESCATTERV};
    static const size_t counts[] = {0, 1, 5, 1021, MOST_ELEMS};
    int failures = 0, turn = *(const int *)context;
    int nranks = weft_comm_get_nranks(comm);
    calls seen = {0};
    weft_redop redop = create(comm, "mix", &seen);
    for (size_t c = 0; c < 4; c++) {
        for (size_t n = 0; n < 5; n++, turn += 5) {
            probe what = {.collective = collectives[c],
                          .dtype = (weft_dtype)(turn % WEFT_DTYPE_COUNT),
                          .count = counts[n],
                          .root = turn % nranks,
                          .odd = turn % 3 == 1};
            failures += try_one(&what, redop, comm, NULL);
            what.in_place = what.collective != WEFT_COLLECTIVE_REDUCE ||
                            weft_comm_get_rank(comm) == what.root;
            failures += try_one(&what, redop, comm, NULL);
        }
    }
    failures += nranks > 1 && seen.made == 0;
    failures += seen.wrong > 0;
    failures += weft_redop_destroy(comm, redop) != WEFT_OK;
    return failures > 60 ? 60 : failures;
}

static void test_allreduce_own_reduction_every_world_is_the_tree(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 6; nranks++) {
        struct world world = {
            .nranks = nranks, .call = try_matrix, .context = &nranks};
        assert_int_equal(run(&world), 0);
    }
}

static void
test_allreduce_own_reduction_every_algorithm_is_the_tree(void **state)
{
    (void)state;
    static const char *const algorithms[] = {
        "all_reduce:oneshot/exchange,reduce:oneshot/tree",
        "all_reduce:direct,reduce:direct", "all_reduce:tree,reduce:tree",
        "all_reduce:exchange"};
    for (int a = 0; a < 4; a++) {
        setenv("WEFT_ALGO", algorithms[a], 1);
        setenv("WEFT_CHUNK_BYTES", a % 2 ? "4096" : "65536", 1);
        struct world world = {.nranks = 5, .call = try_matrix, .context = &a};
        assert_int_equal(run(&world), 0);
        unsetenv("WEFT_ALGO");
        unsetenv("WEFT_CHUNK_BYTES");
    }
}

/* The product of 2 x 2 matrices modulo 2^16, row by row in a u64. */
static uint64_t product(uint64_t a, uint64_t b)
{
    uint64_t c = 0;
    for (unsigned row = 0; row < 2; row++) {
        for (unsigned column = 0; column < 2; column++) {
            uint64_t sum = 0;
            for (unsigned k = 0; k < 2; k++) {
                sum += (a >> 16 * (2 * row + k) & 0xffff) *
                       (b >> 16 * (2 * k + column) & 0xffff);
            }
            c |= (sum & 0xffff) << 16 * (2 * row + column);
        }
    }
    return c;
}

static void multiply(void *context, void *inout, const void *in, size_t count,
                     weft_dtype dtype)
{
    (void)context;
    (void)dtype;
    uint64_t *low = inout;
    const uint64_t *high = in;
    for (size_t i = 0; i < count; i++) {
        low[i] = product(low[i], high[i]);
    }
}

/* A gated, planned, associative one: the product of all ranks, in order. */
static int try_products(weft_comm *comm, void *context)
{
    enum { ELEMS = 5000, CHUNK = 512, CHUNKS = 10 };
    (void)context;
    int failures = 0, rank = weft_comm_get_rank(comm);
    uint64_t *send = malloc(2 * ELEMS * sizeof(*send)), *recv = send + ELEMS;
    for (size_t i = 0; i < ELEMS; i++) {
        send[i] = given(rank, i);
    }
    weft_redop redop;
    weft_device *host;
    weft_stream *stream;
    weft_gate *ready;
    weft_plan *plan;
    if (weft_redop_create_user(comm, "product", multiply, NULL, &redop) ||
        weft_device_open("host", 0, &host) ||
        weft_stream_create(host, 0, &stream) ||
        weft_gate_create(host, CHUNKS, &ready)) {
        abort();
    }
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .send = send,
                  .recv = recv,
                  .count = ELEMS,
                  .dtype = WEFT_DTYPE_U64,
                  .redop = redop,
                  .ready = ready,
                  .gate_elems = CHUNK};
    failures += weft_op_plan(&op, comm, &plan) != WEFT_OK;
    failures += weft_redop_destroy(comm, redop) != WEFT_ERR_INVALID ||
                !strstr(weft_error_text(), "1 plan still uses it");
    for (uint64_t epoch = 1; epoch <= 2; epoch++) {
        memset(recv, POISON, ELEMS * sizeof(*recv));
        failures += weft_plan_post(plan, epoch, stream) != WEFT_OK;
        for (size_t chunk = CHUNKS; chunk-- > 0;) {
            failures += weft_gate_signal(ready, chunk, epoch, NULL) != WEFT_OK;
        }
        failures += weft_stream_wait(stream) != WEFT_OK;
        for (size_t i = 0; i < ELEMS; i++) {
            uint64_t all = given(0, i);
            for (int p = 1; p < weft_comm_get_nranks(comm); p++) {
                all = product(all, given(p, i));
            }
            failures += recv[i] != all;
        }
    }
    weft_plan_destroy(plan);
    failures += weft_redop_destroy(comm, redop) != WEFT_OK;
    weft_stream_destroy(stream);
    weft_gate_destroy(ready);
    weft_device_close(host);
    free(send);
    return failures > 60 ? 60 : failures;
}

static void test_plan_own_reduction_gated_keeps_rank_order(void **state)
{
    (void)state;
    struct world world = {.nranks = 4, .call = try_products};
    assert_int_equal(run(&world), 0);
}

/* Whether status is that, with a text that holds part. */
static int told(weft_status status, weft_status right, const char *part)
{
    if (status == right && strstr(weft_error_text(), part)) {
        return 0;
    }
    fprintf(stderr, "not %s for %s: %s: %s\n", weft_status_text(right), part,
            weft_status_text(status), weft_error_text());
    return 1;
}

static int try_wrong(weft_comm *comm, void *context)
{
    (void)context;
    static const char *const names[] = {"one", "other"};
    int failures = 0, rank = weft_comm_get_rank(comm);
    uint32_t data[4] = {0}, scale = 1;
    calls seen = {0};
    weft_redop redop;
    failures +=
        told(weft_redop_create_user(comm, names[rank], mix, &seen, &redop),
             WEFT_ERR_MISMATCH, "rank 0 has \"one\", rank 1 \"other\"");
    failures += told(weft_redop_create_user(comm, "", mix, &seen, &redop),
                     WEFT_ERR_INVALID, "allowed is 1 to 31 bytes");
    /* A mistake of one is heard by all. */
    failures += told(
        weft_redop_create_user(comm, "own", rank ? NULL : mix, &seen, &redop),
        WEFT_ERR_INVALID, rank ? "function is NULL" : "rank 1 could not begin");
    failures += told(weft_allreduce(data, data, 4, WEFT_DTYPE_U32,
                                    WEFT_REDOP_USER, comm, NULL),
                     WEFT_ERR_INVALID, "has no such reduction");
    failures += told(weft_redop_destroy(comm, WEFT_REDOP_USER),
                     WEFT_ERR_INVALID, "redop 64: allowed is one that");
    failures += told(weft_redop_destroy(comm, WEFT_REDOP_SUM), WEFT_ERR_INVALID,
                     "redop 0");
    redop = create(comm, "own", &seen);
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .send = data,
                  .recv = data,
                  .count = 4,
                  .dtype = WEFT_DTYPE_U32,
                  .redop = redop,
                  .scale = &scale};
    failures += told(weft_op_post(&op, 0, comm, NULL), WEFT_ERR_INVALID,
                     "with reduction \"own\"");
    return failures;
}

static void test_redop_wrong_arguments_told_by_name(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = try_wrong};
    assert_int_equal(run(&world), 0);
}

/* All numbers taken, some given back in another order on each rank. */
static int try_many(weft_comm *comm, void *context)
{
    enum { MOST = WEFT_REDOP_USER_END - WEFT_REDOP_USER };
    (void)context;
    calls seen = {0};
    weft_redop made[MOST], one_more;
    int failures = 0, rank = weft_comm_get_rank(comm);
    for (int i = 0; i < MOST; i++) {
        made[i] = create(comm, "one of many", &seen);
    }
    failures +=
        told(weft_redop_create_user(comm, "late", mix, &seen, &one_more),
             WEFT_ERR_INVALID, "64 at a time");
    failures += weft_redop_destroy(comm, made[rank ? 9 : 40]) != WEFT_OK;
    /* None is free on both. */
    failures +=
        told(weft_redop_create_user(comm, "late", mix, &seen, &one_more),
             WEFT_ERR_INVALID, "64 at a time");
    failures += weft_redop_destroy(comm, made[rank ? 40 : 9]) != WEFT_OK;
    one_more = create(comm, "late", &seen);
    failures += one_more != made[9];
    probe what = {.collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .dtype = WEFT_DTYPE_U32,
                  .count = 100};
    failures += try_one(&what, one_more, comm, NULL);
    return failures;
}

static void test_redop_numbers_freed_out_of_order_agreed(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = try_many};
    assert_int_equal(run(&world), 0);
}

static int try_mismatch(weft_comm *comm, void *context)
{
    (void)context;
    calls seen = {0};
    uint32_t data[2000] = {0};
    weft_redop left = create(comm, "left", &seen);
    weft_redop right = create(comm, "right", &seen);
    weft_status status = weft_allreduce(
        data, data, 2000, WEFT_DTYPE_U32,
        weft_comm_get_rank(comm) == 1 ? right : left, comm, NULL);
    return told(status, WEFT_ERR_MISMATCH, "reduction \"left\"") +
           told(status, WEFT_ERR_MISMATCH, "reduction \"right\"");
}

static void test_allreduce_other_reductions_mismatch_names_both(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = try_mismatch};
    assert_int_equal(run(&world), 0);
}

/* A stream's operation that cannot begin holds its reduction. */
static int try_busy(weft_comm *comm, void *context)
{
    (void)context;
    calls seen = {0};
    uint32_t data[8] = {0};
    weft_device *host;
    weft_stream *stream;
    weft_gate *gate;
    weft_redop redop = create(comm, "busy", &seen);
    if (weft_device_open("host", 0, &host) ||
        weft_stream_create(host, 0, &stream) ||
        weft_gate_create(host, 1, &gate)) {
        abort();
    }
    int failures = weft_gate_wait(gate, 0, 1, stream) != WEFT_OK;
    failures += weft_allreduce(data, data, 8, WEFT_DTYPE_U32, redop, comm,
                               stream) != WEFT_OK;
    failures += told(weft_redop_destroy(comm, redop), WEFT_ERR_INVALID,
                     "still uses it");
    failures += weft_gate_signal(gate, 0, 1, NULL) != WEFT_OK;
    failures += weft_stream_wait(stream) != WEFT_OK;
    failures += weft_redop_destroy(comm, redop) != WEFT_OK;
    weft_stream_destroy(stream);
    weft_gate_destroy(gate);
    weft_device_close(host);
    return failures;
}

static void test_redop_destroy_while_in_use_refused(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = try_busy};
    assert_int_equal(run(&world), 0);
}

static int try_device(weft_comm *comm, void *context)
{
    weft_device *device = context;
    calls seen = {0};
    uint32_t host[8] = {0};
    void *memory;
    weft_redop redop = create(comm, "host only", &seen);
    if (weft_device_alloc(device, sizeof(host), &memory)) {
        abort();
    }
    int failures =
        told(weft_allreduce(memory, host, 8, WEFT_DTYPE_U32, redop, comm, NULL),
             WEFT_ERR_INVALID, "is memory of the shadow device") +
        told(weft_allreduce(host, memory, 8, WEFT_DTYPE_U32, redop, comm, NULL),
             WEFT_ERR_INVALID, "with reduction \"host only\" is host memory");
    probe what = {.collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .dtype = WEFT_DTYPE_F16,
                  .count = 3000};
    failures += try_one(&what, redop, comm, NULL);
    weft_device_free(device, memory);
    return failures;
}

static void test_allreduce_own_reduction_of_device_memory_refused(void **state)
{
    (void)state;
    weft_device *device;
    assert_int_equal(weft_device_open("shadow", 0, &device), WEFT_OK);
    struct world world = {.nranks = 2,
                          .call = try_device,
                          .context = device,
                          .config = {.device = device}};
    assert_int_equal(world_run_threads(&world), 0);
    weft_device_close(device);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest shared[] = {
        cmocka_unit_test(test_allreduce_own_reduction_every_world_is_the_tree),
        cmocka_unit_test(
            test_allreduce_own_reduction_every_algorithm_is_the_tree),
        cmocka_unit_test(test_redop_wrong_arguments_told_by_name),
        cmocka_unit_test(test_redop_numbers_freed_out_of_order_agreed),
        cmocka_unit_test(test_allreduce_other_reductions_mismatch_names_both),
    };
    const struct CMUnitTest threaded[] = {
        cmocka_unit_test(test_plan_own_reduction_gated_keeps_rank_order),
        cmocka_unit_test(test_redop_destroy_while_in_use_refused),
        cmocka_unit_test(test_allreduce_own_reduction_of_device_memory_refused),
    };
    bool processes = argc > 1 && strcmp(argv[1], "processes") == 0;
    if (processes) {
        run = world_run_processes;
    }
    int failed = cmocka_run_group_tests(shared, NULL, NULL);
    return processes ? failed
                     : failed + cmocka_run_group_tests(threaded, NULL, NULL);
}
