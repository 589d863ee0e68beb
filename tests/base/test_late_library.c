/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what the runtimes of sanitizers misunderstand about thread-local blocks
 * of libraries that were opened late (UCX's are) ends no program of weft.
 *
 * Method: a small library is opened, and its block used in many threads. First
 * on a heap whose other blocks hold pointers and small numbers, until a block
 * lies where gcc 12's runtimes expect a header before it
 * (base/sanitizer_options.c). Then while detached threads end: these free the
 * stacks and blocks of threads that other threads joined, under a lock of
 * glibc's that no sanitizer sees, once glibc's cache of stacks is full
 * (GLIBC_TUNABLES of the preset tsan keeps it from that).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    BLOCKS = 512,
    BLOCK_WORDS = 14, /* in the size class of the library's block */
    THREADS = 100,
    ROUNDS = 50,
    GROUP = 8,
    DETACHED_MOST = 4
};

typedef char *touch_function(void);
static touch_function *touch;

static int open_library(void **state)
{
    (void)state;
    void *library = dlopen(LATE_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    touch =
        library ? (touch_function *)dlsym(library, "late_library_touch") : NULL;
    return touch ? 0 : -1;
}

static void start(pthread_t *thread, void *(*run)(void *))
{
    assert_int_equal(pthread_create(thread, NULL, run, NULL), 0);
}

/* Every second block is free again when the library's is allocated. */
static void *touch_on_used_heap(void *argument)
{
    uint64_t *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BLOCK_WORDS * sizeof(*blocks[i]));
        for (int word = 0; blocks[i] && word < BLOCK_WORDS; word += 2) {
            blocks[i][word] = (uintptr_t)blocks[i];
            blocks[i][word + 1] = 0x10000;
        }
    }
    for (int i = 0; i < BLOCKS; i += 2) {
        free(blocks[i]);
    }
    touch()[1] = 1;
    for (int i = 1; i < BLOCKS; i += 2) {
        free(blocks[i]);
    }
    return argument;
}

static void test_late_block_after_any_heap_data_is_a_block(void **state)
{
    (void)state;
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        start(&thread, touch_on_used_heap);
        pthread_join(thread, NULL);
    }
    assert_int_equal(touch()[1], 0); /* this thread's own */
}

static void *touch_once(void *argument)
{
    touch();
    return argument;
}

static void *join_in_groups(void *argument)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[GROUP];
        for (int i = 0; i < GROUP; i++) {
            start(&threads[i], touch_once);
        }
        for (int i = 0; i < GROUP; i++) {
            pthread_join(threads[i], NULL);
        }
    }
    return argument;
}

/* Relaxed: nothing may order a detached thread's end after a joined one's. */
static atomic_int detached;

static void *leave(void *argument)
{
    atomic_fetch_sub_explicit(&detached, 1, memory_order_relaxed);
    return argument;
}

static void test_late_block_freed_by_a_detached_thread_is_no_race(void **state)
{
    (void)state;
    pthread_t joiner;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    start(&joiner, join_in_groups);
    for (int i = 0; i < ROUNDS * GROUP; i++) {
        pthread_t thread;
        atomic_fetch_add_explicit(&detached, 1, memory_order_relaxed);
        assert_int_equal(pthread_create(&thread, &attributes, leave, NULL), 0);
        while (atomic_load_explicit(&detached, memory_order_relaxed) >
               DETACHED_MOST) {
            sched_yield();
        }
    }
    pthread_join(joiner, NULL);
    while (atomic_load_explicit(&detached, memory_order_relaxed) > 0) {
        sched_yield();
    }
    pthread_attr_destroy(&attributes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late_block_after_any_heap_data_is_a_block),
        cmocka_unit_test(test_late_block_freed_by_a_detached_thread_is_no_race),
    };
    return cmocka_run_group_tests(tests, open_library, NULL);
}
