/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what all ranks must know of each other goes from host to host in log2
 * rounds of the hosts' leaders, and an operation is announced along its own
 * edges: a barrier of 8 hosts takes 24 messages, a broadcast few more than its
 * data, and slots are used again without a word from each rank to each.
 *
 * And a rank that waits long learns what others have entered that it exchanges
 * nothing with.
 *
 * Method: the leaders' tables of many worlds are walked without a network.
 * Then a world of 8 hosts of two ranks, threads, counts the messages that its
 * ranks have sent to other hosts. What comes at every fourth operation comes
 * sooner or later, so counts have limits, not values.
 */
#include "base/clock.h"
#include "comm/core/core.h"
#include "comm/net/rounds.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <time.h>

enum { HOSTS = 8, RANKS = 16, ROUNDS = 3, HOSTS_MOST = 70 };

/* ---- tables ---------------------------------------------------------------
 */

/* Ranks of a host stand `hosts` apart, so that neighbours share no memory. */
static void check_hosts(int hosts, int each)
{
    enum { MOST = 3 * HOSTS_MOST };
    wefti_rounds *rounds[MOST];
    int firsts[MOST];
    bool knows[HOSTS_MOST][HOSTS_MOST] = {{false}};
    const int nranks = hosts * each;
    for (int rank = 0; rank < nranks; rank++) {
        firsts[rank] = rank % hosts;
    }
    for (int rank = 0; rank < nranks; rank++) {
        rounds[rank] = wefti_rounds_create(firsts, nranks, rank);
        assert_non_null(rounds[rank]);
        assert_int_equal(rounds[rank]->leader, rank % hosts);
        assert_int_equal(rounds[rank]->leads, rank < hosts);
        assert_int_equal(rounds[rank]->local_count, each);
        assert_int_equal(rounds[rank]->count,
                         rank < hosts ? rounds[0]->count : 0);
    }
    assert_true(1 << rounds[0]->count >= hosts);
    assert_true(rounds[0]->count == 0 || 1 << rounds[0]->count < 2 * hosts);
    for (int host = 0; host < hosts; host++) {
        knows[host][host] = true;
    }
    for (int k = 0; k < rounds[0]->count; k++) {
        bool before[HOSTS_MOST][HOSTS_MOST];
        memcpy(before, knows, sizeof(before));
        for (int host = 0; host < hosts; host++) {
            const int to = rounds[host]->to[k];
            assert_true(to < hosts && to != host);
            assert_int_equal(rounds[to]->from[k], host);
            assert_int_equal(wefti_rounds_find_to(rounds[host], to), k);
            assert_int_equal(wefti_rounds_find_from(rounds[to], host), k);
            for (int known = 0; known < hosts; known++) {
                knows[to][known] |= before[host][known];
            }
        }
    }
    for (int host = 0; host < hosts; host++) {
        for (int known = 0; known < hosts; known++) {
            assert_true(knows[host][known]);
        }
    }
    for (int rank = 0; rank < nranks; rank++) {
        free(rounds[rank]);
    }
}

static void test_rounds_of_any_number_of_hosts_reach_all(void **state)
{
    (void)state;
    for (int hosts = 1; hosts <= HOSTS_MOST; hosts++) {
        check_hosts(hosts, 1);
        check_hosts(hosts, 3);
    }
}

/* ---- messages -------------------------------------------------------------
 */

/* messages: between hosts, of all ranks. */
typedef struct tally {
    int operations;
    size_t bytes;
    _Atomic uint64_t messages;
} tally;

static uint64_t count_sent(weft_comm *comm)
{
    uint64_t sent = 0;
    pthread_mutex_lock(&comm->engine->lock);
    for (int peer = 0; peer < comm->nranks; peer++) {
        sent += comm->fabric.lines[peer].sent;
    }
    pthread_mutex_unlock(&comm->engine->lock);
    return sent;
}

static int count_barriers(weft_comm *comm, void *context)
{
    tally *all = context;
    const uint64_t before = count_sent(comm);
    int failures = 0;
    for (int i = 0; i < all->operations; i++) {
        failures += weft_barrier(comm, NULL) != WEFT_OK;
    }
    atomic_fetch_add(&all->messages, count_sent(comm) - before);
    return failures;
}

static int count_broadcasts(weft_comm *comm, void *context)
{
    tally *all = context;
    const uint64_t before = count_sent(comm);
    unsigned char *data = malloc(all->bytes);
    int failures = data == NULL;
    for (int i = 0; data && i < all->operations; i++) {
        const int root = i * 5 % comm->nranks;
        memset(data, comm->rank == root ? i + 1 : 0xee, all->bytes);
        failures += weft_broadcast(data, data, all->bytes, WEFT_DTYPE_U8, root,
                                   comm, NULL) != WEFT_OK;
        for (size_t at = 0; at < all->bytes; at += 4093) {
            failures += data[at] != (unsigned char)(i + 1);
        }
    }
    free(data);
    atomic_fetch_add(&all->messages, count_sent(comm) - before);
    return failures;
}

