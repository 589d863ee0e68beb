/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the host cannot touch the shadow device's memory unnoticed, and the
 * device knows which addresses are its own.
 * Method: children that touch it and must die by SIGSEGV; the kernel, asked to
 * read and write it, must answer EFAULT; a seeded series of allocations
 * against a plain list.
 */
#include "device_test.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* A fault is to kill the child, not to be explained by a sanitizer. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "handle_segv=0";
}

const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "handle_segv=0";
}

/* The signal that killed a child which ran touch(pointer); 0 if it lived. */
static int killed_by(void (*touch)(char *pointer), char *pointer)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGSEGV, SIG_DFL); /* cmocka has put its own */
        touch(pointer);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void touch_read(char *pointer)
{
    _exit(*(_Atomic char *)pointer == 'x' ? 1 : 2);
}

static void touch_write(char *pointer)
{
    *(_Atomic char *)pointer = 'x';
}

static void test_shadow_memory_touched_by_host_faults(void **state)
{
    weft_device *device = *state;
    char host = 'h';
    void *memory;
    ok(weft_device_alloc(device, 10000, &memory));
    char *at = memory;
    for (size_t offset = 0; offset < 10000; offset += 4999) {
        assert_int_equal(killed_by(touch_read, at + offset), SIGSEGV);
        assert_int_equal(killed_by(touch_write, at + offset), SIGSEGV);
    }
    /* Also after the device itself has been there. */
    ok(weft_device_copy(device, memory, &host, 1, NULL));
    assert_int_equal(killed_by(touch_read, memory), SIGSEGV);
    /* And the same touches of host memory do not kill. */
    assert_int_equal(killed_by(touch_write, &host), 0);
    weft_device_free(device, memory);
}

static void
test_shadow_memory_given_to_the_kernel_is_a_bad_address(void **state)
{
    weft_device *device = *state;
    void *memory;
    int ends[2];
    ok(weft_device_alloc(device, 64, &memory));
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], memory, 1), -1);
    assert_int_equal(errno, EFAULT);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(read(ends[0], memory, 1), -1);
    assert_int_equal(errno, EFAULT);
    close(ends[0]);
    close(ends[1]);
    weft_device_free(device, memory);
}

static void test_shadow_copy_over_the_end_refuses(void **state)
{
    weft_device *device = *state;
    static char host[20000];
    void *first, *second;
    ok(weft_device_alloc(device, 4096, &first));
    ok(weft_device_alloc(device, 100, &second));
    weft_stream *stream = make_stream(device);
    char *one = first, *two = second;
    refused(weft_device_copy(device, one, host, 4097, NULL), "dst");
    refused(weft_device_copy(device, host, two + 50, 51, NULL), "src");
    refused(weft_device_copy(device, host, two + 50, 51, stream), "src");
    refused(weft_device_copy(device, one + 4096, host, 1, NULL), "dst");
    refused(weft_device_copy(device, two + 100, host, 1, stream), "dst");
    ok(weft_device_copy(device, one + 4095, host, 1, NULL));
    ok(weft_device_copy(device, host, two + 50, 50, stream));
    weft_device_free(device, second);
    refused(weft_device_copy(device, host, two, 1, NULL), "src");
    ok(weft_stream_wait(stream));
    weft_stream_destroy(stream);
    weft_device_free(device, first);
}

/* Adds 1 to each byte. */
typedef struct kernel {
    weft_device *device;
    void *pointer;
    size_t bytes;
} kernel;

static void add_one(void *arg)
{
    kernel *mine = arg;
    uint8_t *bytes = wefti_shadow_translate(mine->device, mine->pointer);
    for (size_t i = 0; i < mine->bytes; i++) {
        bytes[i]++;
    }
}

static void test_shadow_kernels_reach_its_memory(void **state)
{
    weft_device *device = *state;
    uint8_t host[300], back[300];
    void *memory;
    ok(weft_device_alloc(device, sizeof(host), &memory));
    for (size_t i = 0; i < sizeof(host); i++) {
        host[i] = (uint8_t)(i * 7);
        back[i] = 0xee;
    }
    kernel work = {device, memory, sizeof(host)};
    weft_stream *stream = make_stream(device);
    ok(weft_device_copy(device, memory, host, sizeof(host), stream));
    ok(wefti_shadow_launch(stream, add_one, &work));
    ok(weft_device_copy(device, back, memory, sizeof(host), stream));
    ok(weft_stream_wait(stream));
    for (size_t i = 0; i < sizeof(host); i++) {
        assert_int_equal(back[i], (uint8_t)(i * 7 + 1));
    }
    assert_ptr_equal(wefti_shadow_translate(device, host), host);
    weft_stream_destroy(stream);
    weft_device_free(device, memory);
}

enum { HELD = 40 };

typedef struct held {
    char *pointer;
    size_t bytes;
    char mark;
} held;

