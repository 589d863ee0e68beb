/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/turn.c - pushing under the lock, and callers that wait without
 * burning.
 *
 * A waiting caller spins while there are cores for all ranks, then yields,
 * then sleeps on the rank's bell; with more ranks than cores it yields at
 * once. Every sleep is bounded, because the watch for dead peers runs in the
 * sleeper.
 *
 * While a device that rings no bell has something to do for an operation, it is
 * looked at without sleeping for a millisecond, and then in short slices; where
 * waiters do not spin, as cores are short, the slices begin after BRIEF_NS.
 */
#include "comm/engine/turn.h"

#include "base/clock.h"
#include "base/relax.h"
#include "comm/engine/engine.h"
#include "comm/engine/held_work.h"
#include "comm/net/net.h"

#include <sched.h>

enum {
    SLICE_NS = 50000,        /* the first sleep between looks at a device */
    SLICE_MOST_NS = 1000000, /* and the last */
    YIELD_NS = 1000000,
    IDLE_NS = 100000,   /* while bytes move: idle is called that often */
    CROWD = 2,          /* ranks on a core, and more of them */
    CROWDED_NS = 50000, /* instead, in a crowd */
    BRIEF_NS = 20000,   /* instead, of a device, where cores are short */
    POLLS_PER_LOCK = 8, /* while spinning: the lock costs more than a look */
    LOOKS_PER_CLOCK = 4,
    LOOKS_PER_IDLE = 16,   /* while spinning: what may cost more than a look */
    YIELDS_BEFORE_IDLE = 8 /* and may give the core away itself */
};

wefti_turn_news wefti_turn_push(wefti_engine *engine, int polls,
                                bool (*done)(const void *), const void *context)
{
    wefti_turn_news news = {false, false, false, 0};
    pthread_mutex_lock(&engine->lock);
    news.moved = wefti_engine_push(engine);
    news.done = done && done(context);
    for (int poll = 1; poll < polls && !news.moved && !news.done &&
                       !engine->copies_asked && !engine->works;
         poll++) {
        wefti_relax();
        news.moved = wefti_engine_push(engine);
        news.done = done && done(context);
    }
    news.due_ns = engine->due_ns;
    news.looks = engine->looks;
    if (!news.done && wefti_engine_work(engine)) {
        news.moved = true;
    }
    if (news.done || !news.moved || !done) {
        /* The driver need not come back: nobody may be left to push for. */
        wefti_engine_unlock(engine);
    } else { /* it comes back at once */
        wefti_engine_settle(engine);
        pthread_mutex_unlock(&engine->lock);
    }
    return news;
}

/* What all communicators of a job of two wait for from the other rank. Among
 * more anything may be of use: what came for others is to be passed on
 * (comm/net/rounds.h). */
static wefti_port_expected find_expected(const wefti_engine *engine)
{
    const wefti_port_expected anything = {0, 0, false};
    wefti_port_expected least = anything;
    if (atomic_load(&engine->callers) > 0 || engine->looks) {
        /* Callers may wait for what no operation knows of; and where a device
         * is looked at, lists go on that wait for it now. */
        return anything;
    }
    for (weft_comm *comm = engine->comms; comm; comm = comm->next) {
        wefti_expected own;
        if (!comm->watch->expects(comm, 1 - comm->rank, &own)) {
            return anything;
        }
        least.blocked |= own.blocked;
        if (own.messages > 0) {
            const bool first = least.messages == 0;
            least.messages = first || own.messages < least.messages
                                 ? own.messages
                                 : least.messages;
            least.bytes =
                first || own.bytes < least.bytes ? own.bytes : least.bytes;
        }
    }
    return least;
}

bool wefti_turn_arm_net_locked(wefti_engine *engine)
{
    if (engine->net->nranks == 2) {
        wefti_net_expect(engine->net, 1 - engine->net->rank,
                         find_expected(engine));
    }
    return wefti_net_arm(engine->net);
}

bool wefti_turn_arm_net(wefti_engine *engine)
{
    bool armed = true;
    if (engine->net) {
        pthread_mutex_lock(&engine->lock);
        armed = wefti_turn_arm_net_locked(engine);
        pthread_mutex_unlock(&engine->lock);
    }
    return armed;
}

void wefti_turn_note_sleep(wefti_engine *engine, int64_t *silent_ns, bool rung,
                           int64_t slept_ns)
{
    *silent_ns = rung ? 0 : *silent_ns + slept_ns;
    if (engine->net && *silent_ns >= WEFTI_TURN_SLEEP_NS) {
        *silent_ns = 0;
        pthread_mutex_lock(&engine->lock);
        wefti_net_hurry(engine->net);
        pthread_mutex_unlock(&engine->lock);
    }
}

void wefti_turn_leave_net(wefti_engine *engine, bool long_idle)
{
    if (engine->net && atomic_fetch_sub(&engine->drivers, 1) == 1) {
        pthread_mutex_lock(&engine->lock);
        wefti_net_leave(engine->net, long_idle);
        pthread_mutex_unlock(&engine->lock);
    }
}

int64_t wefti_turn_sleep_ns(const wefti_turn_news *news,
                            wefti_turn_patience *patience)
{
    int64_t most_ns = (int64_t)WEFTI_TURN_SLEEP_NS << patience->doubled;
    if (news->looks) {
        int64_t slice_ns = 2 * patience->slice_ns;
        slice_ns = slice_ns < SLICE_NS ? SLICE_NS : slice_ns;
        most_ns = slice_ns < SLICE_MOST_NS ? slice_ns : SLICE_MOST_NS;
        patience->slice_ns = most_ns;
    }
    if (news->due_ns == INT64_MAX) {
        return most_ns;
    }
    int64_t left_ns = news->due_ns - wefti_clock_ns();
    return left_ns < 1000 ? 1000 : left_ns < most_ns ? left_ns : most_ns;
}

