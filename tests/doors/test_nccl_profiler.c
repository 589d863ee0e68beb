/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: each version of NCCL's profiler interface feeds the report: operations,
 * bytes, time in calls and on the GPU, for each communicator, whatever NCCL
 * leaves out, adds, or does too late.
 *
 * Method: the library is opened as NCCL opens it, and driven through its tables
 * (profiler_driver.h); what it logs, and writes, is read.
 */
#include "base/clock.h"
#include "tests/doors/profiler_driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
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

/* How long the one call took, seen from here. */
static double api_ms;

static void drive_api(int version)
{
    const char *name = "AllReduce";
    profiler_driver it = driver_open(library, version, "mine", 4, 3);
    unsigned char *event = driver_event(&it, 32, COLL_API, NULL);
    memcpy(event + 24, &name, sizeof(name));
    const int64_t begun_ns = wefti_clock_ns();
    void *api = driver_start(&it, event);
    assert_non_null(api);
    usleep(20000);
    driver_stop(&it, api);
    api_ms = (double)(wefti_clock_ns() - begun_ns) / 1e6;
    usleep(20000);
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
    const double ms = figure_before(text, " ms in calls\n");
    assert_true(ms >= 20 && ms <= api_ms + 0.001);
    assert_says(text, "all_gather: 1 calls, 4 bytes, 0.000 ms in calls");
    free(text);
}

/* Handles that are old, foreign or none, and kinds that nobody asked for. */
static void drive_late(int version)
{
    int local = 0;
    profiler_driver it = driver_open(library, version, "mine", 4, 3);
    void *coll = driver_coll(&it, 4, "AllReduce", 100);
    assert_non_null(coll);
    driver_stop(&it, coll);
    driver_stop(&it, coll);
    driver_stop(&it, NULL);
    driver_stop(&it, &local);
    assert_null(driver_start(&it, driver_event(&it, 20, PROXY_OP, coll)));
    assert_null(driver_start(&it, driver_event(&it, 20, 128, coll)));
    assert_null(driver_start(&it, driver_event(&it, 20, 0, coll)));
    assert_null(driver_start(&it, driver_event(&it, 20, 0xff, coll)));
    assert_null(driver_channel(&it, &local, 7));
    assert_null(driver_channel(&it, NULL, 7));
    void *open_coll = driver_coll(&it, 4, "AllReduce", 100);
    void *channel =
        version >= 3 ? driver_channel(&it, open_coll, 7) : open_coll;
    driver_finalize(&it);
    driver_finalize(&it);
    driver_stop(&it, channel);
    driver_stop(&it, open_coll);
    it.any->record(channel, KERNEL_CHANNEL_STOP, NULL);
    it.any->record(NULL, 0, NULL);
    assert_null(driver_coll(&it, 4, "AllReduce", 100));
    assert_null(driver_channel(&it, open_coll, 9));
    /* The next one takes the place, and nothing of the last. */
    profiler_driver next = driver_open(library, version, "next", 4, 3);
    assert_true(next.context != it.context);
    assert_null(driver_coll(&it, 4, "AllReduce", 100));
    driver_stop(&next, driver_coll(&next, 0, "Broadcast", 1));
    driver_finalize(&next);
}

static void test_what_comes_too_late_counts_nothing(void **state)
{
    (void)state;
    for (int version = 1; version <= PROFILER_VERSIONS; version++) {
        char *text = driver_logged(drive_late, version);
        assert_says(text, "all_reduce: 2 calls, 800 bytes");
        assert_says(text, "broadcast: 1 calls, 4 bytes");
        assert_null(strstr(strstr(text, "all_reduce") + 1, "all_reduce"));
        free(text);
    }
}

static void drive_many(int version)
{
    profiler_driver it = driver_open(library, version, "mine", 4, 3);
    void *oldest = driver_coll(&it, 4, "AllReduce", 1);
    for (int i = 1; i < 20000; i++) {
        void *coll = driver_coll(&it, 4, "AllReduce", 1);
        if (i % 3) {
            driver_stop(&it, coll);
        }
    }
    assert_null(driver_channel(&it, oldest, 7));
    driver_stop(&it, oldest);
    driver_finalize(&it);
}

