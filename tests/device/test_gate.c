/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a gate's epochs only rise, release everyone who waits for them, carry
 * the signaller's writes with them, and a failed gate lets nobody hang.
 * Method: waits before and after the signal, from host and stream; seeded
 * crowds of signallers and waiters; the values behind the gate are plain
 * memory, so that the thread sanitizer judges the ordering.
 */
#include "device_test.h"

#include <sched.h>

static void test_gate_signalled_before_wait_passes(void **state)
{
    weft_gate *gate = make_gate(*state, 3);
    assert_int_equal(wefti_gate_get_chunks(gate), 3);
    assert_ptr_equal(wefti_gate_get_device(gate), *state);
    assert_int_equal(weft_gate_test(gate, 1, 1), WEFT_INPROGRESS);
    ok(weft_gate_signal(gate, 1, 2, NULL));
    ok(weft_gate_test(gate, 1, 1));
    ok(weft_gate_test(gate, 1, 2));
    ok(weft_gate_wait(gate, 1, 2, NULL));
    assert_int_equal(weft_gate_test(gate, 1, 3), WEFT_INPROGRESS);
    assert_int_equal(weft_gate_test(gate, 0, 1), WEFT_INPROGRESS);
    assert_int_equal(weft_gate_test(gate, 2, 1), WEFT_INPROGRESS);
    weft_gate_destroy(gate);
}

static void test_gate_older_epoch_changes_nothing(void **state)
{
    weft_gate *gate = make_gate(*state, 1);
    ok(weft_gate_signal(gate, 0, 7, NULL));
    ok(weft_gate_signal(gate, 0, 3, NULL));
    assert_int_equal(wefti_gate_get(gate, 0), 7);
    ok(weft_gate_signal(gate, 0, WEFT_EPOCH_MAX, NULL));
    ok(weft_gate_signal(gate, 0, 8, NULL));
    assert_true(wefti_gate_get(gate, 0) == WEFT_EPOCH_MAX);
    ok(weft_gate_wait(gate, 0, WEFT_EPOCH_MAX, NULL));
    weft_gate_destroy(gate);
}

/* A thread that waits for one epoch. */
typedef struct waiter {
    weft_gate *gate;
    size_t chunk;
    weft_status status;
} waiter;

static void *wait_once(void *arg)
{
    waiter *mine = arg;
    mine->status = weft_gate_wait(mine->gate, mine->chunk, 1, NULL);
    return NULL;
}

/* Where nobody is notified nobody sleeps: those that wait look. */
static void until_asleep(const weft_gate *gate, uint32_t sleepers)
{
    if (!wefti_device_can(gate->device, WEFT_CAP_NOTIFIES)) {
        sched_yield();
        assert_int_equal(wefti_doorbell_armed(&gate->bell), 0);
        return;
    }
    while (wefti_doorbell_armed(&gate->bell) < sleepers) {
        sched_yield();
    }
}

static void test_gate_signal_wakes_all_waiters(void **state)
{
    enum { WAITERS = 4 };
    const bool notifies = wefti_device_can(*state, WEFT_CAP_NOTIFIES);
    for (int round = 0; round < 50; round++) {
        weft_gate *gate = make_gate(*state, WAITERS);
        pthread_t threads[WAITERS];
        waiter waiters[WAITERS];
        for (size_t w = 0; w < WAITERS; w++) {
            waiters[w] = (waiter){gate, w, WEFT_INPROGRESS};
            start(&threads[w], wait_once, &waiters[w]);
        }
        until_asleep(gate, WAITERS);
        /* Without this their bounded sleep would wake them, too, but late. */
        uint32_t rung = atomic_load(&gate->bell.state);
        ok(weft_gate_signal(gate, 0, 1, NULL));
        assert_int_equal(atomic_load(&gate->bell.state) != rung, notifies);
        for (size_t w = 1; w < WAITERS; w++) {
            ok(weft_gate_signal(gate, w, 1, NULL));
        }
        for (size_t w = 0; w < WAITERS; w++) {
            join(threads[w]);
            ok(waiters[w].status);
        }
        weft_gate_destroy(gate);
    }
}

