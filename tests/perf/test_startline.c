/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: nobody passes the start line before everybody has come, and nobody
 * waits for ever for one who will not.
 * Method: threads that each reach the line by its place, count themselves
 * before it and look at the sum behind it, many rounds; a foreign token; a
 * cancelled line; a core so busy that each yield takes milliseconds.
 */
#include "perf/startline.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 3, ROUNDS = 500, BUSY = 3, YIELDS_MOST = 500 };

typedef struct runner {
    pthread_t thread;
    const wefti_startline_place *place;
    wefti_startline *line;
    _Atomic int *come;
    int early; /* rounds in which someone was missing */
    bool in_time;
} runner;

static void *run(void *arg)
{
    runner *self = arg;
    self->in_time = self->line != NULL;
    for (int round = 1; round <= ROUNDS && self->in_time; round++) {
        atomic_fetch_add(self->come, 1);
        self->in_time = wefti_startline_wait(self->line, NULL, NULL);
        int come = atomic_load(self->come);
        self->early += come < round * RANKS || come > (round + 1) * RANKS;
    }
    return NULL;
}

static void test_wait_many_rounds_nobody_is_early(void **state)
{
    (void)state;
    _Atomic int come = 0;
    wefti_startline_place place;
    runner runners[RANKS];
    for (int i = 0; i < RANKS; i++) {
        runners[i] = (runner){.place = &place, .come = &come};
        runners[i].line = i == 0 ? wefti_startline_create(RANKS, &place)
                                 : wefti_startline_open(&place);
        assert_non_null(runners[i].line);
    }
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(
            pthread_create(&runners[i].thread, NULL, run, &runners[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(pthread_join(runners[i].thread, NULL), 0);
        assert_true(runners[i].in_time);
        assert_int_equal(runners[i].early, 0);
        wefti_startline_close(runners[i].line);
    }
    assert_int_equal(atomic_load(&come), RANKS * ROUNDS);
}

static void test_open_wrong_place_gives_none(void **state)
{
    (void)state;
    wefti_startline_place place;
    wefti_startline *line = wefti_startline_create(2, &place);
    assert_non_null(line);
    wefti_startline_place foreign = place;
    foreign.token ^= 1;
    assert_null(wefti_startline_open(&foreign));
    foreign = place;
    foreign.descriptor = 0;
    assert_null(wefti_startline_open(&foreign));
    assert_null(wefti_startline_open(&(wefti_startline_place){0}));
    wefti_startline_close(line);
    wefti_startline_close(NULL);
}

static void test_wait_on_cancelled_line_returns(void **state)
{
    (void)state;
    wefti_startline_place place;
    wefti_startline *line = wefti_startline_create(2, &place);
    wefti_startline *other = wefti_startline_open(&place);
    assert_non_null(line);
    assert_non_null(other);
    wefti_startline_cancel(other);
    assert_false(wefti_startline_wait(line, NULL, NULL));
    wefti_startline_close(other);
    wefti_startline_close(line);
}

static bool is_asked_thrice(const void *context)
{
    int *asked = *(int *const *)context;
    return ++*asked == 3;
}

static void test_wait_without_hope_ends_for_all(void **state)
{
    (void)state;
    wefti_startline_place place;
    wefti_startline *line = wefti_startline_create(3, &place);
    wefti_startline *other = wefti_startline_open(&place);
    assert_non_null(line);
    assert_non_null(other);
    int asked = 0, *place_of = &asked;
    assert_false(wefti_startline_wait(line, is_asked_thrice, &place_of));
    assert_int_equal(asked, 3);
    assert_false(wefti_startline_wait(other, NULL, NULL));
    wefti_startline_close(other);
    wefti_startline_close(line);
}

enum { RACES = 2000 };

static bool has_no_hope(const void *context)
{
    (void)context;
    return true;
}

static void *race(void *argument)
{
    runner *self = argument;
    self->in_time = wefti_startline_wait(self->line, has_no_hope, NULL);
    return NULL;
}

/* One gives up about when the other comes: both say the same. */
static void test_round_is_complete_for_all_or_for_none(void **state)
{
    (void)state;
    int complete = 0;
    for (int i = 0; i < RACES; i++) {
        wefti_startline_place place;
        runner self = {.line = wefti_startline_create(2, &place)};
        wefti_startline *other = wefti_startline_open(&place);
        assert_non_null(self.line);
        assert_non_null(other);
        assert_int_equal(pthread_create(&self.thread, NULL, race, &self), 0);
        for (volatile int spin = 0; spin < i % 100 * 20; spin++) {
        }
        if (i % 2) {
            wefti_startline_cancel(other);
        }
        const bool came = wefti_startline_wait(other, NULL, NULL);
        pthread_join(self.thread, NULL);
        assert_int_equal(came, self.in_time);
        complete += came;
        wefti_startline_close(other);
        wefti_startline_close(self.line);
    }
    assert_in_range(complete, 1, RACES - 1);
}

static void *keep_busy(void *over)
{
    while (!atomic_load((_Atomic bool *)over)) {
    }
    return NULL;
}

/* How often the calling thread has left its core to others. */
static int64_t count_yields(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_nvcsw + usage.ru_nivcsw;
}

/* Thread: waits on one core beside others that never sleep; in yields. */
static void *wait_among_busy(void *yields_out)
{
    cpu_set_t cores;
    sched_getaffinity(0, sizeof(cores), &cores);
    for (int core = 0, kept = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &cores) && kept++ > 0) {
            CPU_CLR(core, &cores);
        }
    }
    sched_setaffinity(0, sizeof(cores), &cores);
    pthread_t busy[BUSY];
    _Atomic bool over = false;
    for (int i = 0; i < BUSY; i++) {
        assert_int_equal(pthread_create(&busy[i], NULL, keep_busy, &over), 0);
    }
    wefti_startline_place place;
    int ranks = (int)sysconf(_SC_NPROCESSORS_ONLN) + 1; /* so it yields */
    wefti_startline *line = wefti_startline_create(ranks, &place);
    const int64_t before = count_yields();
    assert_non_null(line);
    assert_false(wefti_startline_wait(line, has_no_hope, NULL));
    *(int64_t *)yields_out = count_yields() - before;
    atomic_store(&over, true);
    for (int i = 0; i < BUSY; i++) {
        pthread_join(busy[i], NULL);
    }
    wefti_startline_close(line);
    return NULL;
}

/* Of yields, each as long as the others on the core like, this took 2000. */
static void test_wait_on_a_busy_core_asks_for_hope_in_time(void **state)
{
    (void)state;
    pthread_t thread;
    int64_t yields = -1;
    assert_int_equal(pthread_create(&thread, NULL, wait_among_busy, &yields),
                     0);
    pthread_join(thread, NULL);
    print_message("%" PRId64 " yields\n", yields);
    assert_in_range(yields, 0, YIELDS_MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wait_many_rounds_nobody_is_early),
        cmocka_unit_test(test_open_wrong_place_gives_none),
        cmocka_unit_test(test_wait_on_cancelled_line_returns),
        cmocka_unit_test(test_wait_without_hope_ends_for_all),
        cmocka_unit_test(test_round_is_complete_for_all_or_for_none),
        cmocka_unit_test(test_wait_on_a_busy_core_asks_for_hope_in_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
