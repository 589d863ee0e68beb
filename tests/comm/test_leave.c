/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: destroying a communicator costs no message while all is well, and does
 * not wait for what it has sent: other communicators go on, the memory stays
 * until the network has taken the messages, and no longer, whatever others
 * send. A rank that waits for one that has left learns it by asking.
 *
 * Method: worlds of threads on several hosts; messages to other hosts, and
 * calls of the port's progress inside a destroy, are counted. To keep what is
 * sent in the port, the receiver's engine is held by its lock meanwhile, so
 * that nothing reads its sockets.
 */
#include "base/clock.h"
#include "comm/core/core.h"
#include "comm/net/net.h"
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

enum { RANKS = 8, LIMIT_S = 30 };

static int run_world(const char *spread, int nranks, world_rank_call call,
                     void *context)
{
    const struct world world = {
        .nranks = nranks,
        .config = {.size_bytes = sizeof(weft_comm_config)},
        .call = call,
        .context = context};
    (void)setenv("WEFT_TEST_DOMAINS", spread, 1);
    return world_run_threads(&world);
}

static int64_t limit_ns(void)
{
    return wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
}

/* ---- messages -------------------------------------------------------------
 */

static uint64_t count_sent(weft_comm *comm)
{
    pthread_mutex_lock(&comm->engine->lock);
    const uint64_t sent = comm->engine->net->sent_messages;
    pthread_mutex_unlock(&comm->engine->lock);
    return sent;
}

static int count_leaving(weft_comm *comm, void *context)
{
    _Atomic uint64_t *messages = context;
    weft_comm *part = NULL;
    if (weft_comm_split(comm, 0, 0, NULL, &part) != WEFT_OK) {
        return 1;
    }
    int failures = weft_barrier(part, NULL) != WEFT_OK;
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    const uint64_t before = count_sent(comm);
    weft_comm_destroy(part);
    atomic_fetch_add(messages, count_sent(comm) - before);
    return failures + (weft_barrier(comm, NULL) != WEFT_OK);
}

/* From each rank to each of another host these were 48. What is late of the
 * barriers, a leader's to each of two others and what a rank that has left
 * answers, may come in between. */
static void test_leaving_tells_no_rank(void **state)
{
    enum { LATE = 4 * 2 + 8 };
    _Atomic uint64_t messages = 0;
    (void)state;
    assert_int_equal(run_world("pairs", RANKS, count_leaving, &messages), 0);
    print_message("%llu messages\n", (unsigned long long)messages);
    assert_true(messages <= LATE);
}

/* ---- questions ------------------------------------------------------------
 */

enum { GONE = 5 }; /* the rank that leaves early; no leader */

static int wait_for_who_left(weft_comm *comm, void *context)
{
    const char *wanted = "rank 5 has destroyed its communicator";
    weft_comm *part = NULL;
    (void)context;
    if (weft_comm_split(comm, 0, 0, NULL, &part) != WEFT_OK ||
        weft_barrier(part, NULL) != WEFT_OK) {
        return 1;
    }
    int failures = 0;
    if (comm->rank != GONE) {
        const weft_status status = weft_barrier(part, NULL);
        failures += status != WEFT_ERR_PEER;
        failures += strstr(weft_error_text(), wanted) == NULL;
        if (failures) {
            fprintf(stderr, "rank %d: %s: %s\n", comm->rank,
                    weft_status_text(status), weft_error_text());
        }
    }
    weft_comm_destroy(part);
    return failures + (weft_barrier(comm, NULL) != WEFT_OK);
}

/* It goes on in another communicator, so no connection and no process ends. */
static void test_who_has_left_is_named_to_all(void **state)
{
    (void)state;
    assert_int_equal(run_world("pairs", RANKS, wait_for_who_left, NULL), 0);
    assert_int_equal(run_world("apart", RANKS, wait_for_who_left, NULL), 0);
}

/* ---- what is still to be sent ---------------------------------------------
 */

enum { BROADCASTS = 12, BYTES = 1 << 20, LOOKS_MOST = 1000 };

static const wefti_port_table *real_table;
static _Atomic uint64_t looks;

static bool count_progress(wefti_port *port)
{
    atomic_fetch_add(&looks, 1);
    return real_table->progress(port);
}

typedef struct unsent {
    wefti_port_table counting;
    pthread_barrier_t met;
} unsent;

static void use_table(weft_comm *comm, const wefti_port_table *table)
{
    pthread_mutex_lock(&comm->engine->lock);
    comm->engine->net->table = table;
    pthread_mutex_unlock(&comm->engine->lock);
}

static bool is_anything_held(weft_comm *comm)
{
    pthread_mutex_lock(&comm->engine->lock);
    const bool held = comm->engine->net->awaiting != NULL;
    pthread_mutex_unlock(&comm->engine->lock);
    return held;
}

/* As if another communicator kept every connection full. */
static size_t always_queued(wefti_port *port, int peer)
{
    (void)peer;
    return real_table->queued(port, 0) + 1;
}

static size_t always_unsent(wefti_port *port)
{
    return real_table->unsent(port) + 1;
}

