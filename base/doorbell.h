/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/doorbell.h - sleeping until something may have changed, without losing
 * a wake-up: an event count on a futex, in private or shared memory.
 *
 * Sleeper                            Ringer
 *   seen = wefti_doorbell_arm(b)       store the news (seq_cst)
 *   look for news (seq_cst loads)      wefti_doorbell_ring(b)
 *   none: wefti_doorbell_sleep(b, ..)
 *   wefti_doorbell_disarm(b)
 *
 * arm raises "sleepers" before the sleeper looks; ring reads it after the news
 * is stored. All four are sequentially consistent, so either the sleeper sees
 * the news or the ringer sees the sleeper and moves the count that the kernel
 * compares. A ring with nobody asleep costs one load.
 */
#ifndef BASE_DOORBELL_H
#define BASE_DOORBELL_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct wefti_doorbell {
    _Atomic uint32_t count;    /* wake -> the kernel's comparison in sleep */
    _Atomic uint32_t sleepers; /* arm -> ring */
} wefti_doorbell;

void wefti_doorbell_init(wefti_doorbell *bell);
uint32_t wefti_doorbell_arm(wefti_doorbell *bell);
void wefti_doorbell_disarm(wefti_doorbell *bell);

/* Sleeps until rung since arm returned seen, or timeout_ns (> 0) is over. */
void wefti_doorbell_sleep(wefti_doorbell *bell, uint32_t seen,
                          int64_t timeout_ns);

/* Wakes all sleepers. Works across processes. */
void wefti_doorbell_wake(wefti_doorbell *bell);

static inline void wefti_doorbell_ring(wefti_doorbell *bell)
{
    if (atomic_load(&bell->sleepers) != 0) {
        wefti_doorbell_wake(bell);
    }
}

#endif
