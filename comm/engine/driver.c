/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/driver.c - the thread's loop, and which engines it drives.
 *
 * It never spins: compute has the core. It sleeps on the bells of all engines
 * that have something pending, and on its own, at once; where the kernel cannot
 * do that, a driver has one engine.
 *
 *   joins, leaves                      thread
 *     lock: engines, ++changes           changes != seen: lock: own copy,
 *     ring(bell)                           seen = changes, tell
 *     leaves: wait until seen            arm(bell), changes again, sleep
 *
 * So an engine that has left is in no copy any more. changes is stored before
 * the ring and loaded behind the arm (base/doorbell.h), as pending is.
 */
#include "comm/engine/driver.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/shared_thread.h"
#include "comm/core/wake.h"
#include "comm/engine/turn.h"

#include <sched.h>
#include <string.h>

enum {
    ENGINES_MOST = WEFTI_DOORBELL_WAITS_MOST - 1,
    IDLE_NS = 1000000000,
    DOUBLED_MOST = 2
};

struct wefti_driver {
    wefti_shared_thread shared; /* changed: of seen */
    bool alone;                 /* cannot sleep on several bells */
    wefti_doorbell bell;        /* posts to engines that had nothing pending */
    wefti_engine *engines[ENGINES_MOST]; /* [count]; lock */
    int count;
    _Atomic uint64_t changes;
    uint64_t seen;

    /* The thread's. */
    wefti_engine *own[ENGINES_MOST]; /* [own_count] */
    int own_count, busy;             /* the busy ones stand first */
    wefti_turn_patience patience;
    int silences; /* long sleeps in a row that nothing ended */
};

/* ---- the thread ------------------------------------------------------------
 */

static void take_changes(wefti_driver *driver)
{
    if (atomic_load(&driver->changes) == driver->seen) {
        return; /* seen is written by this thread alone */
    }
    pthread_mutex_lock(&driver->shared.lock);
    memcpy(driver->own, driver->engines, sizeof(driver->own));
    driver->own_count = driver->count;
    driver->seen = atomic_load(&driver->changes);
    pthread_cond_broadcast(&driver->shared.changed);
    pthread_mutex_unlock(&driver->shared.lock);
}

/* Where it would be woken for what the program's thread and the watcher do by
 * themselves. */
static bool shares_core(const wefti_engine *engine)
{
    return engine->net && engine->one_core;
}

/* There it listens on until nothing has happened for a while; not beside a
 * caller that waits, and whose every message would wake it as well. */
static bool stays(const wefti_driver *driver, const wefti_engine *engine)
{
    return shares_core(engine) && atomic_load(&engine->driven) &&
           atomic_load(&engine->callers) == 0 && driver->silences == 0;
}

/* The engines with something pending to the front; joins and leaves those that
 * drive them. */
static void find_busy(wefti_driver *driver)
{
    driver->busy = 0;
    for (int i = 0; i < driver->own_count; i++) {
        wefti_engine *engine = driver->own[i];
        const bool busy =
            atomic_load(&engine->pending) > 0 || stays(driver, engine);
        if (busy != atomic_load(&engine->driven)) {
            atomic_store(&engine->driven, busy);
            if (busy) {
                atomic_fetch_add(&engine->drivers, 1);
            } else {
                wefti_turn_leave_net(engine, driver->silences > 0);
            }
        }
        if (busy) {
            driver->own[i] = driver->own[driver->busy];
            driver->own[driver->busy++] = engine;
        }
    }
}

/* Whether there is more to do than the busy ones have. */
static bool has_changed(const wefti_driver *driver)
{
    bool changed = atomic_load(&driver->shared.stopping) ||
                   atomic_load(&driver->changes) != driver->seen;
    for (int i = driver->busy; i < driver->own_count && !changed; i++) {
        changed = atomic_load(&driver->own[i]->pending) > 0;
    }
    return changed;
}

/* An engine that has it for itself rings but its own bell. */
static void rest(wefti_driver *driver)
{
    wefti_doorbell *bell = driver->alone && driver->own_count > 0
                               ? driver->own[0]->bell
                               : &driver->bell;
    const uint32_t seen = wefti_doorbell_arm(bell);
    if (!has_changed(driver)) {
        wefti_doorbell_sleep(bell, seen, IDLE_NS);
        wefti_thread_work_woken(&driver->shared.work);
    }
    wefti_doorbell_disarm(bell, seen);
    driver->patience = (wefti_turn_patience){0};
    driver->silences = 0;
}

