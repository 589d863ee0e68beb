/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: memory of a device holds what is copied into it, copies run in stream
 * order in all four directions, and wrong ones are refused.
 * Method: seeded bytes carried host -> device -> device -> host -> host with
 * every result poisoned first, here and now and on a stream, on both sides of
 * the size up to which a copy needs no thread.
 */
#include "device_test.h"

static const size_t sizes[] = {1, 63, 64, 4096, 4097, 100003, 1 << 20};

static void fill(uint8_t *bytes, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(seed >> 40);
    }
}

static void carry(weft_device *device, size_t bytes, uint64_t seed,
                  weft_stream *stream)
{
    uint8_t *src = malloc(bytes), *dst = malloc(bytes), *end = malloc(bytes);
    void *first, *second;
    ok(weft_device_alloc(device, bytes, &first));
    ok(weft_device_alloc(device, bytes, &second));
    assert_int_equal((uintptr_t)first % 64, 0);
    assert_int_equal((uintptr_t)second % 64, 0);
    fill(src, bytes, seed);
    memset(dst, 0xee, bytes);
    memset(end, 0xdd, bytes);
    /* Poison the device, too. */
    ok(weft_device_copy(device, first, dst, bytes, NULL));
    ok(weft_device_copy(device, second, dst, bytes, NULL));

    ok(weft_device_copy(device, first, src, bytes, stream));
    ok(weft_device_copy(device, second, first, bytes, stream));
    ok(weft_device_copy(device, dst, second, bytes, stream));
    ok(weft_device_copy(device, end, dst, bytes, stream));
    if (stream) {
        ok(weft_stream_wait(stream));
    }
    assert_memory_equal(dst, src, bytes);
    assert_memory_equal(end, src, bytes);
    weft_device_free(device, first);
    weft_device_free(device, second);
    free(src);
    free(dst);
    free(end);
}

static void test_memory_carried_in_four_directions_arrives(void **state)
{
    weft_stream *stream = make_stream(*state);
    print_message("seed 1000 + size index\n");
    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
        carry(*state, sizes[s], 1000 + s, NULL);
        carry(*state, sizes[s], 2000 + s, stream);
    }
    weft_stream_destroy(stream);
}

static void test_memory_copied_inside_an_allocation_arrives(void **state)
{
    weft_device *device = *state;
    char text[16] = "abcdefgh", back[16] = "";
    void *memory;
    ok(weft_device_alloc(device, 100, &memory));
    char *at = memory;
    ok(weft_device_copy(device, at + 90, text, 8, NULL));
    ok(weft_device_copy(device, at + 1, at + 90, 8, NULL));
    ok(weft_device_copy(device, back, at + 3, 6, NULL));
    assert_string_equal(back, "cdefgh");
    weft_device_free(device, memory);
}

static void test_memory_small_copy_needs_no_thread_large_one_does(void **state)
{
    static char src[8192], dst[8192];
    int before = count_threads();
    weft_stream *stream = make_stream(*state);
    memset(src, 'x', sizeof(src));
    ok(weft_device_copy(*state, dst, src, 4096, stream));
    assert_memory_equal(dst, src, 4096); /* over on return */
    assert_int_equal(count_threads(), before);
    ok(weft_device_copy(*state, dst, src, 8192, stream));
    assert_int_equal(count_threads(), before + 1);
    ok(weft_stream_wait(stream));
    assert_memory_equal(dst, src, 8192);
    weft_stream_destroy(stream);
    assert_threads_left(before);
}

static void test_memory_copies_run_behind_the_work_before(void **state)
{
    static char src[8192], dst[8192];
    weft_stream *stream = make_stream(*state);
    weft_gate *gate = make_gate(*state, 1);
    memset(src, 'a', sizeof(src));
    memset(dst, 0, sizeof(dst));
    ok(weft_gate_wait(gate, 0, 1, stream));
    ok(weft_device_copy(*state, dst, src, 100, stream));
    ok(weft_device_copy(*state, dst + 100, src, 8000, stream));
    assert_int_equal(dst[0], 0);
    memset(src, 'b', sizeof(src));
    ok(weft_gate_signal(gate, 0, 1, NULL));
    ok(weft_stream_wait(stream));
    assert_int_equal(dst[0], 'b');
    assert_int_equal(dst[8099], 'b');
    assert_int_equal(dst[8100], 0);
    weft_stream_destroy(stream);
    weft_gate_destroy(gate);
}

