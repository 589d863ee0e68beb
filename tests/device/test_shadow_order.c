/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the shadow device is as unkind as it may be, and no more: copies read
 * late and in parts, streams run in another order with each seed, nobody is
 * notified; but each stream keeps its order, events order two streams, and a
 * device that waits costs next to nothing.
 * Method: the same work under many seeds; what is not guaranteed must have been
 * seen at least once in all of them, what is guaranteed always.
 */
#include "shadow_test.h"

#include <time.h>

enum { BYTES = 4096, ROUNDS = 10 };

/* A buffer that another stream overwrites after, or while, it is copied. */
typedef struct race {
    weft_device *device;
    weft_stream *copies, *writes;
    void *source, *copy, *news;
    int old_seen, new_seen, torn_seen;
} race;

static void fill(weft_device *device, void *memory, char value)
{
    static char bytes[BYTES];
    memset(bytes, value, sizeof(bytes));
    ok(weft_device_copy(device, memory, bytes, sizeof(bytes), NULL));
}

static void judge(race *it)
{
    static char bytes[BYTES];
    int news = 0;
    ok(weft_device_copy(it->device, bytes, it->copy, BYTES, NULL));
    for (int i = 0; i < BYTES; i++) {
        assert_true(bytes[i] == 'o' || bytes[i] == 'n');
        news += bytes[i] == 'n';
    }
    it->old_seen += news == 0;
    it->new_seen += news == BYTES;
    it->torn_seen += news > 0 && news < BYTES;
}

static void race_once(race *it, weft_event *copied)
{
    fill(it->device, it->source, 'o');
    fill(it->device, it->news, 'n');
    fill(it->device, it->copy, '?');
    ok(weft_device_copy(it->device, it->copy, it->source, BYTES, it->copies));
    if (copied) {
        ok(weft_event_post(copied, it->copies));
        ok(weft_event_wait(copied, it->writes));
    }
    ok(weft_device_copy(it->device, it->source, it->news, BYTES, it->writes));
    ok(weft_stream_wait(it->copies));
    ok(weft_stream_wait(it->writes));
    judge(it);
}

static void race_on(race *sum, int seed, bool ordered)
{
    race it = *sum;
    weft_event *copied = NULL;
    it.device = open_seeded(0, seed);
    it.copies = make_stream(it.device);
    it.writes = make_stream(it.device);
    ok(weft_device_alloc(it.device, BYTES, &it.source));
    ok(weft_device_alloc(it.device, BYTES, &it.copy));
    ok(weft_device_alloc(it.device, BYTES, &it.news));
    if (ordered) {
        ok(weft_event_create(it.device, &copied));
    }
    for (int round = 0; round < ROUNDS; round++) {
        race_once(&it, copied);
    }
    weft_event_destroy(copied);
    weft_stream_destroy(it.copies);
    weft_stream_destroy(it.writes);
    weft_device_free(it.device, it.source);
    weft_device_free(it.device, it.copy);
    weft_device_free(it.device, it.news);
    close_empty(it.device);
    *sum = it;
}

static void test_shadow_copies_read_their_source_late_and_in_parts(void **state)
{
    (void)state;
    race free_for_all = {0}, ordered = {0};
    for (int seed = 1; seed <= SEEDS; seed++) {
        race_on(&free_for_all, seed, false);
        race_on(&ordered, seed, true);
    }
    print_message("old %d, new %d, torn %d\n", free_for_all.old_seen,
                  free_for_all.new_seen, free_for_all.torn_seen);
    assert_true(free_for_all.old_seen > 0);
    assert_true(free_for_all.new_seen > 0);
    assert_true(free_for_all.torn_seen > 0);
    assert_int_equal(ordered.old_seen, SEEDS * ROUNDS);
}

enum { STREAMS = 3, TURNS = 8 };

/* Streams' numbers, in the order in which their kernels have run. */
typedef struct journal {
    char turns[STREAMS * TURNS + 1];
    size_t count;
} journal;

typedef struct entry {
    journal *book;
    char stream;
} entry;

static void write_down(void *arg)
{
    entry *mine = arg;
    mine->book->turns[mine->book->count++] = mine->stream;
}

static void run_streams(int seed, journal *book)
{
    entry entries[STREAMS];
    weft_device *device = open_seeded(1, seed);
    weft_gate *gate = make_gate(device, 1);
    weft_stream *streams[STREAMS];
    for (int s = 0; s < STREAMS; s++) {
        streams[s] = make_stream(device);
        entries[s] = (entry){book, (char)('a' + s)};
        ok(weft_gate_wait(gate, 0, 1, streams[s]));
        for (int t = 0; t < TURNS; t++) {
            ok(wefti_shadow_launch(streams[s], write_down, &entries[s]));
        }
    }
    ok(weft_gate_signal(gate, 0, 1, NULL));
    for (int s = 0; s < STREAMS; s++) {
        ok(weft_stream_wait(streams[s]));
        weft_stream_destroy(streams[s]);
    }
    assert_int_equal(book->count, STREAMS * TURNS);
    weft_gate_destroy(gate);
    close_empty(device);
}

