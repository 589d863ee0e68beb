/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: each version of NCCL's profiler interface feeds the report: operations,
 * bytes, time in calls and on the GPU, for each communicator, whatever NCCL
 * leaves out.
 *
 * Method: the library is opened as NCCL opens it, and driven through its tables
 * (profiler_driver.h); what it logs, and writes, is read.
 */
#include "tests/doors/profiler_driver.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void *library;

static void assert_says(const char *text, const char *what)
{
    if (!strstr(text, what)) {
        print_error("\"%s\" is not in:\n%s\n", what, text);
    }
    assert_non_null(strstr(text, what));
}

static void drive(int version)
{
    profiler_driver it = driver_open(library, version, "mine", 4, 3);
    assert_true((it.mask & (COLL | P2P)) == (COLL | P2P));
    assert_true(((it.mask & KERNEL_CHANNEL) != 0) == (version >= 3));
    assert_true(((it.mask & COLL_API) != 0) == (version >= 5));
    driver_stop(&it, driver_start(&it, driver_event(&it, 20, GROUP, NULL)));
    for (int i = 0; i < 2; i++) {
        driver_stop(&it, driver_coll(&it, 4, "AllReduce", 100));
    }
    driver_stop(&it, driver_coll(&it, 2, "AllGather", 25));
    driver_stop(&it, driver_coll(&it, 99, "Reticulate", 5));
    void *send = driver_p2p(&it, 6, "Send", 10);
    void *recv = driver_p2p(&it, 7, "Recv", 11);
    driver_stop(&it, recv);
    driver_stop(&it, send);
    driver_finalize(&it);
}

static void test_every_version_counts_operations(void **state)
{
    (void)state;
    for (int version = 1; version <= PROFILER_VERSIONS; version++) {
        char *text = driver_logged(drive, version);
        assert_says(text, version >= 4 ? "\"mine\" of 4 ranks: all_reduce: "
                                       : "\"mine\": all_reduce: ");
        assert_says(text, "weft: rank 3: nccl report: ");
        assert_says(text, "all_reduce: 2 calls, 800 bytes, ");
        assert_says(text, "all_gather: 1 calls, 100 bytes, ");
        assert_says(text, "other: 1 calls, 20 bytes, ");
        assert_says(text, "send: 1 calls, 20 bytes, ");
        assert_says(text, "recv: 1 calls, 22 bytes, ");
        assert_null(strstr(text, "on the GPU"));
        free(text);
    }
}

/* Two operations: one whose channels overlap, one that is not seen to end. */
static void drive_channels(int version)
{
    profiler_driver it = driver_open(library, version, NULL, 2, 0);
    void *first = driver_coll(&it, 4, "AllReduce", 1);
    driver_stop(&it, first);
    void *early = driver_channel(&it, first, 1000);
    void *late = driver_channel(&it, first, 3000000);
    driver_channel_end(&it, early, 2001000);
    driver_channel_end(&it, late, 5001000);
    /* Its clock is another: it is left out. */
    driver_stop(&it, driver_channel(&it, first, 0));
    void *second = driver_coll(&it, 4, "AllReduce", 1);
    driver_stop(&it, second);
    driver_channel(&it, second, 9000000);
    driver_finalize(&it);
}

static void test_channels_give_time_on_the_gpu(void **state)
{
    (void)state;
    for (int version = 4; version <= PROFILER_VERSIONS; version++) {
        char *text = driver_logged(drive_channels, version);
        assert_says(text, "\"world\" of 2 ranks: all_reduce: 2 calls");
        assert_says(text, "ms queued, 5.000 ms on the GPU\n");
        free(text);
    }
}

static void drive_slow_channel(int version)
{
    profiler_driver it = driver_open(library, version, "mine", 4, 3);
    void *coll = driver_coll(&it, 4, "AllReduce", 1);
    void *channel = driver_channel(&it, coll, 0);
    usleep(20000);
    driver_stop(&it, channel);
    driver_stop(&it, coll);
    driver_finalize(&it);
}

static double figure_before(const char *text, const char *words)
{
    const char *at = strstr(text, words);
    assert_non_null(at);
    while (at > text && at[-1] != ' ') {
        at--;
    }
    return strtod(at, NULL);
}

static void test_channels_without_a_clock_are_timed_here(void **state)
{
    char *text = driver_logged(drive_slow_channel, 3);
    (void)state;
    assert_true(figure_before(text, " ms on the GPU") >= 20);
    assert_true(figure_before(text, " ms in calls") >= 20);
    free(text);
}

static void drive_api(int version)
{
    const char *name = "AllReduce";
    profiler_driver it = driver_open(library, version, "mine", 4, 3);
    unsigned char *event = driver_event(&it, 32, COLL_API, NULL);
    memcpy(event + 24, &name, sizeof(name));
    void *api = driver_start(&it, event);
    assert_non_null(api);
    usleep(20000);
    driver_stop(&it, api);
    driver_stop(&it, api); /* NCCL may: it counts once */
    void *coll = driver_coll(&it, 4, "AllReduce", 1);
    usleep(20000);
    driver_stop(&it, coll);
    void *gather = driver_coll(&it, 2, "AllGather", 1);
    usleep(20000);
    driver_stop(&it, gather);
    driver_finalize(&it);
}

static void test_version_5_times_the_calls_alone(void **state)
{
    char *text = driver_logged(drive_api, 5);
    (void)state;
    assert_true(figure_before(text, " ms in calls\n") >= 20);
    assert_says(text, "all_gather: 1 calls, 4 bytes, 0.000 ms in calls");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_version_counts_operations),
        cmocka_unit_test(test_channels_give_time_on_the_gpu),
        cmocka_unit_test(test_channels_without_a_clock_are_timed_here),
        cmocka_unit_test(test_version_5_times_the_calls_alone)};
    unsetenv("WEFT_NCCL_REPORT");
    library = dlopen(PROFILER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        print_error("%s\n", dlerror());
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
