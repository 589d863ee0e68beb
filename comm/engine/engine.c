/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/engine.c - an engine's life, and pushing its operations.
 */
#include "comm/engine/engine.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/settings.h"
#include "comm/control/channel.h"
#include "comm/control/fault.h"
#include "comm/core/live.h"
#include "comm/engine/copies.h"
#include "comm/engine/driver.h"
#include "comm/engine/held_work.h"
#include "comm/engine/request.h"
#include "comm/engine/turn.h"
#include "comm/net/net.h"
#include "comm/streams/streams.h"

#include <sched.h>
#include <stdlib.h>

enum {
    SPIN_NS = 20000,
    LAST_PUSHES = 16,       /* more than what can lie staged needs */
    TURN_BYTES = 512 << 10, /* of a communicator's, until others have a turn */
    SIGNAL_PUSHES = 8       /* by a signaller, then the thread goes on */
};

static bool has_one_core(void)
{
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof(allowed), &allowed) == 0 &&
           CPU_COUNT(&allowed) == 1;
}

weft_status wefti_engine_create(wefti_engine **engine_out)
{
    int64_t spin_us;
    weft_status status = wefti_setting_int(WEFTI_SETTING_SPIN_US, &spin_us);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_engine *engine = calloc(1, sizeof(*engine));
    if (!engine) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for an engine");
    }
    status = weft_device_open("host", 0, &engine->host);
    if (status != WEFT_OK) {
        free(engine);
        return status;
    }
    status = wefti_home_open(&engine->home);
    if (status != WEFT_OK) {
        weft_device_close(engine->host);
        free(engine);
        return status;
    }
    pthread_mutex_init(&engine->lock, NULL);
    wefti_doorbell_init(&engine->own);
    engine->bell = &engine->own;
    engine->spin_ns = spin_us < 0 ? SPIN_NS : spin_us * 1000;
    engine->one_core = has_one_core();
    engine->users = 1;
    *engine_out = engine;
    return WEFT_OK;
}

void wefti_engine_retain(wefti_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->users++;
    pthread_mutex_unlock(&engine->lock);
}

void wefti_engine_release(wefti_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    int users = --engine->users;
    pthread_mutex_unlock(&engine->lock);
    if (users > 0) {
        return;
    }
    wefti_driver_leave(engine);
    wefti_net_close(engine->net);
    wefti_control_close(engine->control);
    if (engine->hosts) {
        engine->hosts_close(engine->hosts);
    }
    free(engine->lists);
    free(engine->witnesses);
    wefti_board_close(engine->board);
    wefti_mapping_close(engine->mapping);
    if (engine->members) {
        wefti_membership_fini(engine->members);
        free(engine->members);
    }
    pthread_mutex_destroy(&engine->lock);
    wefti_device_abandon(engine->host); /* streams may hold its gates */
    wefti_home_close(engine->home);
    free(engine);
}

static bool push_comm(weft_comm *comm)
{
    wefti_requests_take_in(comm);
    if (comm->failed != WEFT_OK) {
        return wefti_requests_release(comm);
    }
    if (comm->streams && comm->streams->launches.watched) {
        comm->watch->launched(comm);
    }
    if (!wefti_fault_is_published(comm)) {
        return wefti_requests_advance(comm, TURN_BYTES);
    }
    /* What had all it needs before the fault still ends well: a rank that is
     * slow to leave an operation does not lose it to a fault in the next. */
    bool moved = false;
    for (int i = 0; i < LAST_PUSHES && wefti_requests_advance(comm, INT64_MAX);
         i++) {
        moved = true;
    }
    return (comm->held == 0 && wefti_fault_is_ripe(comm, moved) &&
            wefti_requests_stop(comm)) ||
           moved;
}

/* A communicator has used up its turn: what compute waits for does not wait for
 * the turns of all the others. */
static bool urge_all(wefti_engine *engine)
{
    bool moved = false;
    for (weft_comm *comm = engine->comms; comm; comm = comm->next) {
        if (comm->failed == WEFT_OK && !wefti_fault_is_published(comm)) {
            moved |= wefti_requests_urge(comm, TURN_BYTES);
        }
    }
    return moved;
}

bool wefti_engine_push(wefti_engine *engine)
{
    bool moved = false;
    atomic_store_explicit(&engine->pusher, (uintptr_t)pthread_self(),
                          memory_order_relaxed);
    engine->due_ns = INT64_MAX;
    engine->looks = false;
    if (engine->net) {
        moved = wefti_net_drain(engine->net);
        wefti_net_hold(engine->net, true);
    }
    for (weft_comm *comm = engine->comms; comm; comm = comm->next) {
        moved |= push_comm(comm);
        if (comm->budget_bytes <= 0) {
            moved |= urge_all(engine);
        }
    }
    if (engine->net) {
        wefti_net_tell_released(engine->net);
        wefti_net_hold(engine->net, false);
    }
    atomic_store_explicit(&engine->pusher, 0, memory_order_relaxed);
    if (engine->signalled) { /* what was passed over may go on */
        engine->signalled = false;
        engine->worked = true;
        moved = true;
    }
    return moved;
}

