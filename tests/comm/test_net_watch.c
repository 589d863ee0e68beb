/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    a rank has one thread that watches the network and one for control
 *         channels, however often it has created a communicator; each port's
 *         news come once for each time that they are asked for, none holds up
 *         another's, and after its stop none come.
 * Method  watches of descriptors that the test makes readable, in an order that
 *         is drawn from a seed; and processes between which there is a network,
 *         which make 1, 2 and 5 jobs and count their threads of these names in
 *         /proc/self/task, and all.
 */
#include "base/clock.h"
#include "comm/net/net_watch.h"
#include "tests/comm/threads.h"
#include "tests/comm/world.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

enum { PORTS = 5, ROUNDS = 400, JOBS_MOST = 5 };

#define LIMIT_NS INT64_C(30000000000)

/* A thread that has been joined may be listed for a moment. */
static void await_threads(const char *wanted, int count)
{
    const int64_t until_ns = wefti_clock_ns() + LIMIT_NS;
    while (count_threads(wanted) != count) {
        assert_true(wefti_clock_ns() < until_ns);
        sched_yield();
    }
}

/* ---- watches ---------------------------------------------------------------
 */

/* until: news want to be called again until that many of another have come. */
typedef struct port {
    int fd;
    wefti_net_watch *watch;
    _Atomic int news;
    const _Atomic int *until;
    _Atomic int inside;
} port;

static bool count_news(void *context)
{
    port *at = context;
    atomic_store(&at->inside, 1);
    for (int i = 0; i < 100; i++) {
        sched_yield();
    }
    atomic_fetch_add(&at->news, 1);
    atomic_store(&at->inside, 2);
    return at->until && atomic_load(at->until) == 0;
}

static void open_port(port *at, uint64_t job)
{
    memset(at, 0, sizeof(*at));
    at->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(at->fd >= 0);
    assert_int_equal(
        wefti_net_watch_start(job, at->fd, count_news, at, &at->watch),
        WEFT_OK);
}

static void close_port(port *at)
{
    wefti_net_watch_stop(at->watch);
    close(at->fd);
}

static void make_readable(const port *at)
{
    const uint64_t one = 1;
    assert_int_equal(write(at->fd, &one, sizeof(one)), sizeof(one));
}

static void await(const _Atomic int *word, int least)
{
    const int64_t until_ns = wefti_clock_ns() + LIMIT_NS;
    while (atomic_load(word) < least) {
        assert_true(wefti_clock_ns() < until_ns);
        sched_yield();
    }
}

static void test_watches_of_several_jobs_share_a_thread(void **state)
{
    port ports[PORTS], same;
    (void)state;
    for (int i = 0; i < PORTS; i++) {
        open_port(&ports[i], (uint64_t)i);
        assert_ptr_equal(wefti_net_watch_get_work(ports[i].watch),
                         wefti_net_watch_get_work(ports[0].watch));
    }
    await_threads("weft-net\n", 1);
    open_port(&same, 0);
    assert_ptr_not_equal(wefti_net_watch_get_work(same.watch),
                         wefti_net_watch_get_work(ports[0].watch));
    await_threads("weft-net\n", 2);
    close_port(&same);
    for (int i = 0; i < PORTS; i++) {
        close_port(&ports[i]);
    }
    await_threads("weft-net\n", 0);
}

static void test_news_come_once_for_each_time_asked(void **state)
{
    uint64_t seed = 20261126;
    port ports[PORTS];
    int asked[PORTS] = {0};
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < PORTS; i++) {
        open_port(&ports[i], (uint64_t)i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
        const int i = (int)((seed >> 33) % PORTS);
        if (seed >> 32 & 1) { /* before, or after; it stays readable */
            make_readable(&ports[i]);
            wefti_net_watch_arm(ports[i].watch);
        } else {
            wefti_net_watch_arm(ports[i].watch);
            make_readable(&ports[i]);
        }
        await(&ports[i].news, ++asked[i]);
    }
    for (int i = 0; i < PORTS; i++) {
        close_port(&ports[i]);
        assert_int_equal(atomic_load(&ports[i].news), asked[i]);
    }
}