static uint64_t run(world_rank_call call, int operations, size_t bytes)
{
    tally all = {.operations = operations, .bytes = bytes};
    const struct world world = {
        .nranks = RANKS,
        .config = {.size_bytes = sizeof(weft_comm_config)},
        .call = call,
        .context = &all};
    assert_int_equal(world_run_threads(&world), 0);
    const uint64_t messages = atomic_load(&all.messages);
    print_message("%d operations: %llu messages between hosts, %.1f each\n",
                  operations, (unsigned long long)messages,
                  (double)messages / operations);
    return messages;
}

/* As many hosts as messages a round, and at every fourth operation, and the
 * first, as many again that say what is completed. */
static void test_barrier_of_eight_hosts_takes_rounds(void **state)
{
    enum { BARRIERS = 64, EACH = HOSTS * ROUNDS };
    (void)state;
    const uint64_t messages = run(count_barriers, BARRIERS, 0);
    assert_true(messages >= EACH * BARRIERS);
    assert_true(messages <= EACH * (BARRIERS + BARRIERS / 4 + 2));
}

/* Each of 7 hosts gets the bytes once, in some 176 messages, and says that it
 * has read them; before, 224 announcements went with them. */
static void test_broadcast_is_announced_along_its_edges(void **state)
{
    enum { BROADCASTS = 48, MOST = 380 };
    (void)state;
    const uint64_t messages =
        run(count_broadcasts, BROADCASTS, (size_t)1 << 20);
    assert_true(messages < (uint64_t)MOST * BROADCASTS);
}

/* As a small one's payload rides in the root's entry: 14 ranks get it, and the
 * leaders their neighbours'. */
static void test_small_broadcast_is_told_to_its_readers(void **state)
{
    enum { BROADCASTS = 64, EACH = RANKS - 2 + HOSTS };
    (void)state;
    const uint64_t messages = run(count_broadcasts, BROADCASTS, 64);
    assert_true(messages <=
                (uint64_t)EACH * BROADCASTS +
                    (uint64_t)HOSTS * ROUNDS * (BROADCASTS / 4 + 2));
}

/* ---- questions ------------------------------------------------------------
 */

enum { ABSENT = 5, BARRIERS_BEFORE = 3, LIMIT_S = 30 };

/* The absent rank enters once rank 0 knows what it did last. */
typedef struct scene {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool known;
} scene;

static int be_absent(scene *all)
{
    struct timespec until;
    int failure = 0;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LIMIT_S;
    pthread_mutex_lock(&all->lock);
    while (!all->known && failure == 0) {
        failure = pthread_cond_timedwait(&all->changed, &all->lock, &until);
    }
    pthread_mutex_unlock(&all->lock);
    return failure != 0;
}

static void report(scene *all)
{
    pthread_mutex_lock(&all->lock);
    all->known = true;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

/* Until rank 0's report of all ranks has the absent one's last operation. */
static int look(weft_comm *comm, scene *all)
{
    const int64_t until_ns = wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_BARRIER,
                        .dtype = WEFT_DTYPE_U8};
    char text[8192], line[64];
    weft_request *barrier;
    bool known = false;
    snprintf(line, sizeof(line), "rank %d: alive, last #%llu barrier", ABSENT,
             (unsigned long long)comm->number);
    if (weft_op_begin(&op, 1, comm, &barrier) != WEFT_OK) {
        return 1;
    }
    while (!known && wefti_clock_ns() < until_ns) {
        known = weft_comm_get_health(comm, WEFT_COMM_TEXT, text,
                                     sizeof(text)) == WEFT_OK &&
                strstr(text, line) != NULL;
        sched_yield();
    }
    report(all);
    const int failures = !known + (weft_request_wait(barrier) != WEFT_OK);
    weft_request_destroy(barrier);
    return failures;
}

static int ask(weft_comm *comm, void *context)
{
    scene *all = context;
    int failures = 0;
    for (int i = 0; i < BARRIERS_BEFORE; i++) {
        failures += weft_barrier(comm, NULL) != WEFT_OK;
    }
    if (comm->rank == 0) {
        return failures + look(comm, all);
    }
    if (comm->rank == ABSENT) {
        failures += be_absent(all);
    }
    return failures + (weft_barrier(comm, NULL) != WEFT_OK);
}

/* Rank 5 shares memory with its host's leader alone, and is none. */
static void test_last_operation_of_any_rank_is_known_to_who_waits(void **state)
{
    (void)state;
    scene all = {.known = false};
    pthread_mutex_init(&all.lock, NULL);
    pthread_cond_init(&all.changed, NULL);
    const struct world world = {
        .nranks = 8,
        .config = {.size_bytes = sizeof(weft_comm_config), .warn_ms = 200},
        .call = ask,
        .context = &all};
    assert_int_equal(world_run_threads(&world), 0);
    pthread_cond_destroy(&all.changed);
    pthread_mutex_destroy(&all.lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds_of_any_number_of_hosts_reach_all),
        cmocka_unit_test(test_barrier_of_eight_hosts_takes_rounds),
        cmocka_unit_test(test_broadcast_is_announced_along_its_edges),
        cmocka_unit_test(test_small_broadcast_is_told_to_its_readers),
        cmocka_unit_test(test_last_operation_of_any_rank_is_known_to_who_waits),
    };
    (void)setenv("WEFT_TEST_DOMAINS", "pairs", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
