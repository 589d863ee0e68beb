/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a stream runs its items in order, each once, whoever advances it, and
 * without a thread where none is needed.
 * Method: items that write down their turn; gates that hold streams up in
 * every place; two streams that can only go on through each other.
 */
#include "device_test.h"

#include <sched.h>

enum { ITEMS = 10000 };

/* Numbers in the order in which calls have run. */
typedef struct journal {
    int turns[ITEMS];
    int count;
} journal;

typedef struct entry {
    journal *book;
    int number;
} entry;

static void write_down(void *arg)
{
    entry *mine = arg;
    mine->book->turns[mine->book->count++] = mine->number;
}

static void test_stream_10000_calls_run_in_order(void **state)
{
    static journal book;
    static entry entries[ITEMS];
    weft_stream *stream = make_stream(*state);
    memset(&book, 0, sizeof(book));
    for (int i = 0; i < ITEMS; i++) {
        entries[i] = (entry){&book, i};
        ok(run_on(stream, write_down, &entries[i]));
    }
    ok(weft_stream_wait(stream));
    assert_int_equal(book.count, ITEMS);
    for (int i = 0; i < ITEMS; i++) {
        assert_int_equal(book.turns[i], i);
    }
    weft_stream_destroy(stream);
}

/* All kinds of items mixed, all queued before the first may run. A CUDA driver
 * keeps a caller waiting whose stream has 1,020, or work of the GPU behind 55
 * calls of the host, and here that would be for ever. */
static void test_stream_mixed_items_run_in_order(void **state)
{
    static journal book;
    static entry entries[ITEMS];
    const int items =
        wefti_device_get_table(*state) == &wefti_device_cuda ? 60 : ITEMS;
    weft_stream *stream = make_stream(*state);
    weft_gate *gate = make_gate(*state, 2);
    memset(&book, 0, sizeof(book));
    ok(weft_gate_wait(gate, 0, 1, stream));
    for (int i = 0; i < items; i++) {
        entries[i] = (entry){&book, i};
        uint64_t epoch = (uint64_t)i + 1;
        if (i % 3 == 0) {
            ok(weft_gate_signal(gate, 1, epoch, stream));
        } else if (i % 3 == 1) {
            ok(weft_gate_wait(gate, 1, epoch - 1, stream));
        } else {
            ok(run_on(stream, write_down, &entries[i]));
        }
    }
    assert_int_equal(book.count, 0);
    assert_int_equal(wefti_gate_get(gate, 1), 0);
    ok(weft_gate_signal(gate, 0, 1, NULL));
    ok(weft_stream_wait(stream));
    assert_int_equal(wefti_gate_get(gate, 1), items - (items - 1) % 3);
    assert_int_equal(book.count, items / 3);
    for (int i = 0; i < book.count; i++) {
        assert_int_equal(book.turns[i], 3 * i + 2);
    }
    weft_stream_destroy(stream);
    weft_gate_destroy(gate);
}

static void test_stream_signals_and_waits_start_no_thread(void **state)
{
    enum { STREAMS = 16, EPOCHS = 200 };
    int before = count_threads();
    weft_stream *streams[STREAMS];
    weft_gate *gate = make_gate(*state, STREAMS + 1);
    for (size_t s = 0; s < STREAMS; s++) {
        streams[s] = make_stream(*state);
        for (uint64_t epoch = 1; epoch <= EPOCHS; epoch++) {
            ok(weft_gate_wait(gate, s, epoch, streams[s]));
            ok(weft_gate_signal(gate, s + 1, epoch, streams[s]));
        }
    }
    for (uint64_t epoch = 1; epoch <= EPOCHS; epoch++) {
        assert_int_equal(wefti_gate_get(gate, STREAMS), epoch - 1);
        ok(weft_gate_signal(gate, 0, epoch, NULL));
        /* Advanced in this thread: over when signal returns. */
        assert_int_equal(wefti_gate_get(gate, STREAMS), epoch);
    }
    assert_int_equal(count_threads(), before);
    for (size_t s = 0; s < STREAMS; s++) {
        weft_stream_destroy(streams[s]);
    }
    weft_gate_destroy(gate);
}

