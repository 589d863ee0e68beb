/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/engine.c - pushing operations, and waiting without burning.
 *
 * A waiting caller spins while there are cores for all ranks, then yields,
 * then sleeps on the rank's bell; with more ranks than cores it yields at
 * once. The progress thread never spins: compute has the core. Every sleep is
 * bounded, because the watch for dead peers runs in the sleeper.
 *
 * While a device that rings no bell has something to do for an operation, both
 * look at it without sleeping for a millisecond, and then in short slices;
 * where waiters do not spin, as cores are short, the slices begin after
 * BRIEF_NS.
 */
#include "comm/engine/engine.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/relax.h"
#include "base/settings.h"
#include "base/thread.h"
#include "comm/control/channel.h"
#include "comm/control/fault.h"
#include "comm/core/live.h"
#include "comm/engine/copies.h"
#include "comm/engine/request.h"
#include "comm/net/net.h"
#include "comm/streams/streams.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

enum {
    SLEEP_NS = 20000000,
    SLICE_NS = 50000,        /* the first sleep between looks at a device */
    SLICE_MOST_NS = 1000000, /* and the last */
    YIELD_NS = 1000000,
    BRIEF_NS = 20000, /* instead, of a device, where cores are short */
    SPIN_NS = 20000,
    POLLS_PER_LOCK = 8, /* while spinning: the lock costs more than a look */
    LOOKS_PER_CLOCK = 4,
    LAST_PUSHES = 16,      /* more than what can lie staged needs */
    TURN_BYTES = 512 << 10 /* of a communicator's, until others have a turn */
};

/* How a caller has been waiting so far. */
struct patience {
    unsigned looks;
    int64_t since_ns;
    int64_t slice_ns;  /* the last sleep between looks at a device */
    int64_t silent_ns; /* slept since the last ring */
};

/* What a push has found out. */
struct news {
    bool moved, done;
    bool looks; /* a device that rings no bell has work */
    int64_t due_ns;
};

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
    wefti_doorbell_init(&engine->idle);
    engine->bell = &engine->idle;
    engine->spin_ns = spin_us < 0 ? SPIN_NS : spin_us * 1000;
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
    if (engine->thread_started) {
        atomic_store(&engine->stopping, true);
        wefti_engine_wake(engine);
        pthread_join(engine->thread, NULL);
    }
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
    return (wefti_fault_is_ripe(comm, moved) && wefti_requests_stop(comm)) ||
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
    return moved;
}

void wefti_engine_unlock(wefti_engine *engine)
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
    pthread_mutex_unlock(&engine->lock);
}

