/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what a device does with gates by itself: waits compare cyclically, what
 * is queued keeps a gate alive, batches are queued whole or not at all, streams
 * of another ordinal are refused, and a failed gate lets every stream drain
 * though signals from before it still come.
 * Method: words set by hand near the ends of their range; gates that hold
 * streams up in a chosen order; the failures under many seeds.
 */
#include "device/holds.h"
#include "shadow_test.h"

typedef struct comparison {
    uint64_t word, epoch;
    bool over;
} comparison;

static const comparison comparisons[] = {
    {0, 1, false},
    {5, 3, true},
    {5, 5, true},
    {WEFT_EPOCH_MAX - 1, WEFT_EPOCH_MAX, false},
    {WEFT_EPOCH_MAX, WEFT_EPOCH_MAX, true},
    {WEFTI_GATE_FAILED, 1, true},
    {WEFTI_GATE_FAILED, WEFT_EPOCH_MAX, true},
    {(UINT64_C(1) << 63) + 5, 1, false}, /* behind, on the circle */
    {UINT64_MAX, 1, false},
    {3, UINT64_MAX, true}, /* ahead */
    {UINT64_MAX - 1, UINT64_MAX, false},
};

/* The table is asked itself: such epochs are refused before it. */
static void post_wait(weft_stream *stream, weft_gate *gate, uint64_t epoch)
{
    const wefti_mark mark = {gate, 0, epoch, true};
    ok(wefti_device_shadow.stream_mark(stream, &mark, 1));
}

static void test_shadow_waits_compare_on_the_circle(void **state)
{
    weft_device *device = *state;
    for (size_t i = 0; i < sizeof(comparisons) / sizeof(*comparisons); i++) {
        const comparison *one = &comparisons[i];
        weft_stream *stream = make_stream(device);
        weft_gate *gate = make_gate(device, 1);
        weft_event *passed;
        ok(weft_event_create(device, &passed));
        atomic_store(&gate->words[0], one->word);
        post_wait(stream, gate, one->epoch);
        ok(weft_event_post(passed, stream));
        if (one->over) {
            ok(weft_event_wait(passed, NULL));
        }
        let_run(device);
        print_message("word %llx, epoch %llx\n", (unsigned long long)one->word,
                      (unsigned long long)one->epoch);
        assert_int_equal(weft_event_test(passed),
                         one->over ? WEFT_OK : WEFT_INPROGRESS);
        atomic_store(&gate->words[0], one->epoch);
        weft_stream_destroy(stream);
        weft_event_destroy(passed);
        weft_gate_destroy(gate);
    }
}

static void test_shadow_gates_live_until_the_stream_has_passed(void **state)
{
    weft_device *device = *state;
    weft_stream *stream = make_stream(device);
    weft_gate *hold = make_gate(device, 1), *other = make_gate(device, 2);
    const size_t objects = atomic_load(&device->objects);
    wefti_stream_stand stand;
    assert_false(wefti_stream_get_stand(device, stream, &stand));
    ok(weft_gate_signal(other, 0, 1, stream));
    ok(weft_gate_wait(hold, 0, 4, stream));
    ok(weft_gate_wait(other, 0, 1, stream));
    ok(weft_gate_signal(other, 1, 1, stream));
    weft_gate_destroy(other); /* what is queued still needs it */
    assert_true(wefti_stream_get_stand(device, stream, &stand));
    while (stand.gate != hold) { /* until the first signal has been */
        assert_true(wefti_stream_get_stand(device, stream, &stand));
    }
    assert_int_equal(stand.epoch, 4);
    let_run(device);
    assert_int_equal(atomic_load(&device->objects), objects);
    ok(weft_gate_signal(hold, 0, 4, NULL));
    ok(weft_stream_wait(stream));
    assert_int_equal(atomic_load(&device->objects), objects - 1);
    assert_false(wefti_stream_get_stand(device, stream, &stand));
    ok(weft_gate_wait(hold, 0, 5, stream));
    assert_true(wefti_stream_get_stand(device, stream, &stand));
    ok(weft_gate_signal(hold, 0, 5, NULL));
    weft_stream_destroy(stream);
    /* Who saw it stand may ask once more. */
    assert_false(wefti_stream_get_stand(device, stream, &stand));
    weft_gate_destroy(hold);
}

