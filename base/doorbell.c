/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/doorbell.c - the event count's slow half: futex calls.
 *
 * Source of the futex protocol: Drepper, "Futexes Are Tricky", 2011.
 */
#include "base/doorbell.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void wefti_doorbell_init(wefti_doorbell *bell)
{
    atomic_init(&bell->count, 0);
    atomic_init(&bell->sleepers, 0);
}

uint32_t wefti_doorbell_arm(wefti_doorbell *bell)
{
    uint32_t seen = atomic_load(&bell->count);
    atomic_fetch_add(&bell->sleepers, 1);
    return seen;
}

void wefti_doorbell_disarm(wefti_doorbell *bell)
{
    atomic_fetch_sub(&bell->sleepers, 1);
}

void wefti_doorbell_sleep(wefti_doorbell *bell, uint32_t seen,
                          int64_t timeout_ns)
{
    struct timespec limit = {.tv_sec = timeout_ns / 1000000000,
                             .tv_nsec = timeout_ns % 1000000000};
    syscall(SYS_futex, &bell->count, FUTEX_WAIT, seen, &limit, NULL, 0);
}

void wefti_doorbell_wake(wefti_doorbell *bell)
{
    atomic_fetch_add(&bell->count, 1);
    syscall(SYS_futex, &bell->count, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
