/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     ranks that talk most come to sit on one host, whatever the launcher
 *          did; where nothing can be won, and on one host, nothing changes.
 * Method   ranks as threads that WEFT_DOMAIN parts into hosts; the new order is
 *          collected by an all-gather; the printed text is read.
 */
#include "tests/comm/world.h"
#include "trainer/seats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 4, TEXT_BYTES = 4096 };

/* What to do, and what came of it on rank 0. */
typedef struct trial {
    wefti_place_job job;
    bool moved;
    int32_t order[RANKS]; /* old ranks in their new order */
    char text[TEXT_BYTES];
} trial;

static int take(weft_comm *comm, void *context)
{
    trial *t = context;
    int rank = weft_comm_get_rank(comm);
    int32_t self = rank, order[RANKS];
    weft_comm *seated = NULL;
    FILE *out = rank == 0 ? fmemopen(t->text, TEXT_BYTES, "w") : NULL;
    weft_status status = wefti_seats_take(comm, &t->job, out, &seated);
    if (out) {
        (void)fclose(out);
    }
    memset(order, 0xff, sizeof(order));
    if (status == WEFT_OK) {
        status = weft_allgather(&self, order, 1, WEFT_DTYPE_I32,
                                seated ? seated : comm, NULL);
    }
    if (rank == 0) {
        t->moved = seated != NULL;
        memcpy(t->order, order, sizeof(order));
    }
    weft_comm_destroy(seated);
    return status != WEFT_OK;
}

static trial try_seats(const char *domains, const char *sizes)
{
    trial t = {.moved = true};
    const struct world world = {.nranks = RANKS, .call = take, .context = &t};
    assert_int_equal(wefti_place_job_read(sizes, &t.job), WEFT_OK);
    assert_int_equal(domains ? setenv("WEFT_DOMAIN", domains, 1)
                             : unsetenv("WEFT_DOMAIN"),
                     0);
    assert_int_equal(world_run_threads(&world), 0);
    return t;
}

static void test_seats_groups_come_together(void **state)
{
    (void)state;
    static const int32_t wanted[RANKS] = {0, 2, 1, 3};
    trial t = try_seats("a,b,a,b", "tp=2,dp=2");
    assert_true(t.moved);
    assert_memory_equal(t.order, wanted, sizeof(wanted));
    assert_non_null(strstr(t.text, "4 ranks on 2 hosts"));
    assert_non_null(strstr(t.text, "network"));
    assert_non_null(strstr(t.text, "0>0 1>2 2>1 3>3"));
}

static void test_seats_uneven_hosts_are_taken_as_they_are(void **state)
{
    (void)state;
    trial t = try_seats("a,b,b,b", "tp=2,dp=2");
    int seen = 0;
    for (int i = 0; i < RANKS; i++) {
        seen |= 1 << t.order[i];
    }
    assert_int_equal(seen, 15);
    /* Rank 0 is alone: one pair must cross, the other need not. */
    assert_non_null(strstr(t.text, "4 ranks on 2 hosts"));
}

static void test_seats_stay_where_nothing_is_won(void **state)
{
    (void)state;
    static const int32_t wanted[RANKS] = {0, 1, 2, 3};
    trial t = try_seats("a,b,a,b", "dp=4"); /* a ring takes any order */
    assert_false(t.moved);
    assert_memory_equal(t.order, wanted, sizeof(wanted));
    assert_non_null(strstr(t.text, "stay as they were launched"));
    t = try_seats("a,a,b,b", "tp=2,dp=2");
    assert_false(t.moved);
}

static void test_seats_of_one_host_read_nothing(void **state)
{
    (void)state;
    trial t = try_seats(NULL, "tp=2,dp=2");
    assert_false(t.moved);
    assert_string_equal(t.text, "");
}

static void test_seats_job_counts_what_a_step_sends(void **state)
{
    (void)state;
    wefti_config config;
    wefti_place_job job;
    static const char text[] = "model: {layers: 4, hidden_size: 256, heads: 8, "
                               "kv_heads: 4, seq_length: 512}\n"
                               "train: {global_batch_size: 32}\n"
                               "data: {paths: [x]}\n";
    assert_int_equal(wefti_config_init_text(&config, "a.yaml", text,
                                            sizeof(text) - 1, NULL, 0),
                     WEFT_OK);
    wefti_seats_job(&config, 1000, 4, &job);
    assert_int_equal(job.sizes[WEFTI_AXIS_DP], 4);
    assert_true(job.bytes[WEFTI_AXIS_DP] == 2 * 3 / 4.0 * 1000 * 4);
    assert_true(job.bytes[WEFTI_AXIS_TP] == 0 &&
                job.bytes[WEFTI_AXIS_CP] == 0 &&
                job.bytes[WEFTI_AXIS_EP] == 0 && job.bytes[WEFTI_AXIS_PP] == 0);
    config.parallel.tensor_model_parallel_size = 2;
    config.parallel.context_parallel_size = 2;
    config.parallel.pipeline_model_parallel_size = 2;
    wefti_seats_job(&config, 1000, 16, &job);
    assert_int_equal(job.sizes[WEFTI_AXIS_DP], 2);
    /* 16 sequences of 256 tokens here, 256 wide: 4 MiB; 2 layers. */
    assert_true(job.bytes[WEFTI_AXIS_TP] == 4 * 2 * 1.0 * (4 << 20));
    assert_true(job.bytes[WEFTI_AXIS_PP] == 2.0 * (4 << 20));
    assert_true(job.bytes[WEFTI_AXIS_CP] == 3 * 2 * 1.0 * 4096 * 128 * 4);
    assert_true(job.bytes[WEFTI_AXIS_DP] == 1.0 * 1000 / 4 * 4);
    wefti_config_fini(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seats_groups_come_together),
        cmocka_unit_test(test_seats_uneven_hosts_are_taken_as_they_are),
        cmocka_unit_test(test_seats_stay_where_nothing_is_won),
        cmocka_unit_test(test_seats_of_one_host_read_nothing),
        cmocka_unit_test(test_seats_job_counts_what_a_step_sends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
