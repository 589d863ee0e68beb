/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: members of different jobs share a thread, those of one job have one
 * each; each member is served while it is there and never after it has left;
 * the last one ends the thread, whoever joins meanwhile; what cannot be added
 * leaves nothing behind.
 *
 * Method: a kind whose thread counts its turns of each member. Several threads
 * join and leave at once, each waiting until its member has been served.
 */
#include "base/shared_thread.h"

#include "base/error.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { THREADS = 4, ROUNDS = 300, MEMBERS_MOST = 8 };

typedef struct member {
    int job;
    bool refused;
    wefti_shared_thread *of;
    _Atomic int turns;
} member;

typedef struct server {
    wefti_shared_thread shared;
    member *members[MEMBERS_MOST];
} server;

static _Atomic int opened, closed;

static weft_status open_server(wefti_shared_thread *self)
{
    (void)self;
    atomic_fetch_add(&opened, 1);
    return WEFT_OK;
}

static void close_server(wefti_shared_thread *self)
{
    (void)self;
    atomic_fetch_add(&closed, 1);
}

static void *serve(void *argument)
{
    server *own = argument;
    wefti_thread_work_begin(&own->shared.work);
    while (!atomic_load(&own->shared.stopping)) {
        pthread_mutex_lock(&own->shared.lock);
        for (int i = 0; i < MEMBERS_MOST; i++) {
            if (own->members[i]) {
                atomic_fetch_add(&own->members[i]->turns, 1);
            }
        }
        pthread_mutex_unlock(&own->shared.lock);
        sched_yield();
    }
    return NULL;
}

static void wake(wefti_shared_thread *self)
{
    (void)self;
}

static bool takes(const wefti_shared_thread *self, const void *wanted)
{
    const server *own = (const server *)self;
    bool room = false, same = false;
    for (int i = 0; i < MEMBERS_MOST; i++) {
        room |= !own->members[i];
        same |= own->members[i] &&
                own->members[i]->job == ((const member *)wanted)->job;
    }
    return room && !same;
}

static weft_status add(wefti_shared_thread *self, void *added)
{
    server *own = (server *)self;
    member *at = added;
    int place = 0;
    while (own->members[place]) {
        place++;
    }
    if (at->refused) {
        return wefti_error(WEFT_ERR_SYSTEM, "refused");
    }
    own->members[place] = at;
    at->of = self;
    return WEFT_OK;
}

static const wefti_shared_kind kind = {.name = "test-shared",
                                       .what = "thread of a test",
                                       .bytes = sizeof(server),
                                       .open = open_server,
                                       .close = close_server,
                                       .run = serve,
                                       .wake = wake,
                                       .takes = takes,
                                       .add = add};

static wefti_shared_list servers = WEFTI_SHARED_LIST(kind);

static void leave(member *at)
{
    server *own = (server *)at->of;
    pthread_mutex_lock(&own->shared.lock);
    for (int i = 0; i < MEMBERS_MOST; i++) {
        if (own->members[i] == at) {
            own->members[i] = NULL;
        }
    }
    pthread_mutex_unlock(&own->shared.lock);
    wefti_shared_leave(&servers, at->of);
}

static void await_turn(member *at)
{
    while (atomic_load(&at->turns) == 0) {
        sched_yield();
    }
}

static void test_shared_thread_serves_one_of_each_job(void **state)
{
    member members[] = {{.job = 1}, {.job = 2}, {.job = 1}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wefti_shared_join(&servers, &members[i]), WEFT_OK);
    }
    assert_ptr_equal(members[0].of, members[1].of);
    assert_ptr_not_equal(members[0].of, members[2].of);
    for (int i = 0; i < 3; i++) {
        await_turn(&members[i]);
        leave(&members[i]);
    }
    assert_null(servers.first);
}

static void test_shared_thread_refused_leaves_nothing(void **state)
{
    member good = {.job = 1}, bad = {.job = 2, .refused = true};
    (void)state;
    assert_int_equal(wefti_shared_join(&servers, &bad), WEFT_ERR_SYSTEM);
    assert_null(servers.first);
    assert_int_equal(wefti_shared_join(&servers, &good), WEFT_OK);
    assert_int_equal(wefti_shared_join(&servers, &bad), WEFT_ERR_SYSTEM);
    await_turn(&good);
    leave(&good);
    assert_null(servers.first);
}

static void *come_and_go(void *argument)
{
    const int job = *(const int *)argument;
    for (int round = 0; round < ROUNDS; round++) {
        member own = {.job = job};
        if (wefti_shared_join(&servers, &own) != WEFT_OK) {
            return argument;
        }
        await_turn(&own);
        leave(&own);
        const int turns = atomic_load(&own.turns);
        sched_yield();
        if (atomic_load(&own.turns) != turns) {
            return argument;
        }
    }
    return NULL;
}

static void test_shared_thread_ends_with_its_last(void **state)
{
    pthread_t threads[THREADS];
    const int jobs[THREADS] = {1, 2, 3, 1};
    (void)state;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(
            pthread_create(&threads[i], NULL, come_and_go, (void *)&jobs[i]),
            0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_null(servers.first);
    assert_int_equal(atomic_load(&opened), atomic_load(&closed));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_thread_serves_one_of_each_job),
        cmocka_unit_test(test_shared_thread_refused_leaves_nothing),
        cmocka_unit_test(test_shared_thread_ends_with_its_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