static void check_held(weft_device *device, const held *one)
{
    char first = 0, last = 0;
    assert_true(wefti_device_owns(device, one->pointer));
    assert_true(wefti_device_owns(device, one->pointer + one->bytes - 1));
    assert_false(wefti_device_owns(device, one->pointer + one->bytes));
    assert_false(wefti_device_owns(device, one->pointer - 1));
    ok(weft_device_copy(device, &first, one->pointer, 1, NULL));
    ok(weft_device_copy(device, &last, one->pointer + one->bytes - 1, 1, NULL));
    assert_int_equal(first, one->mark);
    assert_int_equal(last, one->mark);
}

static void take_one(weft_device *device, held *one, size_t bytes, char mark)
{
    void *pointer;
    ok(weft_device_alloc(device, bytes, &pointer));
    *one = (held){pointer, bytes, mark};
    ok(weft_device_copy(device, one->pointer, &mark, 1, NULL));
    ok(weft_device_copy(device, one->pointer + bytes - (bytes > 1), &mark,
                        bytes > 1, NULL));
}

static void test_shadow_allocations_in_any_order_stay_apart(void **state)
{
    weft_device *device = *state;
    held all[HELD] = {{0}};
    uint64_t seed = 4242;
    print_message("seed %d\n", 4242);
    for (int round = 0; round < 1000; round++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        held *one = &all[(seed >> 33) % HELD];
        if (one->pointer) {
            check_held(device, one);
            weft_device_free(device, one->pointer);
            assert_false(wefti_device_owns(device, one->pointer));
            one->pointer = NULL;
        } else {
            take_one(device, one, 1 + (seed >> 40) % 20000,
                     (char)('a' + round % 26));
        }
    }
    for (int h = 0; h < HELD; h++) {
        if (all[h].pointer) {
            check_held(device, &all[h]);
            weft_device_free(device, all[h].pointer);
        }
    }
}

static void test_shadow_owns_nothing_of_the_host(void **state)
{
    int local = 0;
    static int fixed;
    int *heap = malloc(sizeof(*heap));
    assert_false(wefti_device_owns(*state, NULL));
    assert_false(wefti_device_owns(*state, &local));
    assert_false(wefti_device_owns(*state, &fixed));
    assert_false(wefti_device_owns(*state, heap));
    assert_false(wefti_device_owns(*state, (void *)UINTPTR_MAX));
    free(heap);
}

static void test_shadow_full_says_no_memory(void **state)
{
    weft_device *device = *state;
    void *most, *more;
    size_t half = (size_t)9 << 30;
    ok(weft_device_alloc(device, half, &most));
    assert_int_equal(weft_device_alloc(device, half, &more),
                     WEFT_ERR_NO_MEMORY);
    weft_device_free(device, most);
    ok(weft_device_alloc(device, half, &more));
    weft_device_free(device, more);
}

static weft_pointer query(weft_device *device, const void *pointer)
{
    weft_pointer found;
    memset(&found, 0xee, sizeof(found));
    found.size_bytes = sizeof(found);
    ok(weft_device_query(device, pointer, &found));
    return found;
}

static void assert_found(const weft_pointer *found, weft_memory_kind kind,
                         int index, const void *base, size_t bytes)
{
    assert_int_equal(found->kind, kind);
    assert_int_equal(found->index, index);
    assert_ptr_equal(found->base, base);
    assert_int_equal(found->bytes, bytes);
    assert_int_equal(found->id == 0, base == NULL);
}

static void test_shadow_memory_of_two_ordinals_is_apart(void **state)
{
    weft_device *device = *state, *far;
    char back[4];
    void *own, *other;
    ok(weft_device_open("shadow", 1, &far));
    ok(weft_device_alloc(device, 100, &own));
    ok(weft_device_alloc(far, 200, &other));
    weft_pointer found = query(device, (char *)other + 199);
    assert_found(&found, WEFT_MEMORY_DEVICE, 1, other, 200);
    weft_pointer same = query(far, own);
    assert_found(&same, WEFT_MEMORY_DEVICE, 0, own, 100);
    assert_true(found.id != same.id);
    assert_true(wefti_device_owns(device, other));
    /* Copies between them run, kernels reach their own only. */
    ok(weft_device_copy(device, own, "far", 4, NULL));
    ok(weft_device_copy(far, other, own, 4, NULL));
    ok(weft_device_copy(device, back, other, 4, NULL));
    assert_string_equal(back, "far");
    assert_ptr_equal(wefti_shadow_translate(device, other), other);
    assert_ptr_not_equal(wefti_shadow_translate(far, other), other);
    weft_device_free(device, other); /* refused, and logged */
    assert_true(wefti_device_owns(far, other));
    weft_device_free(far, other);
    weft_device_free(device, own);
    weft_device_close(far);
}

static void test_shadow_memory_is_found_dirty(void **state)
{
    enum { BYTES = 10000 };
    static unsigned char back[BYTES];
    weft_device *device = *state;
    for (int round = 0; round < 3; round++) {
        void *memory;
        ok(weft_device_alloc(device, BYTES, &memory));
        ok(weft_device_copy(device, back, memory, BYTES, NULL));
        for (int i = 0; i < BYTES; i++) {
            assert_int_equal(back[i], 0xff);
            back[i] = 1;
        }
        ok(weft_device_copy(device, memory, back, BYTES, NULL));
        weft_device_free(device, memory);
    }
    unsigned char *pinned;
    ok(weft_device_alloc_kind(device, WEFT_MEMORY_PINNED, 10,
                              (void **)&pinned));
    assert_int_equal(pinned[9], 0xff);
    weft_device_free(device, pinned);
}

