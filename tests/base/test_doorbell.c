/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: every sleeper on a doorbell wakes for every ring that follows its news,
 * in one process and across two, on one bell or on several at once; and a ring
 * without sleepers is free.
 *
 * Method: two or more players pass a token round a ring of doorbells as fast
 * as they can, with random pauses of some hundred cycles around each step of
 * the protocol (seed printed). A lost wake-up leaves all threads asleep until
 * the limit of 20 s, which fails the test; without one, thousands of rounds
 * take well under a second. Counts begin at 2^32 - 1, so that all pass the
 * wrap.
 */
#include "base/clock.h"
#include "base/doorbell.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PLAYERS_MAX = 5, QUIET_MAX = 3, ROUNDS = 4000 };
static const int64_t limit_ns = 20000000000;
/* The generation wraps at the first wake. */
static const uint32_t last_generation = UINT32_MAX >> WEFTI_DOORBELL_BITS;

/* The token is at player (turn % players); news and doorbell of each apart. */
typedef struct table {
    int players;
    unsigned seed;
    _Atomic uint64_t turn;
    int idle; /* bells that nobody rings, and every player sleeps on too */
    wefti_doorbell bells[PLAYERS_MAX], quiet[QUIET_MAX];
    _Atomic uint64_t sleeps, lost;
} table;

typedef struct player {
    table *table;
    int number;
} player;

static void pause_randomly(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    for (uint64_t i = *random % 256; i > 0; i--) {
        atomic_signal_fence(memory_order_seq_cst); /* keeps the loop */
    }
}

/* Its own bell stands anywhere among the quiet ones. */
static void list_bells(table *t, int number, uint64_t *random,
                       wefti_doorbell_wait *waits)
{
    for (int i = 0; i < t->idle; i++) {
        waits[i].bell = &t->quiet[i];
    }
    const int place = (int)(*random % (uint64_t)(t->idle + 1));
    waits[t->idle].bell = place < t->idle ? waits[place].bell : NULL;
    waits[place].bell = &t->bells[number];
}

/* Waits for its turn; false when it slept to the limit. */
static bool wait_for_turn(table *t, int number, uint64_t *random)
{
    uint64_t players = (uint64_t)t->players;
    wefti_doorbell_wait waits[QUIET_MAX + 1];
    const int count = t->idle + 1;
    int64_t end_ns = wefti_clock_ns() + limit_ns;
    while (atomic_load(&t->turn) % players != (uint64_t)number) {
        list_bells(t, number, random, waits);
        for (int i = 0; i < count; i++) {
            waits[i].seen = wefti_doorbell_arm(waits[i].bell);
        }
        pause_randomly(random);
        if (atomic_load(&t->turn) % players != (uint64_t)number) {
            pause_randomly(random);
            wefti_doorbell_sleep_any(waits, count, limit_ns);
            atomic_fetch_add(&t->sleeps, 1);
        }
        for (int i = 0; i < count; i++) {
            wefti_doorbell_disarm(waits[i].bell, waits[i].seen);
        }
        if (wefti_clock_ns() >= end_ns) {
            return false;
        }
    }
    return true;
}

static void *play(void *argument)
{
    const player *me = argument;
    table *t = me->table;
    uint64_t random = t->seed * 2654435761u + (uint64_t)me->number + 1;
    for (int round = 0; round < ROUNDS; round++) {
        if (!wait_for_turn(t, me->number, &random)) {
            atomic_fetch_add(&t->lost, 1);
            return NULL;
        }
        pause_randomly(&random);
        atomic_fetch_add(&t->turn, 1);
        wefti_doorbell_ring(&t->bells[(me->number + 1) % t->players]);
    }
    return NULL;
}

static table *make_table(int players, int idle)
{
    table *t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(t, MAP_FAILED);
    t->players = players;
    t->idle = idle;
    t->seed = (unsigned)wefti_clock_ns();
    for (int p = 0; p < players; p++) {
        wefti_doorbell_init(&t->bells[p]);
        atomic_store(&t->bells[p].state,
                     last_generation << WEFTI_DOORBELL_BITS);
    }
    return t;
}