static void test_shadow_batches_are_queued_whole_or_not_at_all(void **state)
{
    weft_device *device = *state, *far;
    ok(weft_device_open("shadow", 1, &far));
    weft_stream *stream = make_stream(device);
    weft_gate *gate = make_gate(device, 3), *wrong = make_gate(far, 1);
    const wefti_mark bad[] = {{gate, 0, 1, false}, {wrong, 0, 1, false}};
    const wefti_mark good[] = {
        {gate, 0, 2, false}, {gate, 0, 2, true}, {gate, 1, 3, false}};
    refused(wefti_stream_mark(stream, bad, 2), "shadow device 1");
    ok(weft_stream_wait(stream));
    assert_int_equal(wefti_gate_get(gate, 0), 0);
    ok(wefti_stream_mark(stream, good, 3));
    ok(weft_stream_wait(stream));
    assert_int_equal(wefti_gate_get(gate, 0), 2);
    assert_int_equal(wefti_gate_get(gate, 1), 3);
    weft_stream_destroy(stream);
    weft_gate_destroy(gate);
    weft_gate_destroy(wrong);
    weft_device_close(far);
}

static void test_shadow_streams_of_another_ordinal_are_refused(void **state)
{
    weft_device *device = *state, *far, *again;
    weft_event *event;
    char bytes[2] = "ab";
    ok(weft_device_open("shadow", 1, &far));
    ok(weft_device_open("shadow", 0, &again));
    weft_gate *gate = make_gate(device, 1);
    weft_stream *stream = make_stream(far), *same = make_stream(again);
    ok(weft_event_create(device, &event));
    refused(weft_gate_signal(gate, 0, 1, stream), "stream of shadow device 1");
    refused(weft_gate_wait(gate, 0, 1, stream), "stream of shadow device 1");
    refused(weft_event_post(event, stream), "stream of shadow device 1");
    refused(weft_event_wait(event, stream), "stream of shadow device 1");
    refused(weft_device_copy(device, bytes, bytes + 1, 1, stream),
            "stream of shadow device 1");
    /* What is opened twice is the same device. */
    ok(weft_gate_signal(gate, 0, 1, same));
    ok(weft_event_post(event, same));
    ok(weft_device_copy(device, bytes, bytes + 1, 1, same));
    ok(weft_gate_wait(gate, 0, 1, NULL));
    ok(weft_stream_wait(same));
    assert_int_equal(bytes[0], 'b');
    weft_event_destroy(event);
    weft_stream_destroy(stream);
    weft_stream_destroy(same);
    weft_gate_destroy(gate);
    close_empty(far);
    close_empty(again);
}

/* A signal that was queued before its gate failed, and a stream behind it. */
typedef struct late_signal {
    weft_device *device, *again; /* handles of the same */
    weft_gate *hold;             /* 0: of the signal, 1: of the wait */
    weft_gate *gate, *after;
    weft_stream *signals, *waits;
    weft_event *signalled;
} late_signal;

static late_signal queue_late_signal(int seed)
{
    late_signal it = {.device = open_seeded(0, seed)};
    ok(weft_device_open("shadow", 0, &it.again));
    it.hold = make_gate(it.device, 2);
    it.gate = make_gate(it.device, 1);
    it.after = make_gate(it.device, 1);
    it.signals = make_stream(it.device);
    it.waits = make_stream(seed % 2 ? it.device : it.again);
    ok(weft_event_create(it.device, &it.signalled));
    ok(weft_gate_wait(it.hold, 0, 1, it.signals));
    ok(weft_gate_signal(it.gate, 0, 5, it.signals));
    ok(weft_event_post(it.signalled, it.signals));
    ok(weft_gate_wait(it.hold, 1, 1, it.waits));
    ok(weft_gate_wait(it.gate, 0, 9, it.waits));
    ok(weft_gate_signal(it.after, 0, 1, it.waits));
    return it;
}

static void finish_late_signal(late_signal *it)
{
    assert_int_equal(weft_stream_wait(it->waits), WEFT_ERR_PEER);
    assert_string_equal(weft_error_text(), "op #7: rank 3 has died");
    ok(weft_stream_wait(it->signals));
    weft_stream_destroy(it->signals);
    weft_stream_destroy(it->waits);
    weft_event_destroy(it->signalled);
    weft_gate_destroy(it->hold);
    weft_gate_destroy(it->gate);
    weft_gate_destroy(it->after);
    close_empty(it->again);
    close_empty(it->device);
}