static void test_news_come_after_who_has_left(void **state)
{
    port at;
    (void)state;
    open_port(&at, 0);
    for (int times = 1; times <= 8; times++) {
        wefti_net_watch_leave(at.watch);
        await(&at.news, times);
    }
    close_port(&at);
}

/* One of them has more to do until the other has had its turn. */
static void test_news_hold_up_no_other(void **state)
{
    port busy, other;
    (void)state;
    open_port(&busy, 0);
    open_port(&other, 1);
    busy.until = &other.news;
    make_readable(&busy);
    wefti_net_watch_arm(busy.watch);
    await(&busy.news, 3);
    make_readable(&other);
    wefti_net_watch_arm(other.watch);
    await(&other.news, 1);
    close_port(&busy);
    close_port(&other);
}

static void test_stop_waits_for_news_that_is_called(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        port at, other;
        open_port(&at, 0);
        open_port(&other, 1);
        make_readable(&at);
        wefti_net_watch_arm(at.watch);
        await(&at.inside, 1);
        wefti_net_watch_stop(at.watch);
        assert_int_equal(atomic_load(&at.inside), 2);
        assert_int_equal(atomic_load(&at.news), 1);
        close(at.fd);
        make_readable(&other);
        wefti_net_watch_arm(other.watch);
        await(&other.news, 1);
        close_port(&other);
    }
}

/* ---- jobs ------------------------------------------------------------------
 */

/* All of them work, one after another. */
static int sum(weft_comm *const *comms, int count)
{
    int failures = 0;
    for (int i = 0; i < count; i++) {
        int32_t one = 1, all = 0;
        failures += weft_allreduce(&one, &all, 1, WEFT_DTYPE_I32,
                                   WEFT_REDOP_SUM, comms[i], NULL) != WEFT_OK ||
                    all != weft_comm_get_nranks(comms[i]);
    }
    return failures;
}

/* One of each kind, and no more than before in all. */
static int check_threads(int jobs, int first)
{
    const int all = count_threads(NULL);
    int failures = (count_threads("weft-net\n") != 1) +
                   (count_threads("weft-control\n") != 1);
    if (failures || all > first) {
        fprintf(stderr, "%d jobs: %d threads, %d with one\n", jobs, all, first);
        failures++;
    }
    return failures;
}

static int count_with_jobs(weft_comm *comm, void *context)
{
    weft_comm *comms[JOBS_MOST] = {comm};
    int failures = sum(comms, 1);
    const int first = count_threads(NULL);
    (void)context;
    failures += check_threads(1, first);
    for (int jobs = 2; jobs <= JOBS_MOST && !failures; jobs++) {
        comms[jobs - 1] = world_create_another(comm, "another");
        failures += comms[jobs - 1] == NULL;
        if (!failures && (jobs == 2 || jobs == JOBS_MOST)) {
            failures += sum(comms, jobs) + check_threads(jobs, first);
        }
    }
    for (int i = 1; i < JOBS_MOST; i++) { /* not in the order of creation */
        weft_comm_destroy(comms[i % 2 ? i : JOBS_MOST + 1 - i]);
    }
    return failures + sum(comms, 1) + check_threads(1, first);
}

static void test_jobs_of_a_rank_share_the_thread(void **state)
{
    const struct world world = {
        .nranks = 2,
        .config = {.size_bytes = sizeof(weft_comm_config)},
        .call = count_with_jobs};
    (void)state;
    assert_int_equal(world_run_processes(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_of_a_rank_share_the_thread),
        cmocka_unit_test(test_watches_of_several_jobs_share_a_thread),
        cmocka_unit_test(test_news_come_once_for_each_time_asked),
        cmocka_unit_test(test_news_come_after_who_has_left),
        cmocka_unit_test(test_news_hold_up_no_other),
        cmocka_unit_test(test_stop_waits_for_news_that_is_called),
    };
    (void)setenv("WEFT_TEST_DOMAINS", "apart", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
