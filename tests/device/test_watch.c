/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: watchers are called by whoever signals, and never once their last
 * unwatch has returned, wherever that was made.
 * Method: watchers that count, that unwatch themselves and others from inside
 * and give their memory back there (the address sanitizer judges); threads
 * that watch and unwatch under a hail of signals.
 */
#include "device_test.h"

#include <sched.h>

typedef struct counter {
    _Atomic int calls;
    pthread_t last;
} counter;

static void count(void *context)
{
    counter *mine = context;
    atomic_fetch_add(&mine->calls, 1);
    mine->last = pthread_self();
}

static void test_watch_is_called_once_a_raise_in_the_signaller(void **state)
{
    weft_gate *gate = make_gate(*state, 2);
    counter seen = {0};
    wefti_gate_watcher watcher = {.woken = count, .context = &seen};
    ok(weft_gate_signal(gate, 0, 1, NULL));
    wefti_gate_watch(gate, &watcher);
    assert_int_equal(seen.calls, 0);
    ok(weft_gate_signal(gate, 0, 2, NULL));
    assert_int_equal(seen.calls, 1);
    assert_true(pthread_equal(seen.last, pthread_self()));
    ok(weft_gate_signal(gate, 1, 1, NULL));
    assert_int_equal(seen.calls, 2);
    ok(weft_gate_signal(gate, 0, 1, NULL)); /* older: raises nothing */
    assert_int_equal(seen.calls, 2);
    wefti_gate_fail(gate, WEFT_ERR_ABORTED, "a test");
    assert_int_equal(seen.calls, 3);
    wefti_gate_unwatch(gate, &watcher);
    wefti_gate_fail(gate, WEFT_ERR_ABORTED, "a test");
    assert_int_equal(seen.calls, 3);
    weft_gate_destroy(gate);
}

static void test_watch_equal_watchers_are_called_once_for_all(void **state)
{
    weft_gate *gate = make_gate(*state, 1);
    counter seen = {0}, other = {0};
    wefti_gate_watcher watchers[5];
    uint64_t epoch = 0;
    for (int w = 0; w < 5; w++) {
        watchers[w] = (wefti_gate_watcher){.woken = count,
                                           .context = w == 2 ? &other : &seen};
        wefti_gate_watch(gate, &watchers[w]);
    }
    ok(weft_gate_signal(gate, 0, ++epoch, NULL));
    assert_int_equal(seen.calls, 1);
    assert_int_equal(other.calls, 1);
    for (int w = 0; w < 5; w++) {
        wefti_gate_unwatch(gate, &watchers[w]);
        memset(&watchers[w], 0xee, sizeof(watchers[w]));
        seen.calls = 0;
        ok(weft_gate_signal(gate, 0, ++epoch, NULL));
        assert_int_equal(seen.calls, w < 4);
    }
    weft_gate_destroy(gate);
}

static void test_watch_twice_needs_two_unwatches(void **state)
{
    weft_gate *gate = make_gate(*state, 1);
    counter seen = {0};
    wefti_gate_watcher watcher = {.woken = count, .context = &seen};
    wefti_gate_watch(gate, &watcher);
    wefti_gate_watch(gate, &watcher);
    wefti_gate_unwatch(gate, &watcher);
    ok(weft_gate_signal(gate, 0, 1, NULL));
    assert_int_equal(seen.calls, 1);
    wefti_gate_unwatch(gate, &watcher);
    ok(weft_gate_signal(gate, 0, 2, NULL));
    assert_int_equal(seen.calls, 1);
    weft_gate_destroy(gate);
}

/* Unwatches a victim when called, and gives its memory back. */
typedef struct killer {
    weft_gate *gate;
    wefti_gate_watcher *victim;
    int calls;
} killer;

static void kill_victim(void *context)
{
    killer *mine = context;
    mine->calls++;
    if (mine->victim) {
        wefti_gate_watcher *victim = mine->victim;
        mine->victim = NULL;
        wefti_gate_unwatch(mine->gate, victim);
        memset(victim, 0xee, sizeof(*victim));
        free(victim);
    }
}

/*
 * Three watchers, each of which is once the killer of each other one and of
 * itself; those that stay must all have been called.
 */
static void test_watch_unwatched_from_inside_a_call_is_safe(void **state)
{
    enum { WATCHERS = 3 };
    for (int round = 0; round < WATCHERS * WATCHERS; round++) {
        weft_gate *gate = make_gate(*state, 1);
        wefti_gate_watcher *watchers[WATCHERS];
        killer killers[WATCHERS];
        int attacker = round / WATCHERS, victim = round % WATCHERS;
        for (int w = 0; w < WATCHERS; w++) {
            killers[w] = (killer){gate, NULL, 0};
            watchers[w] = calloc(1, sizeof(*watchers[w]));
            watchers[w]->woken = kill_victim;
            watchers[w]->context = &killers[w];
            wefti_gate_watch(gate, watchers[w]);
        }
        killers[attacker].victim = watchers[victim];
        ok(weft_gate_signal(gate, 0, 1, NULL));
        ok(weft_gate_signal(gate, 0, 2, NULL));
        for (int w = 0; w < WATCHERS; w++) {
            if (w != victim) {
                assert_int_equal(killers[w].calls, 2);
                wefti_gate_unwatch(gate, watchers[w]);
                free(watchers[w]);
            } else {
                assert_true(killers[w].calls <= 1);
            }
        }
        weft_gate_destroy(gate);
    }
}

