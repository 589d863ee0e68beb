/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the emulated machine runs right kernels to the right result in every
 * order, and finds each mistake it promises to find, with its place.
 *
 * Method: kernels of simt_sample.cu. A fault must name the kernel and a line of
 * that file. What a sanitizer finds ends the program, so those kernels run in
 * a child, whose report must name the file: accesses out of bounds where the
 * address sanitizer is, races where the thread sanitizer is; without one, the
 * wrong result in one of three orders shows the missing barrier.
 */
#include "tests/simt/simt_launch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { BLOCK = 128, BLOCKS = 3, COUNT = BLOCK * BLOCKS };

static simt_config config_of(unsigned blocks, unsigned threads, int order)
{
    return (simt_config){.grid = {blocks, 1, 1},
                         .block = {threads, 1, 1},
                         .shared_bytes = threads * sizeof(unsigned),
                         .order = (simt_order)order,
                         .seed = 1234 + (uint64_t)order};
}

static void fill(unsigned *in)
{
    for (unsigned i = 0; i < COUNT; i++) {
        in[i] = i * 2654435761U;
    }
}

static int turned(const char *kernel, int order)
{
    unsigned in[COUNT], out[COUNT] = {0};
    const unsigned *from = in;
    unsigned *to = out;
    simt_config config = config_of(BLOCKS, BLOCK, order);
    fill(in);
    assert_int_equal(
        simt_launch(kernel, &config, (void *[]){(void *)&from, (void *)&to}),
        0);
    for (unsigned i = 0; i < COUNT; i++) {
        if (out[i] != in[i / BLOCK * BLOCK + BLOCK - 1 - i % BLOCK]) {
            return 0;
        }
    }
    return 1;
}

static void test_shared_memory_and_barrier_in_every_order(void **state)
{
    (void)state;
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        assert_true(turned("sample_turn", order));
    }
}

static void test_dynamic_shared_sum_in_every_order(void **state)
{
    (void)state;
    unsigned in[COUNT], out[BLOCKS];
    const unsigned *from = in;
    unsigned *to = out;
    fill(in);
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        simt_config config = config_of(BLOCKS, BLOCK, order);
        memset(out, 0xa5, sizeof(out));
        assert_int_equal(simt_launch("sample_sum", &config,
                                     (void *[]){(void *)&from, (void *)&to}),
                         0);
        for (unsigned b = 0; b < BLOCKS; b++) {
            unsigned sum = 0;
            for (unsigned i = 0; i < BLOCK; i++) {
                sum += in[b * BLOCK + i];
            }
            assert_int_equal(out[b], sum);
        }
    }
}

static void test_shuffles_votes_and_atomics_in_every_order(void **state)
{
    (void)state;
    unsigned in[COUNT];
    const unsigned *from = in;
    fill(in);
    unsigned all = 0, most = 0;
    for (unsigned warp = 0; warp < COUNT / 32; warp++) {
        unsigned sum = 0;
        for (unsigned i = 0; i < 32; i++) {
            sum += in[warp * 32 + i];
        }
        all += sum;
        most = sum > most ? sum : most;
    }
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        unsigned out[5] = {0}, *to = out;
        simt_config config = config_of(BLOCKS, BLOCK, order);
        assert_int_equal(simt_launch("sample_warp", &config,
                                     (void *[]){(void *)&from, (void *)&to}),
                         0);
        assert_int_equal(out[0], all);
        assert_int_equal(out[1], most);
        assert_int_equal(out[2], COUNT / 32);
        assert_int_equal(out[3], COUNT);
        assert_int_equal(out[4], COUNT);
    }
}

static void test_each_thread_of_three_dimensions_runs_once(void **state)
{
    (void)state;
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        unsigned out[2 * 3 * 2 * 105] = {0}, *to = out;
        simt_config config = {.grid = {2, 3, 2},
                              .block = {5, 7, 3},
                              .order = (simt_order)order,
                              .seed = 9};
        assert_int_equal(
            simt_launch("sample_where", &config, (void *[]){(void *)&to}), 0);
        for (unsigned i = 0; i < 2 * 3 * 2 * 105; i++) {
            assert_int_equal(out[i], 1 + i / 105);
        }
    }
}

static void assert_fault(const char *kernel, const char *rule)
{
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        unsigned out[BLOCK] = {0}, *to = out;
        simt_config config = config_of(1, BLOCK, order);
        assert_int_equal(simt_launch(kernel, &config, (void *[]){(void *)&to}),
                         -1);
        const char *said = simt_fault();
        if (strncmp(said, kernel, strlen(kernel)) != 0 ||
            !strstr(said, "simt_sample.cu:") || !strstr(said, rule)) {
            fail_msg("%s: wanted \"%s\", got \"%s\"", kernel, rule, said);
        }
    }
}