void wefti_engine_settle(wefti_engine *engine)
{
    if (engine->net) {
        wefti_net_tell_released(engine->net);
    }
    if (engine->looks) {
        wefti_copies_look(engine);
    }
    if (engine->copies_asked) { /* others may have asked meanwhile */
        wefti_copies_hand_over(engine);
    }
}

void wefti_engine_unlock(wefti_engine *engine)
{
    wefti_engine_settle(engine);
    wefti_held_work_tell(engine);
    pthread_mutex_unlock(&engine->lock);
}

weft_status wefti_engine_start(wefti_engine *engine)
{
    if (atomic_load_explicit(&engine->thread_bell, memory_order_acquire)) {
        return WEFT_OK;
    }
    /* Two communicators may get their first stream at once. */
    pthread_mutex_lock(&engine->lock);
    weft_status status = engine->driver ? WEFT_OK : wefti_driver_join(engine);
    pthread_mutex_unlock(&engine->lock);
    return status;
}

/*
 * The watcher carries operations on by itself, so that news wake one thread,
 * not two. It arms the port again unless a caller waits, which is woken
 * instead: it is to see what it waits for, and mostly has more to do with the
 * network.
 */
bool wefti_engine_attend(void *argument)
{
    wefti_engine *engine = argument;
    pthread_mutex_lock(&engine->lock);
    const bool driven = atomic_load(&engine->drivers) > 0;
    const bool awaited = atomic_load(&engine->callers) > 0;
    bool again =
        driven ? wefti_engine_push(engine) : wefti_net_drain(engine->net);
    again |= driven && wefti_engine_work(engine);
    if (driven && !awaited) {
        /* Only the thread may sleep for it, and is not needed: this one does
         * what comes next. */
        engine->worked = false;
    }
    const bool wake =
        driven && (awaited || engine->looks || engine->copies_asked ||
                   engine->due_ns != INT64_MAX);
    if (!again && !awaited) {
        again = driven ? !wefti_turn_arm_net_locked(engine)
                       : !wefti_net_arm(engine->net);
    }
    if (again && engine->one_core) { /* it comes back: no other is quicker */
        wefti_engine_settle(engine);
        pthread_mutex_unlock(&engine->lock);
    } else {
        wefti_engine_unlock(engine);
    }
    if (wake && !again) {
        wefti_doorbell_wake(engine->bell);
    }
    return again;
}

/* Calls of devices are the thread's: a program's may be under way here. */
static bool has_device(const wefti_engine *engine)
{
    const weft_comm *comm = engine->comms;
    while (comm && (!comm->device ||
                    wefti_device_can(comm->device, WEFT_CAP_NOTIFIES))) {
        comm = comm->next;
    }
    return comm != NULL;
}

/* Whether the thread that drives has something left to do. Lock held. */
static bool push_signalled(wefti_engine *engine)
{
    if (atomic_load(&engine->drivers) == 0 ||
        atomic_load(&engine->callers) > 0 || has_device(engine)) {
        return true;
    }
    bool armed = false;
    for (int pushes = 0; pushes < SIGNAL_PUSHES && !armed; pushes++) {
        armed = !wefti_engine_push(engine) && wefti_turn_arm_net_locked(engine);
        engine->worked = false; /* only the thread may sleep for it */
    }
    return !armed || engine->due_ns != INT64_MAX;
}

/*
 * Who holds the lock may be this thread, which goes on if that is within a
 * push, and who waits for a watcher to return may hold it: so it is never
 * waited for, which wefti_engine_unlock() would do between its calls of
 * devices: these are left to the thread. Once it is given back the engine may
 * end: the operation that watched the gate may have. A forked child has the
 * connections, and nothing to say there.
 */
void wefti_engine_signalled(void *argument)
{
    wefti_engine *engine = argument;
    const bool own = engine->net && engine->one_core && *engine->home != 0;
    if (own && atomic_load_explicit(&engine->pusher, memory_order_relaxed) ==
                   (uintptr_t)pthread_self()) {
        engine->signalled = true;
        return;
    }
    if (!own || pthread_mutex_trylock(&engine->lock) != 0) {
        wefti_engine_woken(engine);
        return;
    }
    const int64_t begin_ns = wefti_clock_thread_ns();
    if (push_signalled(engine) || engine->looks || engine->copies_asked ||
        engine->works) {
        wefti_engine_woken(engine);
    }
    atomic_fetch_add_explicit(&engine->signalled_ns,
                              wefti_clock_thread_ns() - begin_ns,
                              memory_order_relaxed);
    wefti_net_tell_released(engine->net);
    pthread_mutex_unlock(&engine->lock);
}