static void test_memory_of_a_device_opened_twice_is_apart(void **state)
{
    weft_device *one = *state, *two;
    void *first, *second;
    char back;
    ok(weft_device_open(wefti_device_get_table(one)->kind, 0, &two));
    ok(weft_device_alloc(one, 64, &first));
    ok(weft_device_alloc(two, 64, &second));
    ok(weft_device_copy(one, first, "1", 1, NULL));
    ok(weft_device_copy(two, second, "2", 1, NULL));
    ok(weft_device_copy(one, &back, first, 1, NULL));
    assert_int_equal(back, '1');
    ok(weft_device_copy(two, &back, second, 1, NULL));
    assert_int_equal(back, '2');
    bool own = !wefti_device_can(one, WEFT_CAP_HOST_READS);
    assert_int_equal(wefti_device_owns(one, first), own);
    assert_int_equal(wefti_device_owns(one, second), own);
    assert_int_equal(wefti_device_owns(two, first), own);
    weft_device *other;
    ok(weft_device_open(own ? "host" : "shadow", 0, &other));
    weft_stream *stream = make_stream(other);
    refused(weft_device_copy(one, first, "1", 1, stream), "allowed is one of");
    weft_stream_destroy(stream);
    weft_device_close(other);
    weft_device_free(one, first);
    weft_device_free(two, second);
    weft_device_close(two);
}

/* What is opened twice is the same device: who frees, and in which order the
 * handles are closed, is all the same. */
static void test_memory_is_freed_by_any_handle_of_its_device(void **state)
{
    weft_device *one = *state, *two;
    void *memory, *pinned;
    ok(weft_device_open(wefti_device_get_table(one)->kind, 0, &two));
    ok(weft_device_alloc(one, 64, &memory));
    ok(weft_device_alloc_kind(two, WEFT_MEMORY_PINNED, 64, &pinned));
    weft_device_free(two, memory);
    weft_device_free(one, pinned);
    assert_int_equal(atomic_load(&two->objects), 0);
    ok(weft_device_alloc(two, 64, &memory));
    weft_device_close(two);
    ok(weft_device_copy(one, memory, "1", 1, NULL)); /* it is still there */
    weft_device_free(one, memory);
    assert_int_equal(atomic_load(&one->objects), 0);
}

/* Whoever gives a device up leaves it to those that have opened it too, before
 * or after. */
static void test_device_given_up_stays_for_other_users(void **state)
{
    weft_device *one = *state, *two, *three;
    const char *kind = wefti_device_get_table(one)->kind;
    ok(weft_device_open(kind, 0, &two));
    weft_gate *gate = make_gate(two, 1);
    wefti_device_abandon(two);
    weft_gate *other = make_gate(one, 1);
    weft_gate_destroy(gate);
    ok(weft_gate_signal(other, 0, 1, NULL));
    weft_gate_destroy(other);
    assert_int_equal(atomic_load(&one->objects), 0);

    /* The last user has given it up, and one comes back before all is gone. */
    gate = make_gate(one, 1);
    wefti_device_abandon(one);
    ok(weft_device_open(kind, 0, &three));
    weft_gate_destroy(gate);
    gate = make_gate(three, 1);
    ok(weft_gate_signal(gate, 0, 1, NULL));
    weft_gate_destroy(gate);
    *state = three;
}

/* Opens and gives up the same device beside others that do. */
typedef struct visitor {
    const char *kind;
    int rounds;
} visitor;

static void *come_and_go_main(void *arg)
{
    const visitor *mine = arg;
    for (int round = 0; round < mine->rounds; round++) {
        weft_device *device;
        ok(weft_device_open(mine->kind, 0, &device));
        weft_gate *gate = make_gate(device, 1);
        wefti_device_abandon(device);
        weft_gate_destroy(gate);
    }
    return NULL;
}

static void test_device_opened_while_others_give_it_up_is_safe(void **state)
{
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    /* A GPU needs a good part of a second to come. */
    visitor all = {wefti_device_get_table(*state)->kind,
                   getenv("WEFT_TEST_DRIVER") ? 20 : 300};
    weft_device_close(*state); /* so that it comes and goes */
    for (int t = 0; t < THREADS; t++) {
        start(&threads[t], come_and_go_main, &all);
    }
    for (int t = 0; t < THREADS; t++) {
        join(threads[t]);
    }
    ok(weft_device_open(all.kind, 0, (weft_device **)state));
    assert_int_equal(atomic_load(&((weft_device *)*state)->objects), 0);
}