/* A chain of 5000 would overflow the stack if each woke the next inside. Where
 * the device runs it there is no such stack, and signal returns before. */
static void test_stream_long_chain_needs_no_deep_stack(void **state)
{
    enum { STREAMS = 5000, LIKE_GPU_STREAMS = 50 };
    static weft_stream *streams[STREAMS];
    static weft_gate *gates[STREAMS + 1];
    const bool notifies = wefti_device_can(*state, WEFT_CAP_NOTIFIES);
    const size_t count = notifies ? STREAMS : LIKE_GPU_STREAMS;
    gates[0] = make_gate(*state, 1);
    for (size_t s = 0; s < count; s++) {
        streams[s] = make_stream(*state); /* none stands yet */
        gates[s + 1] = make_gate(*state, 1);
    }
    for (size_t s = 0; s < count; s++) {
        ok(weft_gate_wait(gates[s], 0, 1, streams[s]));
        ok(weft_gate_signal(gates[s + 1], 0, 1, streams[s]));
    }
    assert_int_equal(weft_gate_test(gates[count], 0, 1), WEFT_INPROGRESS);
    ok(weft_gate_signal(gates[0], 0, 1, NULL));
    if (notifies) {
        assert_int_equal(wefti_gate_get(gates[count], 0), 1);
    }
    ok(weft_gate_wait(gates[count], 0, 1, NULL));
    for (size_t s = 0; s < count; s++) {
        weft_stream_destroy(streams[s]);
        weft_gate_destroy(gates[s]);
    }
    weft_gate_destroy(gates[count]);
}

static void count_up(void *arg)
{
    ++*(int *)arg;
}

/* with_calls: each turn also runs a call, so both threads take part. */
static void ping_pong(weft_device *device, bool with_calls)
{
    const int turns = rounds_of(device, 10000);
    weft_stream *ping = make_stream(device), *pong = make_stream(device);
    weft_gate *gate = make_gate(device, 2);
    int pings = 0, pongs = 0;
    for (uint64_t turn = 1; turn <= (uint64_t)turns; turn++) {
        ok(weft_gate_signal(gate, 0, turn, ping));
        ok(weft_gate_wait(gate, 1, turn, ping));
        ok(weft_gate_wait(gate, 0, turn, pong));
        if (with_calls) {
            ok(run_on(ping, count_up, &pings));
            ok(run_on(pong, count_up, &pongs));
        }
        ok(weft_gate_signal(gate, 1, turn, pong));
    }
    ok(weft_stream_wait(ping));
    ok(weft_stream_wait(pong));
    assert_int_equal(wefti_gate_get(gate, 0), turns);
    assert_int_equal(wefti_gate_get(gate, 1), turns);
    assert_int_equal(pings, with_calls ? turns : 0);
    assert_int_equal(pongs, with_calls ? turns : 0);
    weft_stream_destroy(ping);
    weft_stream_destroy(pong);
    weft_gate_destroy(gate);
}

static void test_stream_ping_pong_through_gates_ends(void **state)
{
    ping_pong(*state, false);
}

static void test_stream_ping_pong_with_calls_ends(void **state)
{
    ping_pong(*state, true);
}

/* A relay: waits for one gate and signals another, as the consumer of both. */
typedef struct relay {
    weft_gate *in, *out;
    uint64_t epochs;
} relay;

static void *relay_main(void *arg)
{
    relay *mine = arg;
    for (uint64_t epoch = 1; epoch <= mine->epochs; epoch++) {
        ok(weft_gate_wait(mine->in, 0, epoch, NULL));
        ok(weft_gate_signal(mine->out, 0, epoch, NULL));
    }
    return NULL;
}