static int64_t sleep_ns(const struct news *news, struct patience *patience)
{
    int64_t most_ns = SLEEP_NS;
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

/* Pushes up to polls times, until something moves or copies are asked for. */
static struct news push_locked(wefti_engine *engine, int polls,
                               bool (*done)(const void *), const void *context)
{
    struct news news = {false, false, false, 0};
    pthread_mutex_lock(&engine->lock);
    news.moved = wefti_engine_push(engine);
    news.done = done && done(context);
    for (int poll = 1;
         poll < polls && !news.moved && !news.done && !engine->copies_asked;
         poll++) {
        wefti_relax();
        news.moved = wefti_engine_push(engine);
        news.done = done && done(context);
    }
    news.due_ns = engine->due_ns;
    news.looks = engine->looks;
    wefti_engine_unlock(engine);
    return news;
}

/* What all communicators of a job of two wait for from the other rank. Among
 * more anything may be of use: what came for others is to be passed on
 * (comm/net/rounds.h). */
static wefti_port_expected find_expected(const wefti_engine *engine)
{
    const wefti_port_expected anything = {0, 0, false};
    wefti_port_expected least = anything;
    if (atomic_load(&engine->callers) > 0) {
        return anything; /* they may wait for what no operation knows of */
    }
    for (weft_comm *comm = engine->comms; comm; comm = comm->next) {
        wefti_expected own;
        if (!comm->watch->expects(comm, 1 - comm->rank, &own)) {
            return anything;
        }
        least.blocked |= own.blocked;
        if (own.messages > 0 &&
            (least.messages == 0 || own.bytes < least.bytes)) {
            least.messages = own.messages;
            least.bytes = own.bytes;
        }
    }
    return least;
}

/* Says what is expected of the network, and arms it; false: there are news.
 * Lock held. */
static bool arm_expecting(wefti_engine *engine)
{
    if (engine->net->nranks == 2) {
        wefti_net_expect(engine->net, 1 - engine->net->rank,
                         find_expected(engine));
    }
    return wefti_net_arm(engine->net);
}

/* Sees that news from the network will ring the bell; false: there is some. */
static bool arm_net(wefti_engine *engine)
{
    bool armed = true;
    if (engine->net) {
        pthread_mutex_lock(&engine->lock);
        armed = arm_expecting(engine);
        pthread_mutex_unlock(&engine->lock);
    }
    return armed;
}

/* A sleep is over; 0: by news. Without any for long, all that has come is
 * looked at, whatever was expected. */
static void note_sleep(wefti_engine *engine, struct patience *patience,
                       int64_t silent_ns)
{
    patience->silent_ns = silent_ns ? patience->silent_ns + silent_ns : 0;
    if (engine->net && patience->silent_ns >= SLEEP_NS) {
        patience->silent_ns = 0;
        pthread_mutex_lock(&engine->lock);
        wefti_net_hurry(engine->net);
        pthread_mutex_unlock(&engine->lock);
    }
}

/*
 * No thread may drive for a while: what waits to be sent goes out all the same.
 * The last driver to go sees to it; the watcher that found one counted goes on
 * to sleep, and that driver arms it after.
 */
static void leave_net(wefti_engine *engine)
{
    if (engine->net && atomic_fetch_sub(&engine->drivers, 1) == 1) {
        pthread_mutex_lock(&engine->lock);
        wefti_net_leave(engine->net);
        pthread_mutex_unlock(&engine->lock);
    }
}

/* Announces the sleep, looks once more, and sleeps if there is no news. work:
 * of the progress thread; NULL: a caller sleeps. */
static bool park(wefti_engine *engine, bool (*done)(const void *),
                 const void *context, struct patience *patience,
                 wefti_thread_work *work)
{
    uint32_t seen = wefti_doorbell_arm(engine->bell);
    struct news news = push_locked(engine, 1, done, context);
    if (!news.moved && !news.done && !atomic_load(&engine->stopping) &&
        arm_net(engine)) {
        const int64_t limit_ns = sleep_ns(&news, patience);
        wefti_doorbell_sleep(engine->bell, seen, limit_ns);
        note_sleep(engine, patience,
                   wefti_doorbell_is_rung(engine->bell, seen) ? 0 : limit_ns);
        if (work) {
            wefti_thread_work_woken(work);
        }
    }
    wefti_doorbell_disarm(engine->bell, seen);
    return news.done;
}

/* How long a device is looked at without a sleep. */
static int64_t look_ns(const wefti_engine *engine)
{
    return wefti_engine_spins(engine) ? YIELD_NS : BRIEF_NS;
}

/* Spins or yields once; false: it is time to sleep. */
static bool stay_awake(const wefti_engine *engine, struct patience *patience,
                       int64_t due_ns, bool looks)
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
        if (waited_ns > (looks ? look_ns(engine) : YIELD_NS)) {
            return false;
        }
        if (!spin || waited_ns > engine->spin_ns) {
            sched_yield();
            patience->looks = 0; /* and look at the clock next time */
            return true;
        }
    }
    wefti_relax();
    return true;
}