static void test_broken_rules_are_named_with_their_line(void **state)
{
    (void)state;
    assert_fault("wrong_ended_lane", "lane 31");
    assert_fault("wrong_absent_lanes", "waits for ever");
    assert_fault("wrong_mask", "mask 0xffffffff");
    assert_fault("wrong_masks", "meets lane");
    assert_fault("wrong_meeting", "meets lane");
    assert_fault("wrong_own_lane", "does not name its own lane");
    assert_fault("wrong_two_barriers", "is at another barrier");
    assert_true(turned("sample_turn", 0)); /* the machine goes on */
}

static void test_bad_launches_are_refused(void **state)
{
    (void)state;
    simt_config config = config_of(1, 1025, 0);
    assert_int_equal(simt_launch("sample_where", &config, NULL), -1);
    assert_non_null(strstr(simt_fault(), "1 to 1024 threads"));
    config = config_of(0, 32, 0);
    assert_int_equal(simt_launch("sample_where", &config, NULL), -1);
    config = config_of(1, 32, 0);
    assert_int_equal(simt_launch("absent", &config, NULL), -1);
    assert_string_equal(simt_fault(), "absent: no such kernel");
}

static void test_unwritten_shared_memory_reads_as_ones(void **state)
{
    (void)state;
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        unsigned out[BLOCK] = {0}, *to = out;
        simt_config config = config_of(2, BLOCK, order);
        assert_int_equal(
            simt_launch("wrong_unwritten", &config, (void *[]){(void *)&to}),
            0);
        for (unsigned i = 0; i < BLOCK; i++) {
            assert_int_equal(out[i], UINT32_MAX);
        }
    }
}

#ifndef __SANITIZE_THREAD__
static void test_missing_barrier_shows_in_some_order(void **state)
{
    (void)state;
    int wrong = 0;
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        wrong += !turned("wrong_turn_without_barrier", order);
    }
    assert_true(wrong > 0);
}

static void test_lost_update_shows(void **state)
{
    (void)state;
    unsigned out = 0, *to = &out;
    simt_config config = config_of(1, 32, SIMT_FORWARD);
    assert_int_equal(
        simt_launch("wrong_plain_add", &config, (void *[]){(void *)&to}), 0);
    assert_int_not_equal(out, 32);
}
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* The kernel runs in a child, which a sanitizer ends with this in its report.
 */
static void assert_report(void (*run)(int), int arg, const char *what,
                          const char *other)
{
    int ends[2];
    char said[65536];
    size_t used = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        run(arg);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t now = 1; now > 0 && used < sizeof(said) - 1;) {
        now = read(ends[0], said + used, sizeof(said) - 1 - used);
        used += now > 0 ? (size_t)now : 0;
    }
    said[used] = '\0';
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!strstr(said, "simt_sample.cu:") ||
        (!strstr(said, what) && !strstr(said, other))) {
        fail_msg("%d: wanted \"%s\" and the file, got \"%s\"", arg, what, said);
    }
}
#endif

#ifdef __SANITIZE_ADDRESS__
static void run_bounds(int where)
{
    unsigned *out = malloc(BLOCK * sizeof(*out));
    simt_config config = config_of(1, BLOCK, SIMT_FORWARD);
    simt_launch("wrong_bounds", &config,
                (void *[]){(void *)&out, (void *)&where});
    free(out);
}

static void test_accesses_out_of_bounds_are_reported(void **state)
{
    (void)state;
    run_bounds(0);
    assert_report(run_bounds, 1, "AddressSanitizer", "runtime error");
    assert_report(run_bounds, 2, "AddressSanitizer", "runtime error");
    assert_report(run_bounds, 3, "AddressSanitizer", "runtime error");
}
#endif

#ifdef __SANITIZE_THREAD__
static void run_wrong_turn(int order)
{
    (void)turned("wrong_turn_without_barrier", order);
}

static void run_plain_add(int order)
{
    unsigned out = 0, *to = &out;
    simt_config config = config_of(1, 32, order);
    simt_launch("wrong_plain_add", &config, (void *[]){(void *)&to});
}

static void test_races_are_reported(void **state)
{
    (void)state;
    assert_report(run_wrong_turn, SIMT_FORWARD, "data race", "data race");
    assert_report(run_plain_add, SIMT_RANDOM, "data race", "data race");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_memory_and_barrier_in_every_order),
        cmocka_unit_test(test_dynamic_shared_sum_in_every_order),
        cmocka_unit_test(test_shuffles_votes_and_atomics_in_every_order),
        cmocka_unit_test(test_each_thread_of_three_dimensions_runs_once),
        cmocka_unit_test(test_broken_rules_are_named_with_their_line),
        cmocka_unit_test(test_bad_launches_are_refused),
        cmocka_unit_test(test_unwritten_shared_memory_reads_as_ones),
#ifdef __SANITIZE_ADDRESS__
        cmocka_unit_test(test_accesses_out_of_bounds_are_reported),
#endif
#ifdef __SANITIZE_THREAD__
        cmocka_unit_test(test_races_are_reported),
#else
        cmocka_unit_test(test_missing_barrier_shows_in_some_order),
        cmocka_unit_test(test_lost_update_shows),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