/* One push of each. */
static wefti_turn_news push_all(const wefti_driver *driver)
{
    wefti_turn_news all = {.due_ns = INT64_MAX};
    for (int i = 0; i < driver->busy; i++) {
        const wefti_turn_news news =
            wefti_turn_push(driver->own[i], 1, NULL, NULL);
        all.moved |= news.moved;
        all.looks |= news.looks;
        all.due_ns = news.due_ns < all.due_ns ? news.due_ns : all.due_ns;
    }
    return all;
}

static bool arm_nets(const wefti_driver *driver)
{
    bool armed = true;
    for (int i = 0; i < driver->busy && armed; i++) {
        armed = wefti_turn_arm_net(driver->own[i]);
    }
    return armed;
}

/* Until one of the bells is rung, those of the busy engines last. */
static void sleep_on(wefti_driver *driver, const wefti_doorbell_wait *waits,
                     int count, int64_t most_ns)
{
    const int first = count - driver->busy;
    const int64_t begin_ns = wefti_clock_ns();
    wefti_doorbell_sleep_any(waits, count, most_ns);
    const int64_t slept_ns = wefti_clock_ns() - begin_ns;
    bool any = false;
    for (int i = 0; i < count; i++) {
        const wefti_doorbell_wait *at = &waits[i];
        const bool rung = wefti_doorbell_is_rung(at->bell, at->seen);
        any |= rung;
        if (i >= first) {
            wefti_turn_note_sleep(driver->own[i - first],
                                  &driver->own[i - first]->silent_ns, rung,
                                  slept_ns);
        }
    }
    if (any) {
        driver->silences = 0;
    } else if (slept_ns >= WEFTI_TURN_SLEEP_NS &&
               driver->silences < DOUBLED_MOST) {
        driver->silences++;
    }
    wefti_thread_work_woken(&driver->shared.work);
}

/* Twice as long as the last, where looking takes the one core from who
 * computes, and the network's news ring: who has died is found as much later.
 */
static int find_doubled(const wefti_driver *driver)
{
    bool all = true;
    for (int i = 0; i < driver->busy && all; i++) {
        all = shares_core(driver->own[i]);
    }
    return all ? driver->silences : 0;
}

/* Announces the sleep, looks once more, and sleeps if there is no news. */
static void park(wefti_driver *driver)
{
    wefti_doorbell_wait waits[WEFTI_DOORBELL_WAITS_MOST];
    int count = 0;
    if (!driver->alone) { /* else its one engine's is rung in its place */
        waits[count++].bell = &driver->bell;
    }
    for (int i = 0; i < driver->busy; i++) {
        waits[count++].bell = driver->own[i]->bell;
    }
    for (int i = 0; i < count; i++) {
        waits[i].seen = wefti_doorbell_arm(waits[i].bell);
    }
    const wefti_turn_news news = push_all(driver);
    driver->patience.doubled = find_doubled(driver);
    if (!news.moved && !has_changed(driver) && arm_nets(driver)) {
        sleep_on(driver, waits, count,
                 wefti_turn_sleep_ns(&news, &driver->patience));
    }
    for (int i = 0; i < count; i++) {
        wefti_doorbell_disarm(waits[i].bell, waits[i].seen);
    }
}

/* It looks at devices for a while, and sleeps for the rest. */
static void drive(wefti_driver *driver)
{
    wefti_turn_patience *patience = &driver->patience;
    const wefti_turn_news news = push_all(driver);
    if (news.moved) {
        *patience = (wefti_turn_patience){0};
        return;
    }
    const int64_t now_ns = news.looks ? wefti_clock_ns() : 0;
    if (news.looks && patience->since_ns == 0) {
        patience->since_ns = now_ns;
    }
    if (news.looks &&
        now_ns - patience->since_ns < wefti_turn_look_ns(driver->own[0])) {
        sched_yield();
    } else {
        park(driver);
    }
}