/* Copies without a stream, from several threads at once. */
static void *copy_main(void *arg)
{
    weft_device *device = arg;
    uint8_t src[600], dst[600];
    void *memory;
    ok(weft_device_alloc(device, sizeof(src), &memory));
    for (int round = rounds_of(device, 500); round > 0; round--) {
        fill(src, sizeof(src), (uint64_t)(uintptr_t)memory + (uint64_t)round);
        memset(dst, 0xee, sizeof(dst));
        ok(weft_device_copy(device, memory, src, sizeof(src), NULL));
        ok(weft_device_copy(device, dst, memory, sizeof(dst), NULL));
        assert_memory_equal(dst, src, sizeof(dst));
    }
    weft_device_free(device, memory);
    return NULL;
}

static void test_memory_copied_now_by_several_threads_arrives(void **state)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++) {
        start(&threads[t], copy_main, *state);
    }
    for (int t = 0; t < THREADS; t++) {
        join(threads[t]);
    }
}

static void test_memory_of_no_bytes_may_be_freed(void **state)
{
    weft_device *device = *state;
    void *first, *second;
    ok(weft_device_alloc(device, 0, &first));
    ok(weft_device_alloc(device, 0, &second));
    assert_non_null(first);
    assert_ptr_not_equal(first, second);
    ok(weft_device_copy(device, NULL, NULL, 0, NULL));
    ok(weft_device_copy(device, first, second, 0, NULL));
    weft_device_free(device, first);
    weft_device_free(device, second);
    weft_device_free(device, NULL);
}

static void test_memory_misused_refuses(void **state)
{
    weft_device *device = *state;
    void *memory;
    char bytes[16] = {0};
    refused(weft_device_alloc(NULL, 1, &memory), "device");
    refused(weft_device_alloc(device, 1, NULL), "pointer_out");
    assert_int_equal(weft_device_alloc(device, SIZE_MAX, &memory),
                     WEFT_ERR_NO_MEMORY);
    refused(weft_device_copy(NULL, bytes, bytes + 8, 8, NULL), "device");
    refused(weft_device_copy(device, NULL, bytes, 8, NULL), "dst is NULL");
    refused(weft_device_copy(device, bytes, NULL, 8, NULL), "src is NULL");
    refused(weft_device_copy(device, bytes, bytes + 7, 8, NULL), "overlap");
    refused(weft_device_copy(device, bytes + 7, bytes, 8, NULL), "overlap");
    refused(weft_device_copy(device, bytes, bytes, 1, NULL), "overlap");
    ok(weft_device_copy(device, bytes, bytes + 8, 8, NULL));
}

/* Nothing is returned there: they say it in the log, and change nothing. */
static void test_memory_given_back_wrongly_changes_nothing(void **state)
{
    weft_device *device = *state;
    char bytes[16];
    void *memory;
    ok(weft_device_alloc(device, 1, &memory));
    weft_device_free(NULL, memory);
    weft_device_unregister(NULL, bytes);
    weft_device_unimport(NULL, memory);
    weft_device_unimport(device, memory); /* nothing was ever imported */
    assert_int_equal(atomic_load(&device->objects), 1);
    weft_device_free(device, memory);
}

static void test_device_opened_wrongly_refuses(void **state)
{
    weft_device *device;
    refused(weft_device_open(NULL, 0, &device), "kind");
    refused(weft_device_open("host", 0, NULL), "device_out");
    refused(weft_device_open("banana", 0, &device),
            "\"banana\": allowed is host, cuda, shadow");
    refused(
        weft_device_open(wefti_device_get_table(*state)->kind, 1000, &device),
        "index 1000");
    refused(weft_device_open(wefti_device_get_table(*state)->kind, -1, &device),
            "index -1");
    weft_device_close(NULL);
    assert_false(wefti_device_owns(NULL, &device));
}

int main(int argc, char **argv)
{
    choose_kind(argc, argv);
    const struct CMUnitTest tests[] = {
        EACH(test_memory_carried_in_four_directions_arrives),
        EACH(test_memory_copied_inside_an_allocation_arrives),
        HOST(test_memory_small_copy_needs_no_thread_large_one_does),
        EACH(test_memory_copies_run_behind_the_work_before),
        EACH(test_memory_of_a_device_opened_twice_is_apart),
        EACH(test_memory_is_freed_by_any_handle_of_its_device),
        EACH(test_device_given_up_stays_for_other_users),
        EACH(test_device_opened_while_others_give_it_up_is_safe),
        EACH(test_memory_copied_now_by_several_threads_arrives),
        EACH(test_memory_of_no_bytes_may_be_freed),
        EACH(test_memory_misused_refuses),
        EACH(test_memory_given_back_wrongly_changes_nothing),
        EACH(test_device_opened_wrongly_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
