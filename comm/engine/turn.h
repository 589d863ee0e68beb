/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/turn.h - one look at an engine's operations, and what is due
 * before a sleep: what the threads that wait in calls and the driver's thread
 * have in common.
 */
#ifndef COMM_ENGINE_TURN_H
#define COMM_ENGINE_TURN_H

#include "comm/core/core.h"

enum { WEFTI_TURN_SLEEP_NS = 20000000 }; /* the longest without patience */

/* How a thread has been waiting so far. */
typedef struct wefti_turn_patience {
    unsigned looks, yields;
    int64_t since_ns;
    int64_t slice_ns;  /* the last sleep between looks at a device */
    int64_t silent_ns; /* slept since the last ring */
    int doubled;       /* times that a sleep may be as long: the thread's */
} wefti_turn_patience;

/* What a push has found out. */
typedef struct wefti_turn_news {
    bool moved, done;
    bool looks; /* a device that rings no bell has work */
    int64_t due_ns;
} wefti_turn_news;

/*
 * wefti_turn_push - pushes up to polls times, until something moves or copies
 * are asked for, or done(context), which is called with the lock held; NULL:
 * nobody waits.
 */
wefti_turn_news wefti_turn_push(wefti_engine *engine, int polls,
                                bool (*done)(const void *),
                                const void *context);

/* Sees that news from the network will ring the bell, such as it is expected;
 * false: there is some. _locked: by a thread that holds the lock. */
bool wefti_turn_arm_net(wefti_engine *engine);
bool wefti_turn_arm_net_locked(wefti_engine *engine);

/* A sleep of slept_ns is over, rung: by news. Without any for long, of which
 * silent_ns keeps count, all that has come is looked at, whatever was
 * expected. */
void wefti_turn_note_sleep(wefti_engine *engine, int64_t *silent_ns, bool rung,
                           int64_t slept_ns);

/*
 * No thread may drive for a while: what waits to be sent goes out all the same.
 * The last driver to go sees to it; the watcher that found one counted goes on
 * to sleep, and that driver arms it after. long_idle: it is not back soon.
 */
void wefti_turn_leave_net(wefti_engine *engine, bool long_idle);

/* How long a sleep after that may be. */
int64_t wefti_turn_sleep_ns(const wefti_turn_news *news,
                            wefti_turn_patience *patience);

/* How long a device is looked at without a sleep. */
int64_t wefti_turn_look_ns(const wefti_engine *engine);

/* How long a caller that waits stays awake; looks: at a device too. */
int64_t wefti_turn_awake_ns(const wefti_engine *engine, bool looks);

#endif