static void *run(void *argument)
{
    wefti_driver *driver = argument;
    wefti_thread_work_begin(&driver->shared.work);
    while (!atomic_load(&driver->shared.stopping)) {
        take_changes(driver);
        find_busy(driver);
        if (driver->busy > 0) {
            drive(driver);
        } else {
            rest(driver);
        }
    }
    return NULL;
}

/* ---- joining and leaving ---------------------------------------------------
 */

static wefti_shared_list drivers;

static weft_status open_driver(wefti_shared_thread *self)
{
    wefti_driver *driver = (wefti_driver *)self;
    wefti_doorbell_init(&driver->bell);
    driver->alone = !wefti_doorbell_can_wait_for_any();
    if (driver->alone && drivers.first) {
        wefti_log(WEFTI_LOG_INFO, -1,
                  "this kernel has no futex_waitv, or forbids it: each "
                  "communicator that is created has a progress thread");
    }
    return WEFT_OK;
}

static void wake(wefti_shared_thread *self)
{
    wefti_doorbell_ring(&((wefti_driver *)self)->bell);
}

static bool is_same_job(const wefti_engine *engine, const wefti_engine *other)
{
    const wefti_membership *own = engine->members, *theirs = other->members;
    return own && theirs && own->nranks > 1 &&
           memcmp(own->job_key, theirs->job_key, sizeof(own->job_key)) == 0;
}

static bool has_room(const wefti_shared_thread *self, const void *engine)
{
    const wefti_driver *driver = (const wefti_driver *)self;
    bool room = !driver->alone && driver->count < ENGINES_MOST;
    for (int i = 0; i < driver->count && room; i++) {
        room = !is_same_job(engine, driver->engines[i]);
    }
    return room;
}

/* To engine or without it. Lock held. */
static void change(wefti_driver *driver, const wefti_engine *engine)
{
    atomic_fetch_add(&driver->changes, 1);
    wefti_doorbell_ring(&driver->bell);
    if (driver->alone) {
        wefti_doorbell_ring(engine->bell);
    }
}

static weft_status add(wefti_shared_thread *self, void *member)
{
    wefti_driver *driver = (wefti_driver *)self;
    wefti_engine *engine = member;
    driver->engines[driver->count++] = engine;
    change(driver, engine);
    engine->driver = driver;
    return WEFT_OK;
}

static const wefti_shared_kind driver_kind = {
    .name = "weft-progress",
    .what = "progress thread",
    .bytes = sizeof(wefti_driver),
    .open = open_driver,
    .run = run,
    .wake = wake,
    .takes = has_room,
    .add = add,
};

static wefti_shared_list drivers = WEFTI_SHARED_LIST(driver_kind);

weft_status wefti_driver_join(wefti_engine *engine)
{
    weft_status status = wefti_shared_join(&drivers, engine);
    wefti_driver *driver = engine->driver;
    if (status != WEFT_OK) {
        engine->driver = NULL;
        return status;
    }
    atomic_store_explicit(&engine->thread_bell,
                          driver->alone ? engine->bell : &driver->bell,
                          memory_order_release);
    return WEFT_OK;
}

/* Takes the engine out. */
static void take_out(wefti_driver *driver, const wefti_engine *engine)
{
    pthread_mutex_lock(&driver->shared.lock);
    for (int i = 0; i < driver->count; i++) {
        if (driver->engines[i] == engine) {
            driver->engines[i] = driver->engines[--driver->count];
            break;
        }
    }
    change(driver, engine);
    const uint64_t wanted = atomic_load(&driver->changes);
    while (driver->seen < wanted) {
        pthread_cond_wait(&driver->shared.changed, &driver->shared.lock);
    }
    pthread_mutex_unlock(&driver->shared.lock);
}

void wefti_driver_leave(wefti_engine *engine)
{
    wefti_driver *driver = engine->driver;
    if (!driver) {
        return;
    }
    take_out(driver, engine);
    atomic_store(&engine->thread_bell, NULL);
    wefti_shared_leave(&drivers, &driver->shared);
    engine->driver = NULL;
}

const wefti_thread_work *wefti_driver_get_work(const wefti_driver *driver)
{
    return driver ? &driver->shared.work : NULL;
}