static void test_shadow_streams_take_other_turns_with_each_seed(void **state)
{
    static journal books[SEEDS];
    int different = 0;
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++) {
        books[seed] = (journal){.count = 0};
        run_streams(seed, &books[seed]);
        bool known = false;
        for (int other = 0; other < seed; other++) {
            known |= strcmp(books[seed].turns, books[other].turns) == 0;
        }
        different += !known;
    }
    print_message("%d orders of %d seeds, first %s\n", different, SEEDS,
                  books[0].turns);
    assert_true(different > SEEDS / 2);
}

static void test_shadow_signals_come_behind_the_copies_before(void **state)
{
    enum { LARGE = 300000 };
    static char src[LARGE], dst[LARGE];
    (void)state;
    for (int seed = 1; seed <= SEEDS; seed++) {
        weft_device *device = open_seeded(0, seed);
        weft_stream *stream = make_stream(device);
        weft_gate *gate = make_gate(device, 1);
        for (uint64_t epoch = 1; epoch <= 5; epoch++) {
            memset(src, (int)epoch, LARGE);
            ok(weft_device_copy(device, dst, src, LARGE, stream));
            ok(weft_gate_signal(gate, 0, epoch, stream));
            ok(weft_gate_wait(gate, 0, epoch, NULL));
            assert_memory_equal(dst, src, LARGE);
        }
        weft_stream_destroy(stream);
        weft_gate_destroy(gate);
        close_empty(device);
    }
}

static void count(void *context)
{
    atomic_fetch_add((_Atomic int *)context, 1);
}

static void test_shadow_signals_notify_nobody(void **state)
{
    weft_device *device = *state;
    _Atomic int calls = 0;
    weft_stream *stream = make_stream(device);
    weft_gate *gate = make_gate(device, 1);
    wefti_gate_watcher watcher = {.woken = count, .context = &calls};
    wefti_gate_watch(gate, &watcher);
    const uint32_t rung = atomic_load(&gate->bell.state);
    ok(weft_gate_signal(gate, 0, 7, stream));
    ok(weft_stream_wait(stream));
    assert_int_equal(wefti_gate_get(gate, 0), 7);
    /* Not compared either: a GPU's store can not tell older from newer. */
    ok(weft_gate_signal(gate, 0, 3, stream));
    ok(weft_stream_wait(stream));
    assert_int_equal(wefti_gate_get(gate, 0), 3);
    assert_int_equal(calls, 0);
    assert_int_equal(atomic_load(&gate->bell.state), rung);
    assert_int_equal(weft_device_get_caps(device), WEFT_CAP_TIMES);
    wefti_gate_unwatch(gate, &watcher);
    weft_stream_destroy(stream);
    weft_gate_destroy(gate);
}

static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *wait_for_stream(void *arg)
{
    ok(weft_stream_wait(arg));
    return NULL;
}

/* Streams at a gate, and a host thread that waits for one of them. */
static void test_shadow_waiting_for_a_second_burns_no_core(void **state)
{
    enum { WAITING = 8 };
    weft_device *device = *state;
    weft_stream *streams[WAITING];
    weft_gate *gate = make_gate(device, 1);
    pthread_t thread;
    for (int s = 0; s < WAITING; s++) {
        streams[s] = make_stream(device);
        ok(weft_gate_wait(gate, 0, 1, streams[s]));
    }
    let_run(device);
    start(&thread, wait_for_stream, streams[0]);
    double begin_s = cpu_s();
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL); /* what is measured */
    double used_s = cpu_s() - begin_s;
    print_message("%.1f%% of a core\n", 100 * used_s);
    assert_true(used_s < 0.1);
    ok(weft_gate_signal(gate, 0, 1, NULL));
    join(thread);
    for (int s = 0; s < WAITING; s++) {
        weft_stream_destroy(streams[s]);
    }
    weft_gate_destroy(gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALONE(test_shadow_copies_read_their_source_late_and_in_parts),
        ALONE(test_shadow_streams_take_other_turns_with_each_seed),
        ALONE(test_shadow_signals_come_behind_the_copies_before),
        SHADOW(test_shadow_signals_notify_nobody),
        SHADOW(test_shadow_waiting_for_a_second_burns_no_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