int64_t wefti_turn_look_ns(const wefti_engine *engine)
{
    return wefti_engine_spins(engine) ? YIELD_NS : BRIEF_NS;
}

/*
 * With many ranks on a core each yield is a look at all peers by one rank more,
 * while the one that they wait for has the core seldom; but what is small
 * has come before it pays to sleep. Behind a network a sleeper is woken by a
 * thread more.
 */
int64_t wefti_turn_awake_ns(const wefti_engine *engine, bool looks)
{
    if (looks) {
        return wefti_turn_look_ns(engine);
    }
    return engine->ranks_per_core > CROWD && !engine->net ? CROWDED_NS
                                                          : YIELD_NS;
}

/* Announces the sleep, looks once more, and sleeps if there is no news. */
static bool park(wefti_engine *engine, bool idles, bool (*done)(const void *),
                 const void *context, wefti_turn_patience *patience)
{
    uint32_t seen = wefti_doorbell_arm(engine->bell);
    wefti_turn_news news = wefti_turn_push(engine, 1, done, context);
    news.looks |= idles; /* that rings no bell, either */
    if (!news.moved && !news.done && wefti_turn_arm_net(engine)) {
        const int64_t limit_ns = wefti_turn_sleep_ns(&news, patience);
        wefti_doorbell_sleep(engine->bell, seen, limit_ns);
        wefti_turn_note_sleep(engine, &patience->silent_ns,
                              wefti_doorbell_is_rung(engine->bell, seen),
                              limit_ns);
    }
    wefti_doorbell_disarm(engine->bell, seen);
    return news.done;
}

/* Spins or yields once; false: it is time to sleep. */
static bool stay_awake(const wefti_engine *engine,
                       wefti_turn_patience *patience, int64_t due_ns,
                       bool looks)
{
    if (due_ns != INT64_MAX) {
        return false;
    }
    bool spin = wefti_engine_spins(engine);
    if (patience->looks++ % LOOKS_PER_CLOCK == 0 || !spin) {
        int64_t now_ns = wefti_clock_ns();
        if (patience->since_ns == 0) {
            patience->since_ns = now_ns;
        }
        int64_t waited_ns = now_ns - patience->since_ns;
        if (waited_ns > wefti_turn_awake_ns(engine, looks)) {
            return false;
        }
        if (!spin || waited_ns > engine->spin_ns) {
            patience->looks = 0; /* and look at the clock next time */
            patience->yields++;
            sched_yield();
            return true;
        }
    }
    wefti_relax();
    return true;
}

/*
 * Whether to call idle after a look that has moved nothing. With a core for
 * each rank: after every few looks. With fewer: not at the first yields, as
 * what is small has come by then, and as MPI, when its idle is called, yields
 * once more.
 */
static bool is_idle(const wefti_turn_patience *patience)
{
    return patience->yields == 0 ? patience->looks % LOOKS_PER_IDLE == 0
                                 : patience->yields > YIELDS_BEFORE_IDLE;
}

/* A look that has moved something begins the waiting anew, so that while much
 * moves only the clock says that idle is due. */
static void idle_in_time(const wefti_idle *idle, int64_t *idled_ns)
{
    const int64_t now_ns = wefti_clock_ns();
    if (*idled_ns == 0) {
        *idled_ns = now_ns;
    }
    if (now_ns - *idled_ns > IDLE_NS) {
        idle->function(idle->context);
        *idled_ns = now_ns;
    }
}

static void drive(wefti_engine *engine, const wefti_idle *idle,
                  bool (*done)(const void *), const void *context)
{
    const int polls = wefti_engine_spins(engine) ? POLLS_PER_LOCK : 1;
    wefti_turn_patience patience = {0};
    int64_t idled_ns = 0; /* or the first move since; 0: not known */
    for (;;) {
        wefti_turn_news news = wefti_turn_push(engine, polls, done, context);
        if (news.done) {
            return;
        }
        if (news.moved) {
            patience = (wefti_turn_patience){0};
            if (idle->function) {
                idle_in_time(idle, &idled_ns);
            }
            continue;
        }
        const bool awake =
            stay_awake(engine, &patience, news.due_ns, news.looks);
        if (idle->function && (!awake || is_idle(&patience))) {
            idle->function(idle->context);
            idled_ns = 0;
        }
        if (!awake &&
            park(engine, idle->function != NULL, done, context, &patience)) {
            return;
        }
    }
}

/* A caller waits for what no operation may know of. */
static void expect_anything(wefti_engine *engine)
{
    if (engine->net->nranks == 2) {
        pthread_mutex_lock(&engine->lock);
        wefti_net_expect(engine->net, 1 - engine->net->rank,
                         (wefti_port_expected){0, 0, false});
        pthread_mutex_unlock(&engine->lock);
    }
}

void wefti_engine_drive_idle(wefti_engine *engine, const wefti_idle *idle,
                             bool (*done)(const void *), const void *context)
{
    if (!engine->net) {
        drive(engine, idle, done, context);
        return;
    }
    atomic_fetch_add(&engine->callers, 1);
    atomic_fetch_add(&engine->drivers, 1);
    expect_anything(engine);
    drive(engine, idle, done, context);
    atomic_fetch_sub(&engine->callers, 1);
    wefti_turn_leave_net(engine, false);
}

void wefti_engine_drive(wefti_engine *engine, bool (*done)(const void *),
                        const void *context)
{
    wefti_engine_drive_idle(engine, &(wefti_idle){NULL, NULL}, done, context);
}
