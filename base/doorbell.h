/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/doorbell.h - sleeping until something may have changed, without losing
 * a wake-up: an event count on a futex, in private or shared memory.
 *
 * Sleeper                            Ringer
 *   seen = wefti_doorbell_arm(b)       store the news (seq_cst)
 *   look for news (seq_cst loads)      wefti_doorbell_ring(b)
 *   none: wefti_doorbell_sleep(b, ..)
 *   wefti_doorbell_disarm(b, seen)
 *
 * One word holds a generation and how many are armed in it. arm counts its
 * sleeper before it checks for news; ring reads the word after the news is
 * stored. All four are sequentially consistent, so either the sleeper sees the
 * news or the ringer sees an armed sleeper and begins the next generation, in
 * which no sleeper is armed yet; the kernel compares the generation. So a ring
 * costs one load where no thread sleeps, and where all sleepers have been woken
 * and are about to run.
 */
#ifndef BASE_DOORBELL_H
#define BASE_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct wefti_doorbell {
    _Atomic uint32_t state; /* generation | armed, WEFTI_DOORBELL_BITS of it */
} wefti_doorbell;

enum { WEFTI_DOORBELL_BITS = 12 };

void wefti_doorbell_init(wefti_doorbell *bell);
uint32_t wefti_doorbell_arm(wefti_doorbell *bell);
void wefti_doorbell_disarm(wefti_doorbell *bell, uint32_t seen);

/* Sleeps until rung since arm returned seen, or timeout_ns (> 0) is over. */
void wefti_doorbell_sleep(wefti_doorbell *bell, uint32_t seen,
                          int64_t timeout_ns);

/* A bell that a sleeper has armed, one of several; what arm returned. */
typedef struct wefti_doorbell_wait {
    wefti_doorbell *bell;
    uint32_t seen;
} wefti_doorbell_wait;

enum { WEFTI_DOORBELL_WAITS_MOST = 64 };

/* As sleep, until any of them has been rung; count: 1 to WAITS_MOST, more than
 * 1 only where wefti_doorbell_can_wait_for_any. */
void wefti_doorbell_sleep_any(const wefti_doorbell_wait *waits, int count,
                              int64_t timeout_ns);

/* Whether the kernel has futex_waitv (Linux 5.16), and lets this process use
 * it. */
bool wefti_doorbell_can_wait_for_any(void);

/* Wakes all sleepers. Works across processes. */
void wefti_doorbell_wake(wefti_doorbell *bell);

/* How many may be asleep, not counting those that have been rung. */
static inline uint32_t wefti_doorbell_armed(const wefti_doorbell *bell)
{
    return atomic_load(&bell->state) & ((1u << WEFTI_DOORBELL_BITS) - 1);
}

/* Whether it has been rung since arm returned seen. */
static inline int wefti_doorbell_is_rung(const wefti_doorbell *bell,
                                         uint32_t seen)
{
    return atomic_load(&bell->state) >> WEFTI_DOORBELL_BITS != seen;
}

static inline void wefti_doorbell_ring(wefti_doorbell *bell)
{
    if (wefti_doorbell_armed(bell) != 0) {
        wefti_doorbell_wake(bell);
    }
}

#endif