enum { CROWD = 4, CHUNKS = 3, EPOCHS = 1500 };

typedef struct crowd {
    weft_gate *gate;
    size_t chunk;      /* of this signaller */
    uint64_t *written; /* [CHUNKS][EPOCHS + 1], plain memory */
} crowd;

static void *signal_all(void *arg)
{
    crowd *mine = arg;
    for (uint64_t epoch = 1; epoch <= EPOCHS; epoch++) {
        mine->written[mine->chunk * (EPOCHS + 1) + epoch] = epoch * 3;
        ok(weft_gate_signal(mine->gate, mine->chunk, epoch, NULL));
    }
    return NULL;
}

static void *wait_all(void *arg)
{
    crowd *mine = arg;
    for (uint64_t epoch = 1; epoch <= EPOCHS; epoch++) {
        for (size_t chunk = 0; chunk < CHUNKS; chunk++) {
            ok(weft_gate_wait(mine->gate, chunk, epoch, NULL));
            assert_int_equal(mine->written[chunk * (EPOCHS + 1) + epoch],
                             epoch * 3);
        }
    }
    return NULL;
}

static void test_gate_crowd_sees_what_was_written_before(void **state)
{
    static uint64_t written[CHUNKS * (EPOCHS + 1)];
    weft_gate *gate = make_gate(*state, CHUNKS);
    pthread_t signallers[CHUNKS], waiters[CROWD];
    crowd parts[CHUNKS];
    memset(written, 0xee, sizeof(written));
    for (size_t c = 0; c < CHUNKS; c++) {
        parts[c] = (crowd){gate, c, written};
    }
    for (size_t w = 0; w < CROWD; w++) {
        start(&waiters[w], wait_all, &parts[0]);
    }
    for (size_t c = 0; c < CHUNKS; c++) {
        start(&signallers[c], signal_all, &parts[c]);
    }
    for (size_t c = 0; c < CHUNKS; c++) {
        join(signallers[c]);
    }
    for (size_t w = 0; w < CROWD; w++) {
        join(waiters[w]);
    }
    weft_gate_destroy(gate);
}

/* Epochs in seeded disorder. */
typedef struct shuffler {
    weft_gate *gate;
    uint64_t seed, most;
    _Atomic bool *over;
} shuffler;