static void test_more_than_are_remembered_all_count(void **state)
{
    char *text = driver_logged(drive_many, 4);
    (void)state;
    assert_says(text, "all_reduce: 20000 calls, 80000 bytes");
    free(text);
}

/* Threads: each its own communicator, and one of all. */
enum { THREADS = 4, ROUNDS = 200 };

typedef struct worker {
    profiler_driver own;
    const profiler_driver *common;
} worker;

static void *work(void *argument)
{
    const worker *me = argument;
    for (int i = 0; i < ROUNDS; i++) {
        void *mine = driver_coll(&me->own, 4, "AllReduce", 1);
        void *ours = driver_coll(me->common, 0, "Broadcast", 1);
        void *channel = driver_channel(&me->own, mine, 1000);
        driver_stop(&me->own, mine);
        driver_channel_end(&me->own, channel, 2001000);
        driver_stop(me->common, ours);
    }
    driver_finalize(&me->own);
    return NULL;
}

static void drive_threads(int version)
{
    profiler_driver common = driver_open(library, version, "common", 4, 3);
    worker workers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] =
            (worker){driver_open(library, version, "own", 4, i), &common};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]),
                         0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    driver_finalize(&common);
}

static void test_threads_and_communicators_are_kept_apart(void **state)
{
    char *text = driver_logged(drive_threads, 5);
    (void)state;
    const char *at = text;
    for (int i = 0; i < THREADS; i++) {
        assert_says(at, "\"own\" of 4 ranks: all_reduce: 200 calls, 800 bytes");
        at = strstr(at, "all_reduce: 200") + 1;
        assert_says(at, "400.000 ms on the GPU");
    }
    assert_says(text, "\"common\" of 4 ranks: broadcast: 800 calls, 3200 ");
    free(text);
}

static void test_a_file_gets_a_line_for_each_communicator(void **state)
{
    char path[] = "/tmp/weft_profiler_XXXXXX", line[4096];
    const int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    setenv("WEFT_NCCL_REPORT", path, 1);
    free(driver_logged(drive, 5));
    free(driver_logged(drive_channels, 4));
    unsetenv("WEFT_NCCL_REPORT");
    FILE *file = fdopen(fd, "r");
    assert_non_null(fgets(line, sizeof(line), file));
    assert_says(line, "\"communicator\": \"mine\"");
    assert_says(line, "\"hash\": \"0000000000abcdef\", \"carrier\": \"nccl\"");
    assert_says(line, "\"rank\": 3, \"nranks\": 4");
    assert_says(line, "{\"op\": \"all_reduce\", \"calls\": 2, \"bytes\": 800,");
    assert_null(strstr(line, "gpu_ms"));
    assert_non_null(fgets(line, sizeof(line), file));
    assert_says(line, "\"on_gpu\": 2,");
    assert_says(line, "\"gpu_ms\": 5}");
    assert_null(fgets(line, sizeof(line), file));
    fclose(file);
    unlink(path);
}

/* A communicator of two, the second of which has twice the operations. */
static void drive_two(int version)
{
    for (int rank = 0; rank < 2; rank++) {
        profiler_driver it = driver_open(library, version, "two", 2, rank);
        for (int i = 0; i <= rank; i++) {
            driver_stop(&it, driver_coll(&it, 4, "AllReduce", 1));
        }
        driver_finalize(&it);
    }
}

/* What a report that goes to fd writes there, of what fits into a pipe. */
static void report_to(int fd, int read_fd, char *text_out, size_t text_bytes)
{
    char path[40];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    setenv("WEFT_NCCL_REPORT", path, 1);
    free(driver_logged(drive_two, 5));
    unsetenv("WEFT_NCCL_REPORT");
    const ssize_t bytes = read(read_fd, text_out, text_bytes - 1);
    assert_true(bytes > 0);
    text_out[bytes] = '\0';
}