static void
test_shadow_failure_overwritten_by_a_signal_is_told_again(void **state)
{
    (void)state;
    for (int seed = 1; seed <= SEEDS; seed++) {
        late_signal it = queue_late_signal(seed);
        wefti_gate_fail(it.gate, WEFT_ERR_PEER, "op #7: rank 3 has died");
        ok(weft_gate_signal(it.hold, 0, 1, NULL));
        while (wefti_gate_get(it.gate, 0) != 5) {
            sched_yield();
        }
        ok(weft_gate_signal(it.hold, 1, 1, NULL));
        if (seed % 3 == 0) { /* who waits for what comes behind helps, too */
            ok(weft_gate_wait(it.after, 0, 1, NULL));
        }
        finish_late_signal(&it);
    }
}

static void test_shadow_failure_at_any_time_lets_streams_drain(void **state)
{
    (void)state;
    for (int seed = 1; seed <= SEEDS; seed++) {
        late_signal it = queue_late_signal(seed);
        const bool first = seed % 4 < 2;
        if (first) {
            wefti_gate_fail(it.gate, WEFT_ERR_PEER, "op #7: rank 3 has died");
        }
        ok(weft_gate_signal(it.hold, 1, 1, NULL));
        ok(weft_gate_signal(it.hold, 0, 1, NULL));
        if (!first) {
            wefti_gate_fail(it.gate, WEFT_ERR_PEER, "op #7: rank 3 has died");
        }
        finish_late_signal(&it);
    }
}

/* A program need not wait: it may look now and then, at what comes behind. */
static void test_shadow_failure_lets_streams_drain_for_who_looks(void **state)
{
    (void)state;
    for (int seed = 1; seed <= SEEDS; seed++) {
        late_signal it = queue_late_signal(seed);
        ok(weft_event_post(it.signalled, it.waits));
        wefti_gate_fail(it.gate, WEFT_ERR_PEER, "op #7: rank 3 has died");
        ok(weft_gate_signal(it.hold, 0, 1, NULL));
        while (wefti_gate_get(it.gate, 0) != 5) {
            sched_yield();
        }
        ok(weft_gate_signal(it.hold, 1, 1, NULL));
        weft_status status = WEFT_INPROGRESS;
        int64_t time_ns;
        while (status == WEFT_INPROGRESS) {
            sched_yield();
            status = seed % 3 == 0 ? weft_event_test(it.signalled)
                     : seed % 3 == 1
                         ? weft_gate_test(it.after, 0, 1)
                         : weft_event_get_time(it.signalled, &time_ns);
        }
        ok(status);
        finish_late_signal(&it);
    }
}

/* All that stood at the failed gate has gone on when the next wait comes. */
static void test_shadow_failure_is_told_to_waits_queued_long_after(void **state)
{
    (void)state;
    for (int seed = 1; seed <= SEEDS; seed++) {
        late_signal it = queue_late_signal(seed);
        wefti_gate_fail(it.gate, WEFT_ERR_PEER, "op #7: rank 3 has died");
        ok(weft_gate_signal(it.hold, 1, 1, NULL));
        assert_int_equal(weft_stream_wait(it.waits), WEFT_ERR_PEER);
        ok(weft_gate_wait(it.after, 0, 1, NULL));
        ok(weft_gate_signal(it.hold, 0, 1, NULL));
        ok(weft_stream_wait(it.signals));
        assert_int_equal(wefti_gate_get(it.gate, 0), 5);
        weft_stream *late = make_stream(it.device);
        wefti_device_tend(it.device);
        assert_false(wefti_holds_may_stand());
        ok(weft_gate_wait(it.gate, 0, 8, late));
        ok(weft_gate_signal(it.after, 0, 2, late));
        assert_true(wefti_holds_may_stand());
        assert_int_equal(weft_stream_wait(late), WEFT_ERR_PEER);
        ok(weft_gate_wait(it.after, 0, 2, NULL));
        weft_stream_destroy(late);
        finish_late_signal(&it);
        assert_false(wefti_holds_may_stand());
    }
}

/* Streams, gates that fail or are destroyed while queued, and handles that come
 * and go: one thread's, beside others of the same device. */
