/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/doorbell.c - the event count's slow half: futex calls.
 *
 * Source of the futex protocol: Drepper, "Futexes Are Tricky", 2011.
 */
#include "base/doorbell.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ARMED_MOST = (1 << WEFTI_DOORBELL_BITS) - 1 };

static uint32_t generation_of(uint32_t state)
{
    return state >> WEFTI_DOORBELL_BITS;
}

static uint32_t armed_of(uint32_t state)
{
    return state & ARMED_MOST;
}

void wefti_doorbell_init(wefti_doorbell *bell)
{
    atomic_init(&bell->state, 0);
}

/* ARMED_MOST stands for as many or more, until the next ring. */
uint32_t wefti_doorbell_arm(wefti_doorbell *bell)
{
    uint32_t state = atomic_load(&bell->state);
    while (!atomic_compare_exchange_weak(
        &bell->state, &state,
        armed_of(state) < ARMED_MOST ? state + 1 : state)) {
    }
    return generation_of(state);
}

void wefti_doorbell_disarm(wefti_doorbell *bell, uint32_t seen)
{
    uint32_t state = atomic_load(&bell->state);
    while (generation_of(state) == seen && armed_of(state) < ARMED_MOST &&
           !atomic_compare_exchange_weak(&bell->state, &state, state - 1)) {
    }
}

void wefti_doorbell_sleep(wefti_doorbell *bell, uint32_t seen,
                          int64_t timeout_ns)
{
    struct timespec limit = {.tv_sec = timeout_ns / 1000000000,
                             .tv_nsec = timeout_ns % 1000000000};
    uint32_t state = atomic_load(&bell->state);
    /* Others of the generation may come and go before the kernel compares. */
    while (generation_of(state) == seen &&
           syscall(SYS_futex, &bell->state, FUTEX_WAIT, state, &limit, NULL,
                   0) != 0 &&
           errno == EAGAIN) {
        state = atomic_load(&bell->state);
    }
}

/* False: one of them has been rung. */
static bool prepare(const wefti_doorbell_wait *waits, int count,
                    struct futex_waitv *futexes)
{
    for (int i = 0; i < count; i++) {
        const uint32_t state = atomic_load(&waits[i].bell->state);
        if (generation_of(state) != waits[i].seen) {
            return false;
        }
        futexes[i] =
            (struct futex_waitv){.val = state,
                                 .uaddr = (uintptr_t)&waits[i].bell->state,
                                 .flags = FUTEX_32};
    }
    return true;
}

void wefti_doorbell_sleep_any(const wefti_doorbell_wait *waits, int count,
                              int64_t timeout_ns)
{
    struct futex_waitv futexes[WEFTI_DOORBELL_WAITS_MOST];
    struct timespec until;
    if (count == 1) {
        wefti_doorbell_sleep(waits[0].bell, waits[0].seen, timeout_ns);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t end_ns = until.tv_nsec + timeout_ns;
    until.tv_sec += end_ns / 1000000000;
    until.tv_nsec = end_ns % 1000000000;
    while (prepare(waits, count, futexes) &&
           syscall(SYS_futex_waitv, futexes, (unsigned)count, 0, &until,
                   CLOCK_MONOTONIC) < 0 &&
           errno == EAGAIN) {
    }
}

bool wefti_doorbell_can_wait_for_any(void)
{
    return syscall(SYS_futex_waitv, NULL, 0, 0, NULL, CLOCK_MONOTONIC) < 0 &&
           errno == EINVAL;
}

void wefti_doorbell_wake(wefti_doorbell *bell)
{
    uint32_t state = atomic_load(&bell->state);
    while (!atomic_compare_exchange_weak(&bell->state, &state,
                                         (state | ARMED_MOST) + 1)) {
    }
    syscall(SYS_futex, &bell->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
