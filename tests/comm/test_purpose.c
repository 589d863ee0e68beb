/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what weft posts for a call of its own is told of as that call: in
 * mismatches, in what a late rank did last, in dump and health; a rank in
 * another call is found out also where both post alike; and of algorithms only
 * those that differ are named, in words.
 *
 * Method: worlds of two threads in which rank 1 calls something else than rank
 * 0, or comes too late; reports read after each kind of call.
 */
#include "tests/comm/world.h"

#include "base/check.h"
#include "comm/core/core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As many bytes as a split's first all-gather. */
enum { CARD_BYTES = 20, ROOM = 8192 };

static int expect_text(const char *text, const char *wanted)
{
    bool found = strstr(text, wanted) != NULL;
    if (!found) {
        fprintf(stderr, "wanted \"%s\" in: %s\n", wanted, text);
    }
    return !found;
}

/* The same from both sides. */
static int expect_fault(weft_comm *comm, weft_status wanted_status,
                        const char *first, const char *second)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    int failures = weft_comm_get_fault(comm, &fault) != WEFT_OK;
    failures += fault.status != wanted_status;
    failures +=
        expect_text(fault.text, first) + expect_text(fault.text, second);
    return failures;
}

static int split_or_gather(weft_comm *comm, void *context)
{
    (void)context;
    unsigned char mine[CARD_BYTES] = {0}, all[2 * CARD_BYTES];
    weft_comm *part;
    weft_status status =
        weft_comm_get_rank(comm) == 0
            ? weft_comm_split(comm, 0, 0, NULL, &part)
            : weft_allgather(mine, all, CARD_BYTES, WEFT_DTYPE_U8, comm, NULL);
    int failures = status != WEFT_ERR_MISMATCH;
    return failures +
           expect_fault(comm, WEFT_ERR_MISMATCH,
                        "rank 0 posted weft_comm_split (all_gather of 20 u8)",
                        "rank 1 posted all_gather of 20 u8");
}

static int split_or_mem(weft_comm *comm, void *context)
{
    (void)context;
    weft_comm *part;
    weft_mem *mem;
    weft_status status = weft_comm_get_rank(comm) == 0
                             ? weft_comm_split(comm, 0, 0, NULL, &part)
                             : weft_mem_create(comm, 64, &mem);
    int failures = status != WEFT_ERR_MISMATCH;
    return failures + expect_fault(comm, WEFT_ERR_MISMATCH,
                                   "rank 0 posted weft_comm_split (",
                                   "rank 1 posted weft_mem_create (");
}

static void keep(void *context, void *inout, const void *in, size_t count,
                 weft_dtype dtype)
{
    (void)context, (void)inout, (void)in, (void)count, (void)dtype;
}

static int redop_or_mem(weft_comm *comm, void *context)
{
    (void)context;
    weft_redop redop;
    weft_mem *mem;
    weft_status status =
        weft_comm_get_rank(comm) == 0
            ? weft_redop_create_user(comm, "keep", keep, NULL, &redop)
            : weft_mem_create(comm, 64, &mem);
    int failures = status != WEFT_ERR_MISMATCH;
    return failures + expect_fault(comm, WEFT_ERR_MISMATCH,
                                   "rank 0 posted weft_redop_create_user (",
                                   "rank 1 posted weft_mem_create (");
}

static int mem_or_nothing(weft_comm *comm, void *context)
{
    (void)context;
    weft_mem *mem;
    weft_comm *part;
    int failures = weft_comm_split(comm, 0, 0, NULL, &part) != WEFT_OK;
    weft_comm_destroy(part);
    weft_fault fault = {.size_bytes = sizeof(fault)};
    if (weft_comm_get_rank(comm) == 0) {
        failures += weft_mem_create(comm, 64, &mem) != WEFT_ERR_TIMEOUT;
    }
    while (fault.status == WEFT_OK) {
        failures += weft_comm_get_fault(comm, &fault) != WEFT_OK;
    }
    return failures + expect_fault(comm, WEFT_ERR_TIMEOUT, "weft_mem_create #",
                                   " weft_comm_split, ");
}

