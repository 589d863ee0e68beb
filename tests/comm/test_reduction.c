/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: reductions that a type does not have and scalars in the wrong place are
 * refused by name; a pre-multiplied sum is the same with and without gates and
 * on every algorithm; a rank that means another reduction is found.
 *
 * Method: one wrong argument after another on two ranks, then an operation
 * that must still match; results against the table of values.h.
 */
#include "tests/comm/rank_checks.h"
#include "tests/comm/values.h"
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

enum { ELEMS = 9001, GATE_ELEMS = 1000, GATE_CHUNKS = 10 };

static int wrong_reductions(weft_comm *comm, void *context)
{
    (void)context;
    int failures = 0;
    double data[8] = {1, 2, 3}, scale = 2;
    for (int d = WEFT_DTYPE_F16; d < WEFT_DTYPE_COUNT; d++) {
        char part[64];
        snprintf(part, sizeof(part), "redop bxor of %s",
                 weft_dtype_text((weft_dtype)d));
        failures += refused(weft_allreduce(data, data, 4, (weft_dtype)d,
                                           WEFT_REDOP_BXOR, comm, NULL),
                            part);
    }
    failures += refused(weft_reduce(data, data, 4, WEFT_DTYPE_F64,
                                    WEFT_REDOP_PREMULSUM, 0, comm, NULL),
                        "scale is NULL");
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .send = data,
                  .recv = data,
                  .count = 3,
                  .dtype = WEFT_DTYPE_F64,
                  .redop = WEFT_REDOP_MAX,
                  .scale = &scale};
    failures += refused(weft_op_post(&op, 0, comm, NULL), "with redop max");
    /* Where nothing is reduced, redop and scale have no meaning. */
    op.collective = WEFT_COLLECTIVE_BROADCAST;
    op.redop = WEFT_REDOP_BAND;
    failures += weft_op_post(&op, 0, comm, NULL) != WEFT_OK;
    failures += data[0] != 1 || data[2] != 3;
    op.collective = WEFT_COLLECTIVE_ALLREDUCE;
    op.redop = WEFT_REDOP_PREMULSUM;
    failures += weft_op_post(&op, 0, comm, NULL) != WEFT_OK;
    failures += data[0] != 4 || data[1] != 8 || data[2] != 12;
    return failures;
}

/* The plan keeps the scalar that it was made with. */
static int planned_sum(weft_comm *comm, void *context)
{
    (void)context;
    int32_t data[3] = {1, 2, 3}, scale = 1 + weft_comm_get_rank(comm);
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .send = data,
                  .recv = data,
                  .count = 3,
                  .dtype = WEFT_DTYPE_I32,
                  .redop = WEFT_REDOP_PREMULSUM,
                  .scale = &scale};
    weft_plan *plan;
    int failures = weft_op_plan(&op, comm, &plan) != WEFT_OK;
    scale = 1000;
    failures += weft_plan_post(plan, 0, NULL) != WEFT_OK;
    failures += weft_plan_post(plan, 0, NULL) != WEFT_OK;
    failures += data[0] != 9 || data[1] != 18 || data[2] != 27; /* (1+2)^2 */
    weft_plan_destroy(plan);
    return failures;
}

static void test_plan_of_premulsum_keeps_its_scalar(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = planned_sum};
    assert_int_equal(world_run_threads(&world), 0);
}

static void test_post_wrong_reductions_refused_by_name(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = wrong_reductions};
    assert_int_equal(world_run_threads(&world), 0);
}