/* A call that lasts until it is told to end. */
typedef struct long_call {
    weft_gate *gate;
    wefti_gate_watcher watcher;
    _Atomic bool entered, may_leave, left, unwatched;
} long_call;

static void stay(void *context)
{
    long_call *mine = context;
    atomic_store(&mine->entered, true);
    while (!atomic_load(&mine->may_leave)) {
        sched_yield();
    }
    atomic_store(&mine->left, true);
}

static void *signal_once(void *arg)
{
    long_call *mine = arg;
    ok(weft_gate_signal(mine->gate, 0, 1, NULL));
    return NULL;
}

static void *unwatch_once(void *arg)
{
    long_call *mine = arg;
    wefti_gate_unwatch(mine->gate, &mine->watcher);
    assert_true(atomic_load(&mine->left));
    atomic_store(&mine->unwatched, true);
    return NULL;
}

static void test_watch_unwatch_waits_for_a_running_call(void **state)
{
    long_call call = {.gate = make_gate(*state, 1)};
    pthread_t signaller, unwatcher;
    call.watcher = (wefti_gate_watcher){.woken = stay, .context = &call};
    wefti_gate_watch(call.gate, &call.watcher);
    start(&signaller, signal_once, &call);
    while (!atomic_load(&call.entered)) {
        sched_yield();
    }
    start(&unwatcher, unwatch_once, &call);
    while (atomic_load(&call.gate->watched) != 0) {
        sched_yield(); /* until the unwatcher is at work */
    }
    for (int look = 0; look < 1000; look++) {
        assert_false(atomic_load(&call.unwatched));
        sched_yield();
    }
    atomic_store(&call.may_leave, true);
    join(signaller);
    join(unwatcher);
    assert_true(atomic_load(&call.unwatched));
    weft_gate_destroy(call.gate);
}

enum { THREADS = 3, ROUNDS = 3000 };

typedef struct hail {
    weft_gate *gate;
    size_t chunk;
    _Atomic bool *over;
} hail;

static void *signal_until_over(void *arg)
{
    hail *mine = arg;
    for (uint64_t epoch = 1; !atomic_load(mine->over); epoch++) {
        ok(weft_gate_signal(mine->gate, mine->chunk, epoch, NULL));
        sched_yield();
    }
    return NULL;
}

/* Alive only between watch and unwatch. */
typedef struct mayfly {
    wefti_gate_watcher watcher;
    _Atomic bool alive;
} mayfly;

static void check_alive(void *context)
{
    mayfly *mine = context;
    if (!atomic_load(&mine->alive)) {
        abort();
    }
}

static void *watch_and_unwatch(void *arg)
{
    hail *mine = arg;
    for (int round = 0; round < ROUNDS; round++) {
        mayfly *fly = calloc(1, sizeof(*fly));
        fly->watcher.woken = check_alive;
        fly->watcher.context = fly;
        atomic_store(&fly->alive, true);
        wefti_gate_watch(mine->gate, &fly->watcher);
        if (round % 7 == 0) {
            sched_yield();
        }
        wefti_gate_unwatch(mine->gate, &fly->watcher);
        atomic_store(&fly->alive, false);
        free(fly);
    }
    return NULL;
}

static void test_watch_raced_by_signals_is_never_called_after(void **state)
{
    _Atomic bool over = false;
    weft_gate *gate = make_gate(*state, THREADS);
    pthread_t signallers[THREADS], watchers[THREADS];
    hail parts[THREADS];
    for (size_t t = 0; t < THREADS; t++) {
        parts[t] = (hail){gate, t, &over};
        start(&signallers[t], signal_until_over, &parts[t]);
        start(&watchers[t], watch_and_unwatch, &parts[t]);
    }
    for (size_t t = 0; t < THREADS; t++) {
        join(watchers[t]);
    }
    atomic_store(&over, true);
    for (size_t t = 0; t < THREADS; t++) {
        join(signallers[t]);
    }
    weft_gate_destroy(gate);
}

/* A communicator looks at gates for a moment after streams have passed them. */
static void test_watch_outlives_its_gates_owner(void **state)
{
    weft_device *device = *state;
    const size_t objects = atomic_load(&device->objects);
    weft_gate *gate = make_gate(device, 1);
    counter seen = {0};
    wefti_gate_watcher watcher = {.woken = count, .context = &seen};
    wefti_gate_watch(gate, &watcher);
    wefti_gate_watch(gate, &watcher);
    assert_false(wefti_gate_is_held(gate)); /* by no stream */
    weft_gate_destroy(gate);
    assert_int_equal(atomic_load(&device->objects), objects + 1);
    assert_int_equal(wefti_gate_get(gate, 0), 0);
    wefti_gate_unwatch(gate, &watcher);
    assert_int_equal(atomic_load(&device->objects), objects + 1);
    wefti_gate_unwatch(gate, &watcher);
    assert_int_equal(atomic_load(&device->objects), objects);
    assert_int_equal(seen.calls, 0);
}

int main(int argc, char **argv)
{
    choose_kind(argc, argv);
    const struct CMUnitTest tests[] = {
        EACH(test_watch_is_called_once_a_raise_in_the_signaller),
        EACH(test_watch_equal_watchers_are_called_once_for_all),
        EACH(test_watch_twice_needs_two_unwatches),
        EACH(test_watch_unwatched_from_inside_a_call_is_safe),
        EACH(test_watch_unwatch_waits_for_a_running_call),
        EACH(test_watch_raced_by_signals_is_never_called_after),
        EACH(test_watch_outlives_its_gates_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