static void test_purpose_other_call_both_named(void **state)
{
    static const struct {
        world_rank_call call;
        int64_t timeout_ms;
    } scenes[] = {{split_or_gather, 20000},
                  {split_or_mem, 20000},
                  {redop_or_mem, 20000},
                  {mem_or_nothing, 300}};
    (void)state;
    for (size_t i = 0; i < WEFTI_COUNT_OF(scenes); i++) {
        struct world world = {.nranks = 2,
                              .config = {.timeout_ms = scenes[i].timeout_ms},
                              .call = scenes[i].call};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

static int read_reports(weft_comm *comm, void *context)
{
    static const weft_comm_format formats[] = {WEFT_COMM_TEXT, WEFT_COMM_JSON};
    (void)context;
    char *text = malloc(ROOM);
    weft_mem *mem;
    weft_comm *part;
    int failures = weft_comm_dump(comm, text, ROOM) != WEFT_OK;
    failures +=
        expect_text(text, "did #1 weft_comm_create (all_gatherv of u64)");
    failures += weft_comm_split(comm, 0, 0, NULL, &part) != WEFT_OK;
    for (size_t i = 0; i < WEFTI_COUNT_OF(formats); i++) {
        failures +=
            weft_comm_get_health(comm, formats[i], text, ROOM) != WEFT_OK;
        failures += expect_text(text, "weft_comm_split");
    }
    weft_comm_destroy(part);
    failures += weft_mem_create(comm, 64, &mem) != WEFT_OK;
    failures += weft_comm_dump(comm, text, ROOM) != WEFT_OK;
    failures += expect_text(text, " weft_mem_create (all_gather of 128 u8)");
    weft_mem_destroy(mem);
    free(text);
    return failures;
}

static void test_purpose_reports_name_the_call(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = read_reports};
    assert_int_equal(world_run_threads(&world), 0);
}

/* Rank 1 has other algorithms, or another count. */
static int choose(weft_comm *comm, void *context)
{
    static float data[2][1 << 16];
    const wefti_tuning *other = context;
    int rank = weft_comm_get_rank(comm);
    size_t count = 1 << 16;
    if (rank == 1 && other) {
        comm->tuning = *other;
    } else if (rank == 1) {
        count = 4;
    }
    weft_status status =
        weft_allreduce(data[rank], data[rank], count, WEFT_DTYPE_F32,
                       WEFT_REDOP_SUM, comm, NULL);
    int failures = status != WEFT_ERR_MISMATCH;
    failures += strstr(weft_error_text(), "choice") != NULL;
    failures += expect_text(weft_error_text(),
                            other ? "posted all_reduce of 65536 f32, sum, by "
                                  : "posted all_reduce of 65536 f32, sum");
    if (other) {
        failures += expect_text(weft_error_text(), "by tree");
        failures += expect_text(weft_error_text(), "by direct");
    } else {
        failures += strstr(weft_error_text(), ", by ") != NULL;
    }
    return failures;
}

static void test_purpose_algorithms_named_only_where_they_differ(void **state)
{
    (void)state;
    wefti_tuning other;
    struct world world = {.nranks = 2, .call = choose};
    assert_int_equal(world_run_threads(&world), 0);
    setenv("WEFT_ALGO", "all_reduce:tree", 1);
    assert_int_equal(wefti_tuning_read(&other), WEFT_OK);
    setenv("WEFT_ALGO", "all_reduce:direct", 1);
    world.context = &other;
    assert_int_equal(world_run_threads(&world), 0);
    unsetenv("WEFT_ALGO");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_purpose_other_call_both_named),
        cmocka_unit_test(test_purpose_reports_name_the_call),
        cmocka_unit_test(test_purpose_algorithms_named_only_where_they_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