/* Streams posted to while other threads advance them. */
static void test_stream_posted_while_advanced_loses_nothing(void **state)
{
    const uint64_t epochs = (uint64_t)rounds_of(*state, 5000);
    weft_stream *stream = make_stream(*state);
    relay hop = {make_gate(*state, 1), make_gate(*state, 1), epochs};
    pthread_t thread;
    int calls = 0;
    start(&thread, relay_main, &hop);
    for (uint64_t epoch = 1; epoch <= epochs; epoch++) {
        ok(weft_gate_signal(hop.in, 0, epoch, stream));
        ok(weft_gate_wait(hop.out, 0, epoch, stream));
        if (epoch % 64 == 0) {
            ok(run_on(stream, count_up, &calls));
        }
        if (epoch % 512 == 0) {
            ok(weft_stream_wait(stream));
            assert_int_equal(wefti_gate_get(hop.out, 0), epoch);
        }
    }
    ok(weft_stream_wait(stream));
    assert_int_equal(calls, epochs / 64);
    join(thread);
    weft_stream_destroy(stream);
    weft_gate_destroy(hop.in);
    weft_gate_destroy(hop.out);
}

/* Signals each epoch as soon as it is told that the wait is being posted. */
typedef struct rival {
    weft_gate *gate;
    _Atomic uint64_t posting;
    uint64_t epochs, seed;
} rival;

static void *rival_main(void *arg)
{
    rival *mine = arg;
    for (uint64_t epoch = 1; epoch <= mine->epochs; epoch++) {
        for (int look = 1; atomic_load(&mine->posting) < epoch; look++) {
            if (look % 64 == 0) {
                sched_yield();
            }
        }
        mine->seed = mine->seed * 6364136223846793005u + 1442695040888963407u;
        for (uint64_t delay = mine->seed >> 58; delay > 0; delay--) {
            (void)atomic_load(&mine->posting);
        }
        ok(weft_gate_signal(mine->gate, 0, epoch, NULL));
    }
    return NULL;
}

/* The signal falls at any moment of the wait's coming to a stand. */
static void test_stream_signalled_while_it_stops_goes_on(void **state)
{
    const uint64_t epochs = (uint64_t)rounds_of(*state, 5000);
    weft_stream *stream = make_stream(*state);
    rival other = {make_gate(*state, 1), 0, epochs, 5};
    pthread_t thread;
    print_message("seed 5\n");
    start(&thread, rival_main, &other);
    for (uint64_t epoch = 1; epoch <= epochs; epoch++) {
        atomic_store(&other.posting, epoch);
        ok(weft_gate_wait(other.gate, 0, epoch, stream));
        ok(weft_stream_wait(stream));
    }
    join(thread);
    weft_stream_destroy(stream);
    weft_gate_destroy(other.gate);
}

/* A call that lets another stream go on, and waits for its answer. */
typedef struct asker {
    weft_gate *ask, *answer;
} asker;

static void ask(void *arg)
{
    asker *mine = arg;
    ok(weft_gate_signal(mine->ask, 0, 1, NULL));
    ok(weft_gate_wait(mine->answer, 0, 1, NULL));
}

static void test_stream_call_that_waits_for_another_stream_ends(void **state)
{
    weft_stream *first = make_stream(*state), *second = make_stream(*state);
    asker both = {make_gate(*state, 1), make_gate(*state, 1)};
    ok(weft_gate_wait(both.ask, 0, 1, second));
    ok(weft_gate_signal(both.answer, 0, 1, second));
    ok(weft_stream_call(first, ask, &both));
    ok(weft_stream_wait(first));
    ok(weft_stream_wait(second));
    weft_stream_destroy(first);
    weft_stream_destroy(second);
    weft_gate_destroy(both.ask);
    weft_gate_destroy(both.answer);
}