static void check_table(table *t)
{
    print_message("seed %u, %d players: %llu sleeps\n", t->seed, t->players,
                  (unsigned long long)t->sleeps);
    assert_int_equal(t->lost, 0);
    assert_int_equal(t->turn, (uint64_t)t->players * ROUNDS);
    assert_true(t->sleeps > 0);
    uint32_t wakes = 0;
    for (int p = 0; p < t->players; p++) {
        wakes +=
            ((t->bells[p].state >> WEFTI_DOORBELL_BITS) - last_generation) &
            last_generation;
    }
    assert_true(wakes > 0 && wakes <= (uint32_t)(t->players * ROUNDS));
    for (int p = 0; p < t->players; p++) {
        assert_int_equal(wefti_doorbell_armed(&t->bells[p]), 0);
    }
    munmap(t, sizeof(*t));
}

/* First of all tests: no thread has been made before the fork. */
static void play_with_a_process(int idle)
{
    table *t = make_table(2, idle);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        play(&(player){t, 1});
        _exit(0);
    }
    play(&(player){t, 0});
    int how = -1;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    check_table(t);
}

static void test_ring_across_processes_loses_no_wakeup(void **state)
{
    (void)state;
    play_with_a_process(0);
}

static void test_ring_of_one_of_several_across_processes_wakes(void **state)
{
    (void)state;
    assert_true(wefti_doorbell_can_wait_for_any());
    play_with_a_process(QUIET_MAX);
}

static void play_with_threads(int players, int idle)
{
    table *t = make_table(players, idle);
    pthread_t threads[PLAYERS_MAX];
    player seats[PLAYERS_MAX];
    for (int p = 0; p < players; p++) {
        seats[p] = (player){t, p};
        assert_int_equal(pthread_create(&threads[p], NULL, play, &seats[p]), 0);
    }
    for (int p = 0; p < players; p++) {
        pthread_join(threads[p], NULL);
    }
    check_table(t);
}

static void test_ring_across_two_threads_loses_no_wakeup(void **state)
{
    (void)state;
    play_with_threads(2, 0);
}

static void test_ring_across_five_threads_loses_no_wakeup(void **state)
{
    (void)state;
    play_with_threads(5, 0);
}

static void test_ring_of_one_of_several_across_threads_wakes(void **state)
{
    (void)state;
    play_with_threads(5, 1);
    play_with_threads(3, QUIET_MAX);
}

/* Several sleepers on one bell: one ring wakes all. */
typedef struct crowd {
    wefti_doorbell bell;
    _Atomic uint32_t news, woken;
} crowd;

static void *sleep_in_crowd(void *argument)
{
    crowd *c = argument;
    int64_t end_ns = wefti_clock_ns() + limit_ns;
    while (!atomic_load(&c->news) && wefti_clock_ns() < end_ns) {
        uint32_t seen = wefti_doorbell_arm(&c->bell);
        if (!atomic_load(&c->news)) {
            wefti_doorbell_sleep(&c->bell, seen, limit_ns);
        }
        wefti_doorbell_disarm(&c->bell, seen);
    }
    atomic_fetch_add(&c->woken, wefti_clock_ns() < end_ns);
    return NULL;
}

static void test_ring_wakes_every_sleeper(void **state)
{
    (void)state;
    crowd c = {.news = 0};
    pthread_t threads[PLAYERS_MAX];
    wefti_doorbell_init(&c.bell);
    for (int p = 0; p < PLAYERS_MAX; p++) {
        pthread_create(&threads[p], NULL, sleep_in_crowd, &c);
    }
    while (wefti_doorbell_armed(&c.bell) < PLAYERS_MAX) {
        sched_yield();
    }
    atomic_store(&c.news, 1);
    wefti_doorbell_ring(&c.bell);
    for (int p = 0; p < PLAYERS_MAX; p++) {
        pthread_join(threads[p], NULL);
    }
    assert_int_equal(c.woken, PLAYERS_MAX);
}

static void test_ring_without_sleepers_moves_nothing(void **state)
{
    (void)state;
    wefti_doorbell bell;
    wefti_doorbell_init(&bell);
    wefti_doorbell_ring(&bell);
    assert_int_equal(bell.state, 0);
    uint32_t seen = wefti_doorbell_arm(&bell);
    wefti_doorbell_ring(&bell);
    const uint32_t rung = bell.state;
    assert_int_not_equal(rung >> WEFTI_DOORBELL_BITS, seen);
    wefti_doorbell_disarm(&bell, seen);
    assert_int_equal(bell.state, rung);
}