static void test_a_table_has_the_mean_of_the_ranks(void **state)
{
    char text[4096];
    FILE *file = tmpfile();
    (void)state;
    assert_non_null(file);
    report_to(fileno(file), fileno(file), text, sizeof(text));
    assert_says(text, "\"table\": [{\"op\": \"all_reduce\", \"calls\": 1.5, "
                      "\"bytes\": 6,");
    assert_says(text, "\"left\": 1.5}");
    fclose(file);
}

static void test_a_pipe_gets_the_lines_alone(void **state)
{
    char text[4096];
    int ends[2];
    (void)state;
    assert_int_equal(pipe(ends), 0);
    report_to(ends[1], ends[0], text, sizeof(text));
    assert_says(text, "\"rank\": 0, \"nranks\": 2");
    assert_says(text, "\"rank\": 1, \"nranks\": 2");
    assert_null(strstr(text, "\"table\""));
    close(ends[0]);
    close(ends[1]);
}

static void test_a_file_that_stays_locked_gets_the_lines_alone(void **state)
{
    char text[4096], path[] = "/tmp/weft_profiler_XXXXXX";
    const int fd = mkstemp(path), other = open(path, O_RDONLY | O_CLOEXEC);
    (void)state;
    assert_true(fd >= 0 && other >= 0);
    assert_int_equal(flock(other, LOCK_EX), 0);
    report_to(fd, fd, text, sizeof(text));
    assert_says(text, "\"rank\": 1, \"nranks\": 2");
    assert_null(strstr(text, "\"table\""));
    close(other);
    close(fd);
    unlink(path);
}

static void open_and_finalize(int version)
{
    profiler_driver it = driver_open(library, version, "mine", 4, 3);
    assert_null(it.context);
    assert_int_equal(it.mask, 0);
    assert_null(driver_coll(&it, 4, "AllReduce", 100));
    driver_finalize(&it);
}

static void test_nothing_is_asked_for_where_no_report_is_wanted(void **state)
{
    (void)state;
    setenv("WEFT_NCCL_REPORT", "0", 1);
    for (int version = 1; version <= PROFILER_VERSIONS; version++) {
        char *text = driver_logged(open_and_finalize, version);
        assert_string_equal(text, "");
        free(text);
    }
    unsetenv("WEFT_NCCL_REPORT");
}

static void write_nowhere(int version)
{
    setenv("WEFT_NCCL_REPORT", "/nowhere/report", 1);
    drive(version);
    unsetenv("WEFT_NCCL_REPORT");
}

static void test_a_file_that_cannot_be_written_is_named(void **state)
{
    char *text = driver_logged(write_nowhere, 5);
    (void)state;
    assert_says(text, "all_reduce: 2 calls");
    assert_says(text, "WEFT_NCCL_REPORT /nowhere/report: cannot be written");
    free(text);
}

#define TEST(name) cmocka_unit_test_teardown(name, driver_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_every_version_counts_operations),
        TEST(test_channels_give_time_on_the_gpu),
        TEST(test_channels_without_a_clock_are_timed_here),
        TEST(test_version_5_times_the_calls_alone),
        TEST(test_what_comes_too_late_counts_nothing),
        TEST(test_more_than_are_remembered_all_count),
        TEST(test_threads_and_communicators_are_kept_apart),
        TEST(test_a_file_gets_a_line_for_each_communicator),
        TEST(test_a_table_has_the_mean_of_the_ranks),
        TEST(test_a_pipe_gets_the_lines_alone),
        TEST(test_a_file_that_stays_locked_gets_the_lines_alone),
        TEST(test_nothing_is_asked_for_where_no_report_is_wanted),
        TEST(test_a_file_that_cannot_be_written_is_named)};
    unsetenv("WEFT_NCCL_REPORT");
    library = dlopen(PROFILER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        print_error("%s\n", dlerror());
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