static void drive(wefti_engine *engine, bool (*done)(const void *),
                  const void *context)
{
    const int polls = wefti_engine_spins(engine) ? POLLS_PER_LOCK : 1;
    struct patience patience = {0, 0, 0, 0};
    for (;;) {
        struct news news = push_locked(engine, polls, done, context);
        if (news.done) {
            return;
        }
        if (news.moved) {
            patience = (struct patience){0, 0, 0, 0};
        } else if (!stay_awake(engine, &patience, news.due_ns, news.looks) &&
                   park(engine, done, context, &patience, NULL)) {
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

void wefti_engine_drive(wefti_engine *engine, bool (*done)(const void *),
                        const void *context)
{
    if (!engine->net) {
        drive(engine, done, context);
        return;
    }
    atomic_fetch_add(&engine->callers, 1);
    atomic_fetch_add(&engine->drivers, 1);
    expect_anything(engine);
    drive(engine, done, context);
    atomic_fetch_sub(&engine->callers, 1);
    leave_net(engine);
}

/* The thread's turn: it looks at devices for a while, and sleeps for the rest.
 */
static void progress_once(wefti_engine *engine, struct patience *patience)
{
    struct news news = push_locked(engine, 1, NULL, NULL);
    if (news.moved) {
        *patience = (struct patience){0, 0, 0, 0};
        return;
    }
    const int64_t now_ns = news.looks ? wefti_clock_ns() : 0;
    if (news.looks && patience->since_ns == 0) {
        patience->since_ns = now_ns;
    }
    if (news.looks && now_ns - patience->since_ns < look_ns(engine)) {
        sched_yield();
    } else {
        park(engine, NULL, NULL, patience, &engine->work);
    }
}

static void *progress(void *argument)
{
    wefti_engine *engine = argument;
    struct patience patience = {0, 0, 0, 0};
    bool drives = false;
    wefti_thread_work_begin(&engine->work);
    while (!atomic_load(&engine->stopping)) {
        if (atomic_load(&engine->pending) == 0) {
            if (drives) {
                drives = false;
                leave_net(engine);
            }
            uint32_t seen = wefti_doorbell_arm(&engine->idle);
            if (atomic_load(&engine->pending) == 0 &&
                !atomic_load(&engine->stopping)) {
                wefti_doorbell_sleep(&engine->idle, seen, 1000000000);
                wefti_thread_work_woken(&engine->work);
            }
            wefti_doorbell_disarm(&engine->idle, seen);
            continue;
        }
        if (!drives) {
            drives = true;
            atomic_fetch_add(&engine->drivers, 1);
        }
        progress_once(engine, &patience);
    }
    return NULL;
}

weft_status wefti_engine_start(wefti_engine *engine)
{
    if (atomic_load_explicit(&engine->thread_started, memory_order_acquire)) {
        return WEFT_OK;
    }
    /* Two communicators may get their first stream at once. */
    pthread_mutex_lock(&engine->lock);
    if (engine->thread_started) {
        pthread_mutex_unlock(&engine->lock);
        return WEFT_OK;
    }
    int failure = wefti_thread_start(progress, engine, &engine->thread);
    engine->thread_started = failure == 0;
    pthread_mutex_unlock(&engine->lock);
    errno = failure;
    return failure ? wefti_error_system("progress thread (pthread_create)")
                   : WEFT_OK;
}

/*
 * The watcher carries operations on by itself, so that news wake one thread,
 * not two. It arms the port again unless a caller waits, which is woken
 * instead: it is to see what it waits for, and mostly has more to do with the
 * network.
 */
void wefti_engine_attend(void *argument)
{
    wefti_engine *engine = argument;
    bool again = true, wake = false;
    while (again) {
        pthread_mutex_lock(&engine->lock);
        const bool driven = atomic_load(&engine->drivers) > 0;
        const bool awaited = atomic_load(&engine->callers) > 0;
        again =
            driven ? wefti_engine_push(engine) : wefti_net_drain(engine->net);
        wake = driven && (awaited || engine->looks || engine->copies_asked ||
                          engine->due_ns != INT64_MAX);
        if (!again && !awaited) {
            again =
                driven ? !arm_expecting(engine) : !wefti_net_arm(engine->net);
        }
        wefti_engine_unlock(engine);
    }
    if (wake) {
        wefti_doorbell_wake(engine->bell);
    }
}