/* A sleeper that was rung is being woken: more rings cost no call of the
 * kernel.
 */
static void test_second_ring_moves_nothing_until_the_next_arm(void **state)
{
    (void)state;
    wefti_doorbell bell;
    wefti_doorbell_init(&bell);
    const uint32_t first = wefti_doorbell_arm(&bell);
    const uint32_t second = wefti_doorbell_arm(&bell);
    assert_int_equal(first, second);
    assert_int_equal(wefti_doorbell_armed(&bell), 2);
    wefti_doorbell_ring(&bell);
    const uint32_t rung = bell.state;
    wefti_doorbell_ring(&bell);
    assert_int_equal(bell.state, rung);
    /* One of the two is quick and arms again before the other has gone. */
    const uint32_t third = wefti_doorbell_arm(&bell);
    wefti_doorbell_disarm(&bell, second);
    assert_int_equal(wefti_doorbell_armed(&bell), 1);
    wefti_doorbell_ring(&bell);
    assert_int_not_equal(bell.state, rung);
    wefti_doorbell_disarm(&bell, third);
    assert_int_equal(wefti_doorbell_armed(&bell), 0);
}

/* More than are counted, and back. */
static void test_sleepers_beyond_counting_are_woken(void **state)
{
    (void)state;
    wefti_doorbell bell;
    wefti_doorbell_init(&bell);
    uint32_t seen = 0;
    for (int i = 0; i < 5000; i++) {
        seen = wefti_doorbell_arm(&bell);
    }
    for (int i = 0; i < 4999; i++) {
        wefti_doorbell_disarm(&bell, seen);
    }
    assert_int_not_equal(wefti_doorbell_armed(&bell), 0);
    wefti_doorbell_ring(&bell);
    assert_int_equal(wefti_doorbell_armed(&bell), 0);
    const int64_t begin_ns = wefti_clock_ns();
    wefti_doorbell_sleep(&bell, seen, limit_ns);
    assert_true(wefti_clock_ns() - begin_ns < limit_ns / 2);
}

/* Rung between arm and sleep: the kernel must not let it sleep at all. */
static void test_sleep_after_a_ring_returns_at_once(void **state)
{
    (void)state;
    wefti_doorbell bell;
    wefti_doorbell_init(&bell);
    uint32_t seen = wefti_doorbell_arm(&bell);
    wefti_doorbell_ring(&bell);
    int64_t begin_ns = wefti_clock_ns();
    wefti_doorbell_sleep(&bell, seen, limit_ns);
    assert_true(wefti_clock_ns() - begin_ns < limit_ns / 2);
    wefti_doorbell_disarm(&bell, seen);
}

static void test_sleep_unrung_ends_with_its_timeout(void **state)
{
    (void)state;
    wefti_doorbell bell;
    wefti_doorbell_init(&bell);
    uint32_t seen = wefti_doorbell_arm(&bell);
    int64_t begin_ns = wefti_clock_ns();
    wefti_doorbell_sleep(&bell, seen, 20000000);
    int64_t slept_ns = wefti_clock_ns() - begin_ns;
    assert_true(slept_ns >= 19000000 && slept_ns < limit_ns / 2);
    wefti_doorbell_disarm(&bell, seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_across_processes_loses_no_wakeup),
        cmocka_unit_test(test_ring_of_one_of_several_across_processes_wakes),
        cmocka_unit_test(test_ring_across_two_threads_loses_no_wakeup),
        cmocka_unit_test(test_ring_across_five_threads_loses_no_wakeup),
        cmocka_unit_test(test_ring_of_one_of_several_across_threads_wakes),
        cmocka_unit_test(test_ring_wakes_every_sleeper),
        cmocka_unit_test(test_ring_without_sleepers_moves_nothing),
        cmocka_unit_test(test_second_ring_moves_nothing_until_the_next_arm),
        cmocka_unit_test(test_sleepers_beyond_counting_are_woken),
        cmocka_unit_test(test_sleep_after_a_ring_returns_at_once),
        cmocka_unit_test(test_sleep_unrung_ends_with_its_timeout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