static uint64_t next_random(uint64_t *seed)
{
    /* Knuth's MMIX generator, high bits */
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static void *signal_shuffled(void *arg)
{
    shuffler *mine = arg;
    for (int i = 0; i < 20000; i++) {
        uint64_t epoch = 1 + next_random(&mine->seed) % 1000000;
        mine->most = epoch > mine->most ? epoch : mine->most;
        ok(weft_gate_signal(mine->gate, 0, epoch, NULL));
    }
    return NULL;
}

static void *look_for_falls(void *arg)
{
    shuffler *mine = arg;
    uint64_t before = 0;
    while (!atomic_load(mine->over)) {
        uint64_t now = wefti_gate_get(mine->gate, 0);
        assert_true(now >= before);
        before = now;
        sched_yield();
    }
    return NULL;
}

static void test_gate_epochs_never_fall(void **state)
{
    _Atomic bool over = false;
    pthread_t looker, threads[CROWD];
    shuffler parts[CROWD];
    weft_gate *gate = make_gate(*state, 1);
    uint64_t most = 0;
    print_message("seeds 77 .. %d\n", 77 + CROWD - 1);
    for (uint64_t t = 0; t < CROWD; t++) {
        parts[t] = (shuffler){gate, 77 + t, 0, &over};
        start(&threads[t], signal_shuffled, &parts[t]);
    }
    start(&looker, look_for_falls, &(shuffler){gate, 0, 0, &over});
    for (size_t t = 0; t < CROWD; t++) {
        join(threads[t]);
        most = parts[t].most > most ? parts[t].most : most;
    }
    atomic_store(&over, true);
    join(looker);
    assert_int_equal(wefti_gate_get(gate, 0), most);
    weft_gate_destroy(gate);
}

static void *signal_once(void *arg)
{
    ok(weft_gate_signal(arg, 0, 1, NULL));
    return NULL;
}

/* The signaller may still be inside its call when the waiter destroys. */
static void test_gate_destroyed_right_after_wait_is_safe(void **state)
{
    for (int round = 0; round < 1000; round++) {
        weft_gate *gate = make_gate(*state, 1);
        pthread_t thread;
        start(&thread, signal_once, gate);
        ok(weft_gate_wait(gate, 0, 1, NULL));
        weft_gate_destroy(gate);
        weft_gate *next = make_gate(*state, 2);
        assert_int_equal(weft_gate_test(next, 0, 1), WEFT_INPROGRESS);
        weft_gate_destroy(next);
        join(thread);
    }
}

static void test_gate_failed_releases_host_waiters(void **state)
{
    enum { WAITERS = 3 };
    weft_gate *gate = make_gate(*state, WAITERS);
    pthread_t threads[WAITERS];
    waiter waiters[WAITERS];
    for (size_t w = 0; w < WAITERS; w++) {
        waiters[w] = (waiter){gate, w, WEFT_OK};
        start(&threads[w], wait_once, &waiters[w]);
    }
    until_asleep(gate, 1);
    wefti_gate_fail(gate, WEFT_ERR_PEER, "op #7: rank 3 has died");
    wefti_gate_fail(gate, WEFT_ERR_TIMEOUT, "later"); /* the first stays */
    for (size_t w = 0; w < WAITERS; w++) {
        join(threads[w]);
        assert_int_equal(waiters[w].status, WEFT_ERR_PEER);
    }
    assert_int_equal(weft_gate_wait(gate, 0, 1000, NULL), WEFT_ERR_PEER);
    assert_int_equal(weft_gate_test(gate, 2, 1), WEFT_ERR_PEER);
    assert_string_equal(weft_error_text(), "op #7: rank 3 has died");
    ok(weft_gate_signal(gate, 0, 5, NULL)); /* changes nothing */
    assert_int_equal(weft_gate_test(gate, 0, 1), WEFT_ERR_PEER);
    weft_gate_destroy(gate);
}

static void count_up(void *arg)
{
    ++*(int *)arg;
}

static void test_gate_failed_lets_streams_drain_with_its_error(void **state)
{
    weft_gate *peer = make_gate(*state, 2), *late = make_gate(*state, 1);
    weft_gate *after = make_gate(*state, 1);
    weft_stream *stream = make_stream(*state);
    int calls = 0;
    ok(weft_gate_wait(peer, 1, 4, stream));
    ok(run_on(stream, count_up, &calls));
    ok(weft_gate_wait(late, 0, 1, stream));
    ok(weft_gate_signal(after, 0, 1, stream));
    wefti_gate_fail(peer, WEFT_ERR_PEER, "op #7: rank 3 has died");
    wefti_gate_fail(late, WEFT_ERR_ABORTED, "a test");
    ok(weft_gate_wait(after, 0, 1, NULL));
    assert_int_equal(weft_stream_wait(stream), WEFT_ERR_PEER);
    assert_string_equal(weft_error_text(), "op #7: rank 3 has died");
    assert_int_equal(calls, 1);
    assert_int_equal(weft_stream_wait(stream), WEFT_ERR_PEER);
    weft_stream_destroy(stream);
    weft_gate_destroy(peer);
    weft_gate_destroy(late);
    weft_gate_destroy(after);
}

static void test_gate_made_anew_has_forgotten_the_failure(void **state)
{
    weft_gate *gate = make_gate(*state, 1);
    wefti_gate_fail(gate, WEFT_ERR_ABORTED, "a test");
    weft_gate_destroy(gate);
    gate = make_gate(*state, 1);
    assert_int_equal(weft_gate_test(gate, 0, 1), WEFT_INPROGRESS);
    ok(weft_gate_signal(gate, 0, 1, NULL));
    ok(weft_gate_wait(gate, 0, 1, NULL));
    weft_gate_destroy(gate);
}

/* As two processes have them in memory that they share. */
static void test_gates_at_one_place_signal_each_other_fail_apart(void **state)
{
    weft_device *device = *state;
    weft_gate *one, *other;
    void *room = NULL;
    weft_stream *stream = make_stream(device);
    ok(weft_device_alloc_kind(device, WEFT_MEMORY_PINNED, 64, &room));
    _Atomic uint64_t *words = room;
    atomic_store(&words[0], 0);
    atomic_store(&words[1], 0);
    const size_t objects = atomic_load(&device->objects);
    ok(wefti_gate_create_at(device, words, 2, &one));
    ok(wefti_gate_create_at(device, words, 2, &other));
    assert_false(wefti_gate_is_held(one));
    ok(weft_gate_wait(one, 1, 3, stream));
    ok(weft_gate_signal(other, 0, 7, stream));
    assert_int_equal(weft_gate_test(other, 1, 3), WEFT_INPROGRESS);
    assert_int_equal(atomic_load(&words[0]), 0);
    atomic_store(&words[1], 3); /* nobody is told */
    ok(weft_gate_signal(one, 1, 4, NULL));
    ok(weft_stream_wait(stream));
    assert_int_equal(atomic_load(&words[0]), 7);
    ok(weft_gate_wait(one, 0, 7, NULL));
    wefti_gate_fail(one, WEFT_ERR_PEER, "rank 3 has died");
    assert_int_equal(weft_gate_test(one, 0, 9), WEFT_ERR_PEER);
    ok(weft_gate_test(other, 0, 9)); /* raised, and no error of its own */
    weft_gate_destroy(one);
    weft_gate_destroy(other);
    while (atomic_load(&device->objects) != objects) {
        (void)!weft_stream_wait(stream); /* it lets go of both */
    }
    weft_stream_destroy(stream);
    weft_device_free(device, room);
}

static void test_gate_misused_refuses(void **state)
{
    weft_device *device = *state, *other;
    weft_gate *gate;
    refused(weft_gate_create(NULL, 1, &gate), "device");
    refused(weft_gate_create(device, 1, NULL), "gate_out");
    refused(weft_gate_create(device, 0, &gate), "chunks 0");
    assert_int_equal(weft_gate_create(device, SIZE_MAX / 2, &gate),
                     WEFT_ERR_NO_MEMORY);
    gate = make_gate(device, 2);
    refused(weft_gate_signal(NULL, 0, 1, NULL), "gate");
    refused(weft_gate_signal(gate, 2, 1, NULL), "chunk 2: the gate has 2");
    refused(weft_gate_signal(gate, 0, 0, NULL), "epoch 0");
    refused(weft_gate_wait(gate, 9, 1, NULL), "chunk 9");
    refused(weft_gate_wait(gate, 0, 0, NULL), "epoch 0");
    refused(weft_gate_signal(gate, 0, WEFT_EPOCH_MAX + 1, NULL),
            "epoch 4611686018427387904: allowed is 1 to 4611686018427387903");
    refused(weft_gate_test(NULL, 0, 1), "gate");
    bool host = wefti_device_get_table(device) == &wefti_device_host;
    ok(weft_device_open(host ? "shadow" : "host", 0, &other));
    weft_stream *foreign = make_stream(other);
    refused(weft_gate_wait(gate, 0, 1, foreign), "the gate's is");
    weft_stream_destroy(foreign);
    weft_device_close(other);
    weft_gate_destroy(gate);
    weft_gate_destroy(NULL);
}

int main(int argc, char **argv)
{
    choose_kind(argc, argv);
    const struct CMUnitTest tests[] = {
        EACH(test_gate_signalled_before_wait_passes),
        EACH(test_gate_older_epoch_changes_nothing),
        EACH(test_gate_signal_wakes_all_waiters),
        EACH(test_gate_crowd_sees_what_was_written_before),
        EACH(test_gate_epochs_never_fall),
        EACH(test_gate_destroyed_right_after_wait_is_safe),
        EACH(test_gate_failed_releases_host_waiters),
        EACH(test_gate_failed_lets_streams_drain_with_its_error),
        EACH(test_gate_made_anew_has_forgotten_the_failure),
        EACH(test_gates_at_one_place_signal_each_other_fail_apart),
        EACH(test_gate_misused_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