/* A pre-multiplied sum whose chunks come one by one, last first. */
static int gated_sum(weft_comm *comm, void *context)
{
    weft_dtype dtype = *(weft_dtype *)context;
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    values made;
    unsigned char *send = malloc(3 * ELEMS * 8);
    unsigned char *recv = send + ELEMS * 8, *want = recv + ELEMS * 8;
    values_init(&made, dtype, WEFT_REDOP_PREMULSUM, rank, nranks, 5);
    values_fill(&made, send, rank, 0, ELEMS);
    values_expect(&made, want, 0, ELEMS);
    memset(recv, 0xA5, ELEMS * 8);
    weft_device *host;
    weft_stream *stream;
    weft_gate *ready, *arrived;
    if (weft_device_open("host", 0, &host) != WEFT_OK ||
        weft_stream_create(host, 0, &stream) != WEFT_OK ||
        weft_gate_create(host, GATE_CHUNKS, &ready) != WEFT_OK ||
        weft_gate_create(host, GATE_CHUNKS, &arrived) != WEFT_OK) {
        abort();
    }
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .send = send,
                  .recv = recv,
                  .count = ELEMS,
                  .dtype = dtype,
                  .redop = WEFT_REDOP_PREMULSUM,
                  .ready = ready,
                  .arrived = arrived,
                  .gate_elems = GATE_ELEMS,
                  .scale = made.scale};
    int failures = weft_op_post(&op, 1, comm, stream) != WEFT_OK;
    for (size_t chunk = GATE_CHUNKS; chunk-- > 0;) {
        failures += weft_gate_signal(ready, chunk, 1, NULL) != WEFT_OK;
    }
    for (size_t chunk = 0; chunk < GATE_CHUNKS; chunk++) {
        failures += weft_gate_wait(arrived, chunk, 1, NULL) != WEFT_OK;
    }
    failures += weft_stream_wait(stream) != WEFT_OK;
    failures += memcmp(recv, want, ELEMS * weft_dtype_bytes(dtype)) != 0;
    weft_stream_destroy(stream);
    weft_gate_destroy(ready);
    weft_gate_destroy(arrived);
    weft_device_close(host);
    free(send);
    return failures;
}

static void test_premulsum_gated_every_algorithm_exact(void **state)
{
    (void)state;
    static const char *const algorithms[] = {
        "all_reduce:direct", "all_reduce:tree", "all_reduce:exchange"};
    static const weft_dtype dtypes[] = {WEFT_DTYPE_F32, WEFT_DTYPE_F16,
                                        WEFT_DTYPE_I8, WEFT_DTYPE_F8E4M3};
    for (size_t a = 0; a < 3; a++) {
        setenv("WEFT_ALGO", algorithms[a], 1);
        for (size_t d = 0; d < 4; d++) {
            weft_dtype dtype = dtypes[d];
            struct world world = {
                .nranks = 3, .call = gated_sum, .context = &dtype};
            assert_int_equal(world_run_threads(&world), 0);
        }
    }
    unsetenv("WEFT_ALGO");
}

static int other_reduction(weft_comm *comm, void *context)
{
    (void)context;
    uint32_t data[4] = {0}, scale = 1;
    bool odd = weft_comm_get_rank(comm) == 1;
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .send = data,
                  .recv = data,
                  .count = 4,
                  .dtype = WEFT_DTYPE_U32,
                  .redop = odd ? WEFT_REDOP_BXOR : WEFT_REDOP_PREMULSUM,
                  .scale = odd ? NULL : &scale};
    weft_status status = weft_op_post(&op, 0, comm, NULL);
    const char *text = weft_error_text();
    bool named = status == WEFT_ERR_MISMATCH &&
                 strstr(text, "u32, premulsum") && strstr(text, "u32, bxor");
    if (!named) {
        fprintf(stderr, "%s: %s\n", weft_status_text(status), text);
    }
    return !named;
}

static void test_premulsum_beside_bxor_mismatch_names_both(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = other_reduction};
    assert_int_equal(world_run_threads(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_post_wrong_reductions_refused_by_name),
        cmocka_unit_test(test_plan_of_premulsum_keeps_its_scalar),
        cmocka_unit_test(test_premulsum_gated_every_algorithm_exact),
        cmocka_unit_test(test_premulsum_beside_bxor_mismatch_names_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
