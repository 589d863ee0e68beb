/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the library's threads take no signals and have room, whatever the
 * process's limits are; how much stack is left is known.
 *
 * Method: one thread under a default stack of 64 KiB, which reads its own
 * state.
 */
#include "base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <semaphore.h>
#include <signal.h>
#include <string.h>

/* As small as every processor's threads may be (AArch64: 128 KiB). */
enum { SMALL_BYTES = 128 << 10, PAGE_BYTES = 4096 };

struct seen {
    bool blocked;
    size_t left_bytes, left_deeper_bytes;
    sem_t done;
};

static __attribute__((noinline)) size_t measure_deeper(void)
{
    volatile char room[8 * PAGE_BYTES];
    room[0] = 1;
    size_t left = wefti_thread_stack_left();
    return room[0] ? left : 0;
}

static void *observe(void *argument)
{
    struct seen *seen = argument;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    seen->blocked = sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM) &&
                    sigismember(&mask, SIGUSR1);
    seen->left_bytes = wefti_thread_stack_left();
    seen->left_deeper_bytes = measure_deeper();
    sem_post(&seen->done);
    return NULL;
}

static void test_thread_small_default_has_room_and_no_signals(void **state)
{
    (void)state;
    pthread_attr_t before, small;
    pthread_t thread;
    struct seen seen = {.blocked = false};
    sem_init(&seen.done, 0, 0);
    assert_int_equal(pthread_getattr_default_np(&before), 0);
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, SMALL_BYTES), 0);
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    assert_int_equal(wefti_thread_start(observe, &seen, &thread), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_setattr_default_np(&before), 0);
    assert_true(seen.blocked);
    assert_in_range(seen.left_bytes, WEFTI_THREAD_STACK_BYTES / 2,
                    WEFTI_THREAD_STACK_BYTES);
    assert_true(seen.left_deeper_bytes + 8 * PAGE_BYTES <= seen.left_bytes);
    pthread_attr_destroy(&small);
    pthread_attr_destroy(&before);
    sem_destroy(&seen.done);
}

static void test_thread_detached_runs_and_mask_is_kept(void **state)
{
    (void)state;
    sigset_t before, after;
    struct seen seen = {.blocked = false};
    sem_init(&seen.done, 0, 0);
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    assert_int_equal(wefti_thread_start(observe, &seen, NULL), 0);
    assert_int_equal(sem_wait(&seen.done), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_true(sigismember(&after, SIGUSR2) && !sigismember(&after, SIGINT));
    sem_destroy(&seen.done);
}

static void test_stack_left_of_the_main_thread_is_known(void **state)
{
    (void)state;
    assert_true(wefti_thread_stack_left() > SMALL_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thread_small_default_has_room_and_no_signals),
        cmocka_unit_test(test_thread_detached_runs_and_mask_is_kept),
        cmocka_unit_test(test_stack_left_of_the_main_thread_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
