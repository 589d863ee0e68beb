/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what all ranks must know of each other goes from host to host in log2
 * rounds of the hosts' leaders, and an operation is announced along its own
 * edges: a barrier of 8 hosts takes 24 messages, and so does a small
 * all-reduce, all-gather or reduce-scatter, and, beside its data, an all-gather
 * or reduce-scatter with counts; a broadcast few more than its data, and slots
 * are used again without a word from each rank to each.
 *
 * And a rank that waits long learns what others have entered that it exchanges
 * nothing with.
 *
 * Method: the leaders' tables of many worlds are walked without a network.
 * Then a world of 8 hosts of two ranks, threads, counts the messages that its
 * ranks have sent to other hosts; small sums also do so among 2, 4, 8 and 64
 * hosts. What comes at every fourth operation comes sooner or later, so counts
 * have limits, not values.
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

/* kinds: of operations, by turns. messages: between hosts, of all ranks. */
typedef struct tally {
    int operations, kinds;
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

/* Element i of what a rank has for an operation. */
static uint64_t value_of(int rank, int operation, size_t i)
{
    return (uint64_t)rank * 31 + (uint64_t)operation * 7 + i;
}

/* The sum of that of all ranks. */
static uint64_t sum_of(int nranks, int operation, size_t i)
{
    uint64_t sum = 0;
    for (int rank = 0; rank < nranks; rank++) {
        sum += value_of(rank, operation, i);
    }
    return sum;
}

enum { SMALL = 2, MOST_RANKS = 64 }; /* elements of a rank's part */

/* An all-reduce, an all-gather and a reduce-scatter, by turns. */
static int count_small(weft_comm *comm, void *context)
{
    tally *all = context;
    const uint64_t before = count_sent(comm);
    const int nranks = comm->nranks, rank = comm->rank;
    uint64_t in[SMALL * MOST_RANKS], out[SMALL * MOST_RANKS];
    int failures = 0;
    for (int n = 0; n < all->operations; n++) {
        for (size_t i = 0; i < SMALL * (size_t)nranks; i++) {
            in[i] = value_of(rank, n, i);
            out[i] = UINT64_MAX;
        }
        const int kind = n % all->kinds;
        const weft_status status =
            kind == 0 ? weft_allreduce(in, out, SMALL, WEFT_DTYPE_U64,
                                       WEFT_REDOP_SUM, comm, NULL)
            : kind == 1
                ? weft_allgather(in, out, SMALL, WEFT_DTYPE_U64, comm, NULL)
                : weft_reducescatter(in, out, SMALL, WEFT_DTYPE_U64,
                                     WEFT_REDOP_SUM, comm, NULL);
        failures += status != WEFT_OK;
        const size_t got = kind == 1 ? SMALL * (size_t)nranks : SMALL;
        const size_t first = kind == 2 ? SMALL * (size_t)rank : 0;
        for (size_t i = 0; i < got; i++) {
            const uint64_t wanted =
                kind == 1 ? value_of((int)(i / SMALL), n, i % SMALL)
                          : sum_of(nranks, n, first + i);
            failures += out[i] != wanted;
        }
    }
    atomic_fetch_add(&all->messages, count_sent(comm) - before);
    return failures;
}

/* Of counted operations one rank gives, or gets, all there is. */
enum { GIVER = 1 };

/* An all_gatherv, or a reduce_scatterv, in which one rank has a part. */
static int gather_or_reduce(weft_comm *comm, int kind, const size_t *counts,
                            const uint64_t *in, uint64_t *out)
{
    const size_t own = counts[comm->rank];
    return kind == 0
               ? weft_allgatherv(in, own, out, counts, NULL, WEFT_DTYPE_U64,
                                 comm, NULL) != WEFT_OK
               : weft_reducescatterv(in, out, counts, WEFT_DTYPE_U64,
                                     WEFT_REDOP_SUM, comm, NULL) != WEFT_OK;
}

/* Both by turns, or one of them. */
static int count_counted(weft_comm *comm, void *context)
{
    tally *all = context;
    const uint64_t before = count_sent(comm);
    size_t counts[MOST_RANKS] = {0};
    uint64_t in[SMALL], out[SMALL];
    int failures = 0;
    counts[GIVER] = SMALL;
    for (int n = 0; n < all->operations; n++) {
        const int kind = n % all->kinds;
        const bool gets = kind == 0 || comm->rank == GIVER;
        for (size_t i = 0; i < SMALL; i++) {
            in[i] = value_of(comm->rank, n, i);
            out[i] = UINT64_MAX;
        }
        failures += gather_or_reduce(comm, kind, counts, in, out);
        for (size_t i = 0; i < SMALL; i++) {
            const uint64_t wanted = !gets       ? UINT64_MAX
                                    : kind == 0 ? value_of(GIVER, n, i)
                                                : sum_of(comm->nranks, n, i);
            failures += out[i] != wanted;
        }
    }
    atomic_fetch_add(&all->messages, count_sent(comm) - before);
    return failures;
}

static uint64_t run_ranks(int nranks, world_rank_call call, tally all)
{
    const struct world world = {
        .nranks = nranks,
        .config = {.size_bytes = sizeof(weft_comm_config)},
        .call = call,
        .context = &all};
    assert_int_equal(world_run_threads(&world), 0);
    const uint64_t messages = atomic_load(&all.messages);
    print_message("%d operations of %d ranks: %llu messages between hosts, "
                  "%.1f each\n",
                  all.operations, nranks, (unsigned long long)messages,
                  (double)messages / all.operations);
    return messages;
}

static uint64_t run(world_rank_call call, int operations, size_t bytes)
{
    return run_ranks(RANKS, call,
                     (tally){.operations = operations, .bytes = bytes});
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

/* As a barrier: from each rank to each elsewhere, these would be 8, 48, 56 and
 * 4032. Among 64 hosts the parts of a reduce-scatter are no small payload. */
static void test_small_sums_and_gathers_take_rounds(void **state)
{
    enum { OPERATIONS = 24 };
    static const struct {
        const char *spread;
        int nranks, hosts, rounds, kinds;
    } worlds[] = {{"pairs", 4, 2, 1, 3},
                  {"pairs", 8, 4, 2, 3},
                  {"apart", 8, 8, 3, 3},
                  {"apart", MOST_RANKS, MOST_RANKS, 6, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        const uint64_t each = (uint64_t)(worlds[i].hosts * worlds[i].rounds);
        (void)setenv("WEFT_TEST_DOMAINS", worlds[i].spread, 1);
        const uint64_t messages = run_ranks(
            worlds[i].nranks, count_small,
            (tally){.operations = OPERATIONS, .kinds = worlds[i].kinds});
        assert_true(messages >= each * OPERATIONS);
        assert_true(messages <= each * (OPERATIONS + OPERATIONS / 4 + 2));
    }
    (void)setenv("WEFT_TEST_DOMAINS", "pairs", 1);
}

/* Data are one message to each rank elsewhere, or from each, and word of each
 * that it was read at most; counts would be told by each rank to each
 * elsewhere: 8, 48, 56 and 4032 messages. */
static void test_common_counts_take_rounds(void **state)
{
    enum { OPERATIONS = 24 };
    static const struct {
        const char *spread;
        int nranks, hosts, rounds, elsewhere;
    } worlds[] = {{"pairs", 4, 2, 1, 2},
                  {"pairs", 8, 4, 2, 6},
                  {"apart", 8, 8, 3, 7},
                  {"apart", MOST_RANKS, MOST_RANKS, 6, MOST_RANKS - 1}};
    (void)state;
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        const uint64_t each = (uint64_t)(worlds[i].hosts * worlds[i].rounds);
        const uint64_t data = 2 * (uint64_t)worlds[i].elsewhere;
        (void)setenv("WEFT_TEST_DOMAINS", worlds[i].spread, 1);
        const uint64_t messages =
            run_ranks(worlds[i].nranks, count_counted,
                      (tally){.operations = OPERATIONS, .kinds = 2});
        assert_true(messages >= each * OPERATIONS);
        assert_true(messages <=
                    (each + data) * OPERATIONS + each * (OPERATIONS / 4 + 2));
    }
    (void)setenv("WEFT_TEST_DOMAINS", "pairs", 1);
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
        cmocka_unit_test(test_small_sums_and_gathers_take_rounds),
        cmocka_unit_test(test_common_counts_take_rounds),
        cmocka_unit_test(test_last_operation_of_any_rank_is_known_to_who_waits),
    };
    (void)setenv("WEFT_TEST_DOMAINS", "pairs", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