typedef struct stirrer {
    pthread_t thread;
    unsigned seed;
    int wrong;
} stirrer;

static unsigned draw(stirrer *it, unsigned most)
{
    it->seed = it->seed * 1103515245u + 12345u;
    return (it->seed >> 16) % most;
}

/* Whether the stream's error is that of the gates, some of which failed. */
static bool is_told(weft_status status, int failed)
{
    return failed ? status == WEFT_OK || status == WEFT_ERR_PEER
                  : status == WEFT_OK;
}

static int stir(stirrer *it, weft_device *device)
{
    enum { GATES = 4 };
    weft_gate *hold, *gates[GATES];
    weft_stream *ahead, *behind;
    int wrong = weft_gate_create(device, 1, &hold) != WEFT_OK ||
                weft_stream_create(device, 0, &ahead) != WEFT_OK ||
                weft_stream_create(device, 0, &behind) != WEFT_OK;
    wrong |= weft_gate_wait(hold, 0, 1, ahead) != WEFT_OK;
    int failed = 0;
    for (int g = 0; g < GATES; g++) {
        const uint64_t epoch = 1 + draw(it, 3);
        wrong |= weft_gate_create(device, 1, &gates[g]) != WEFT_OK ||
                 weft_gate_signal(gates[g], 0, 3, ahead) != WEFT_OK ||
                 weft_gate_wait(gates[g], 0, epoch, behind) != WEFT_OK;
    }
    for (int g = 0; g < GATES; g++) {
        if (draw(it, 3) == 0) {
            wefti_gate_fail(gates[g], WEFT_ERR_PEER, "rank 3 has died");
            wrong |= weft_gate_wait(gates[g], 0, 1 + draw(it, 9), behind) < 0;
            failed++;
        }
        if (draw(it, 2) == 0) {
            weft_gate_destroy(gates[g]); /* the streams still hold it */
            gates[g] = NULL;
        }
    }
    wrong |= weft_gate_signal(hold, 0, 1, NULL) != WEFT_OK;
    if (draw(it, 2) == 0) {
        wrong |= !is_told(weft_stream_wait(behind), failed);
    }
    wrong |= weft_stream_wait(ahead) != WEFT_OK;
    weft_stream_destroy(behind);
    weft_stream_destroy(ahead);
    for (int g = 0; g < GATES; g++) {
        weft_gate_destroy(gates[g]);
    }
    weft_gate_destroy(hold);
    return wrong;
}

static void *stir_main(void *arg)
{
    stirrer *it = arg;
    for (int round = 0; round < 20; round++) {
        weft_device *device;
        if (weft_device_open("shadow", 0, &device) != WEFT_OK) {
            it->wrong++;
            break;
        }
        it->wrong += stir(it, device);
        weft_device_close(device);
    }
    return NULL;
}

static void test_shadow_gates_fail_and_go_beside_other_threads(void **state)
{
    enum { THREADS = 4 };
    static stirrer stirrers[THREADS];
    (void)state;
    for (int seed = 1; seed <= 5; seed++) {
        print_message("seed %d\n", seed);
        for (int t = 0; t < THREADS; t++) {
            stirrers[t] =
                (stirrer){.seed = (unsigned)(seed * THREADS + t), .wrong = 0};
            start(&stirrers[t].thread, stir_main, &stirrers[t]);
        }
        for (int t = 0; t < THREADS; t++) {
            join(stirrers[t].thread);
            assert_int_equal(stirrers[t].wrong, 0);
        }
    }
    weft_device *device = open_seeded(0, 1);
    wefti_device_tend(device);
    assert_false(wefti_holds_may_stand());
    close_empty(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHADOW(test_shadow_waits_compare_on_the_circle),
        SHADOW(test_shadow_gates_live_until_the_stream_has_passed),
        SHADOW(test_shadow_batches_are_queued_whole_or_not_at_all),
        SHADOW(test_shadow_streams_of_another_ordinal_are_refused),
        ALONE(test_shadow_failure_overwritten_by_a_signal_is_told_again),
        ALONE(test_shadow_failure_at_any_time_lets_streams_drain),
        ALONE(test_shadow_failure_lets_streams_drain_for_who_looks),
        ALONE(test_shadow_failure_is_told_to_waits_queued_long_after),
        ALONE(test_shadow_gates_fail_and_go_beside_other_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