/* The root's: all of it is staged, and most of it stays in the port. */
static int leave_unsent(weft_comm *comm, weft_comm *part, unsent *scene)
{
    unsigned char *data = malloc(BYTES);
    int failures = data == NULL;
    real_table = comm->engine->net->table;
    scene->counting = *real_table;
    scene->counting.progress = count_progress;
    scene->counting.give_back = NULL; /* as of a port that lends nothing */
    use_table(comm, &scene->counting);
    pthread_barrier_wait(&scene->met); /* the receiver stands still */
    for (int i = 0; data && i < BROADCASTS; i++) {
        memset(data, i + 1, BYTES);
        failures += weft_broadcast(data, data, BYTES, WEFT_DTYPE_U8, 0, part,
                                   NULL) != WEFT_OK;
    }
    free(data);
    atomic_store(&looks, 0);
    weft_comm_destroy(part);
    const uint64_t looked = atomic_load(&looks);
    use_table(comm, real_table);
    failures += looked > LOOKS_MOST;
    failures += !is_anything_held(comm);
    print_message("%llu looks at the network\n", (unsigned long long)looked);
    pthread_barrier_wait(&scene->met); /* it goes on */
    return failures;
}

static int receive(weft_comm *comm, weft_comm *part, unsent *scene)
{
    unsigned char *data = malloc(BYTES);
    int failures = data == NULL;
    pthread_mutex_lock(&comm->engine->lock);
    pthread_barrier_wait(&scene->met);
    pthread_barrier_wait(&scene->met);
    pthread_mutex_unlock(&comm->engine->lock);
    for (int i = 0; data && i < BROADCASTS; i++) {
        memset(data, 0xee, BYTES);
        failures += weft_broadcast(data, data, BYTES, WEFT_DTYPE_U8, 0, part,
                                   NULL) != WEFT_OK;
        for (size_t at = 0; at < BYTES; at += 509) {
            failures += data[at] != (unsigned char)(i + 1);
        }
    }
    free(data);
    weft_comm_destroy(part);
    return failures;
}

static int leave_early(weft_comm *comm, void *context)
{
    unsent *scene = context;
    weft_comm *part = NULL;
    if (weft_comm_split(comm, 0, 0, NULL, &part) != WEFT_OK ||
        weft_barrier(part, NULL) != WEFT_OK ||
        weft_barrier(comm, NULL) != WEFT_OK) {
        return 1;
    }
    int failures = comm->rank == 0 ? leave_unsent(comm, part, scene)
                                   : receive(comm, part, scene);
    const int64_t until_ns = limit_ns();
    while (is_anything_held(comm) && wefti_clock_ns() < until_ns) {
        sched_yield();
    }
    failures += is_anything_held(comm);
    return failures + (weft_barrier(comm, NULL) != WEFT_OK);
}

static void test_destroy_does_not_wait_for_what_it_sent(void **state)
{
    unsent scene;
    (void)state;
    assert_int_equal(pthread_barrier_init(&scene.met, NULL, 2), 0);
    assert_int_equal(run_world("apart", 2, leave_early, &scene), 0);
    pthread_barrier_destroy(&scene.met);
}

static int leave_beside_others(weft_comm *comm, void *context)
{
    unsigned char data[4096] = {0};
    weft_comm *part = NULL;
    (void)context;
    if (weft_comm_split(comm, 0, 0, NULL, &part) != WEFT_OK) {
        return 1;
    }
    const wefti_port_table *own = comm->engine->net->table;
    wefti_port_table full = *own;
    full.queued = always_queued;
    full.unsent = always_unsent;
    int failures = weft_barrier(comm, NULL) != WEFT_OK;
    if (comm->rank == 0) {
        real_table = own;
        use_table(comm, &full);
    }
    failures += weft_broadcast(data, data, sizeof(data), WEFT_DTYPE_U8, 0, part,
                               NULL) != WEFT_OK;
    weft_comm_destroy(part);
    const int64_t until_ns = limit_ns();
    while (is_anything_held(comm) && wefti_clock_ns() < until_ns) {
        sched_yield();
    }
    failures += is_anything_held(comm);
    use_table(comm, own);
    return failures + (weft_barrier(comm, NULL) != WEFT_OK);
}

static void test_memory_goes_back_though_others_keep_sending(void **state)
{
    (void)state;
    assert_int_equal(run_world("apart", 2, leave_beside_others, NULL), 0);
}

/* Two of eight ranks are left of a part, on two hosts of four. */
static int shrink_what_is_left(weft_comm *comm, void *context)
{
    weft_comm *part = NULL, *less = NULL;
    (void)context;
    if (weft_comm_split(comm, 0, 0, NULL, &part) != WEFT_OK ||
        weft_barrier(part, NULL) != WEFT_OK ||
        weft_barrier(comm, NULL) != WEFT_OK) {
        return 1;
    }
    const bool stays = comm->rank % (RANKS / 2) == 0;
    if (!stays) {
        weft_comm_destroy(part);
    }
    int failures = weft_barrier(comm, NULL) != WEFT_OK;
    if (stays) {
        failures += weft_comm_shrink(part, &less) != WEFT_OK;
        failures += less == NULL || weft_comm_get_nranks(less) != 2 ||
                    weft_barrier(less, NULL) != WEFT_OK;
        weft_comm_destroy(less);
        weft_comm_destroy(part);
    }
    return failures + (weft_barrier(comm, NULL) != WEFT_OK);
}

static void test_who_has_left_is_not_taken_for_cut_off(void **state)
{
    (void)state;
    assert_int_equal(run_world("pairs", RANKS, shrink_what_is_left, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaving_tells_no_rank),
        cmocka_unit_test(test_who_has_left_is_named_to_all),
        cmocka_unit_test(test_who_has_left_is_not_taken_for_cut_off),
        cmocka_unit_test(test_destroy_does_not_wait_for_what_it_sent),
        cmocka_unit_test(test_memory_goes_back_though_others_keep_sending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