/* A woken stream must not wait until the waker's own next call is over. */
static void test_stream_woken_before_a_call_runs_before_it(void **state)
{
    weft_stream *first = make_stream(*state), *second = make_stream(*state);
    asker both = {make_gate(*state, 1), make_gate(*state, 1)};
    weft_gate *hold = make_gate(*state, 1), *woken = make_gate(*state, 1);
    int calls = 0;
    ok(weft_gate_wait(woken, 0, 1, second));
    ok(weft_gate_signal(both.answer, 0, 1, second));
    ok(weft_gate_wait(hold, 0, 1, first));
    ok(weft_stream_call(first, count_up, &calls)); /* now in its own thread */
    ok(weft_gate_signal(woken, 0, 1, first));
    ok(weft_stream_call(first, ask, &both));
    ok(weft_gate_signal(hold, 0, 1, NULL));
    ok(weft_stream_wait(first));
    ok(weft_stream_wait(second));
    weft_stream_destroy(first);
    weft_stream_destroy(second);
    weft_gate_destroy(both.ask);
    weft_gate_destroy(both.answer);
    weft_gate_destroy(hold);
    weft_gate_destroy(woken);
}

static void test_stream_destroy_drains_first(void **state)
{
    int calls = 0;
    for (int round = 0; round < 200; round++) {
        weft_stream *stream = make_stream(*state);
        for (int i = 0; i < round % 5; i++) {
            ok(run_on(stream, count_up, &calls));
        }
        weft_stream_destroy(stream);
    }
    assert_int_equal(calls, 200 / 5 * (0 + 1 + 2 + 3 + 4));
}

/* Waits for its own stream; keeps what came of it. */
typedef struct self_wait {
    weft_stream *stream;
    weft_status status;
} self_wait;

static void wait_for_self(void *arg)
{
    self_wait *mine = arg;
    mine->status = weft_stream_wait(mine->stream);
}

static void test_stream_misused_refuses(void **state)
{
    weft_device *device = *state;
    weft_stream *stream;
    refused(weft_stream_create(NULL, 0, &stream), "device");
    refused(weft_stream_create(device, 0, NULL), "stream_out");
    stream = make_stream(device);
    refused(weft_stream_call(NULL, count_up, NULL), "stream");
    refused(weft_stream_call(stream, NULL, NULL), "call");
    refused(weft_stream_wait(NULL), "stream");
    weft_stream_destroy(stream);
    weft_stream_destroy(NULL);
}

static void test_stream_waited_for_by_its_own_call_refuses(void **state)
{
    weft_stream *stream = make_stream(*state);
    self_wait mine = {stream, WEFT_OK};
    ok(weft_stream_call(stream, wait_for_self, &mine));
    ok(weft_stream_wait(stream));
    assert_int_equal(mine.status, WEFT_ERR_INVALID);
    weft_stream_destroy(stream);
}

static void test_stream_without_host_calls_says_so(void **state)
{
    weft_stream *stream = make_stream(*state);
    int calls = 0;
    assert_int_equal(weft_stream_call(stream, count_up, &calls),
                     WEFT_ERR_UNSUPPORTED);
    ok(weft_stream_wait(stream));
    assert_int_equal(calls, 0);
    weft_stream_destroy(stream);
}

int main(int argc, char **argv)
{
    choose_kind(argc, argv);
    const struct CMUnitTest tests[] = {
        EACH(test_stream_10000_calls_run_in_order),
        EACH(test_stream_mixed_items_run_in_order),
        HOST(test_stream_signals_and_waits_start_no_thread),
        EACH(test_stream_long_chain_needs_no_deep_stack),
        EACH(test_stream_ping_pong_through_gates_ends),
        EACH(test_stream_ping_pong_with_calls_ends),
        EACH(test_stream_posted_while_advanced_loses_nothing),
        EACH(test_stream_signalled_while_it_stops_goes_on),
        HOST(test_stream_call_that_waits_for_another_stream_ends),
        HOST(test_stream_woken_before_a_call_runs_before_it),
        EACH(test_stream_destroy_drains_first),
        EACH(test_stream_misused_refuses),
        HOST(test_stream_waited_for_by_its_own_call_refuses),
        LIKE_GPU(test_stream_without_host_calls_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