static void test_shadow_allocation_again_has_another_id(void **state)
{
    weft_device *device = *state;
    void *memory, *again;
    ok(weft_device_alloc(device, 100, &memory));
    const uint64_t id = query(device, memory).id;
    weft_device_free(device, memory);
    weft_pointer found = query(device, memory);
    assert_found(&found, WEFT_MEMORY_HOST, -1, NULL, 0);
    ok(weft_device_alloc(device, 100, &again));
    assert_ptr_equal(memory, again);
    assert_true(query(device, again).id != id);
    weft_device_free(device, again);
}

static void test_shadow_pinned_memory_is_the_hosts_and_known(void **state)
{
    weft_device *device = *state;
    char *pinned, back[8];
    void *memory;
    ok(weft_device_alloc_kind(device, WEFT_MEMORY_PINNED, 8, (void **)&pinned));
    ok(weft_device_alloc(device, 8, &memory));
    memcpy(pinned, "touched", 8);
    weft_pointer found = query(device, pinned + 7);
    assert_found(&found, WEFT_MEMORY_PINNED, 0, pinned, 8);
    assert_false(wefti_device_owns(device, pinned));
    ok(weft_device_copy(device, memory, pinned, 8, NULL));
    ok(weft_device_copy(device, back, memory, 8, NULL));
    assert_string_equal(back, "touched");
    assert_int_equal(weft_device_alloc_kind(device, WEFT_MEMORY_EXPORTABLE, 8,
                                            (void **)&pinned),
                     WEFT_ERR_UNSUPPORTED);
    weft_device_free(device, pinned);
    weft_device_free(device, memory);
}

static void test_shadow_registered_memory_is_pinned_meanwhile(void **state)
{
    static char host[100];
    weft_device *device = *state;
    void *memory;
    ok(weft_device_alloc(device, 8, &memory));
    ok(weft_device_register(device, host + 10, 50));
    weft_pointer found = query(device, host + 59);
    assert_found(&found, WEFT_MEMORY_PINNED, 0, host + 10, 50);
    assert_int_equal(query(device, host + 60).kind, WEFT_MEMORY_HOST);
    refused(weft_device_register(device, host + 10, 50), "knows some");
    refused(weft_device_register(device, host, 11), "knows some");
    refused(weft_device_register(device, host + 59, 41), "knows some");
    refused(weft_device_register(device, host, 100), "knows some");
    refused(weft_device_register(device, memory, 8), "knows some");
    weft_device_free(device, host + 10); /* refused, and logged */
    assert_int_equal(query(device, host + 10).kind, WEFT_MEMORY_PINNED);
    ok(weft_device_register(device, host, 10));
    weft_device_unregister(device, host + 10);
    weft_device_unregister(device, host);
    weft_device_unregister(device, host); /* logged */
    found = query(device, host + 10);
    assert_found(&found, WEFT_MEMORY_HOST, -1, NULL, 0);
    weft_device_free(device, memory);
}

static void test_shadow_foreign_memory_is_known_and_not_freed(void **state)
{
    weft_device *device = *state;
    char back[8];
    void *foreign;
    ok(wefti_shadow_alloc_foreign(device, 8, &foreign));
    weft_pointer found = query(device, (char *)foreign + 3);
    assert_found(&found, WEFT_MEMORY_DEVICE, 0, foreign, 8);
    assert_true(wefti_device_owns(device, foreign));
    ok(weft_device_copy(device, foreign, "foreign", 8, NULL));
    weft_device_free(device, foreign); /* refused, and logged */
    ok(weft_device_copy(device, back, foreign, 8, NULL));
    assert_string_equal(back, "foreign");
    wefti_shadow_free_foreign(device, foreign);
    assert_int_equal(query(device, foreign).kind, WEFT_MEMORY_HOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHADOW(test_shadow_memory_touched_by_host_faults),
        SHADOW(test_shadow_memory_given_to_the_kernel_is_a_bad_address),
        SHADOW(test_shadow_copy_over_the_end_refuses),
        SHADOW(test_shadow_kernels_reach_its_memory),
        SHADOW(test_shadow_allocations_in_any_order_stay_apart),
        SHADOW(test_shadow_owns_nothing_of_the_host),
        SHADOW(test_shadow_full_says_no_memory),
        SHADOW(test_shadow_memory_of_two_ordinals_is_apart),
        SHADOW(test_shadow_memory_is_found_dirty),
        SHADOW(test_shadow_allocation_again_has_another_id),
        SHADOW(test_shadow_pinned_memory_is_the_hosts_and_known),
        SHADOW(test_shadow_registered_memory_is_pinned_meanwhile),
        SHADOW(test_shadow_foreign_memory_is_known_and_not_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
