/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/net_watch.c - why no wake-up is lost:
 *
 *   sleeper                           thread
 *   seen = arm(bell)
 *   look for news: none
 *   arm the port: event_fd will tell  epoll_wait returns, event_fd is disabled
 *   armed was set? else enable it     armed = false
 *   sleep(bell, seen)                 news: wake(bell), moves the count
 *
 * If armed is set after armed = false, event_fd is enabled again, and tells at
 * once if anything came since. If it comes before, so did seen, and the wake
 * moves the count that the sleeper compares. Enabling wakes no thread.
 *
 * What goes away does not arm: it is mostly back at once. It starts a timer, if
 * none is running, at whose end the thread looks whether it has come and gone
 * since:
 *
 *   goer                              thread
 *   ++departures                      the timer ends
 *   lingering was set?                departures != noted? noted, once more
 *     else noted, start the timer     lingering = false, departures again: news
 *
 * Either the goer sees that no timer runs and starts it, or the thread sees its
 * departure.
 */
#include "comm/net/net_watch.h"

#include "base/error.h"
#include "base/event.h"
#include "base/shared_thread.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { LINGER_NS = 1000000, EVENTS_MOST = 16 };

/* What an event is of: twice a watch's id, and one more of its timer. */
enum { STOP = 0, FIRST_ID = 1 };

/* Its thread, with all that share it. */
typedef struct watcher {
    wefti_shared_thread shared; /* changed: news has returned */
    int epoll_fd, stop_fd;
    wefti_net_watch *watches; /* linked by next; lock */
    wefti_net_watch *current; /* news is being called */
    uint64_t next_id;
} watcher;

struct wefti_net_watch {
    wefti_net_watch *next;
    watcher *of;
    uint64_t id, job;
    int event_fd, timer_fd;
    bool (*news)(void *context);
    void *context;
    bool due; /* news is to be called; lock of the watcher */
    uint64_t turn;
    _Atomic bool armed; /* swapped: what was written before it was set is seen
                           by news; set by sleepers, seq_cst */
    _Atomic bool lingering;
    _Atomic uint64_t departures, noted; /* as do these, by goers */
};

/* ---- the thread ------------------------------------------------------------
 */

static void start_timer(const wefti_net_watch *watch)
{
    const struct itimerspec linger = {.it_value = {.tv_nsec = LINGER_NS}};
    (void)timerfd_settime(watch->timer_fd, 0, &linger, NULL);
}

/* The timer has ended: whether nothing has come since it was started. */
static bool has_lingered(wefti_net_watch *watch)
{
    uint64_t ended;
    if (read(watch->timer_fd, &ended, sizeof(ended)) != sizeof(ended)) {
        return false; /* another start has overtaken it */
    }
    uint64_t departures = atomic_load(&watch->departures);
    if (departures == atomic_load(&watch->noted)) {
        atomic_store(&watch->lingering, false);
        departures = atomic_load(&watch->departures);
        if (departures == atomic_load(&watch->noted)) {
            return !atomic_load(&watch->armed);
        }
        if (atomic_exchange(&watch->lingering, true)) {
            return false; /* the goer has started it */
        }
    }
    atomic_store(&watch->noted, departures);
    start_timer(watch);
    return false;
}

/* Under the lock. NULL: it has been stopped. */
static wefti_net_watch *find(const watcher *all, uint64_t id)
{
    wefti_net_watch *watch = all->watches;
    while (watch && watch->id != id) {
        watch = watch->next;
    }
    return watch;
}

static void take_event(watcher *all, uint64_t what)
{
    pthread_mutex_lock(&all->shared.lock);
    wefti_net_watch *watch = find(all, what / 2);
    if (watch && what % 2) {
        watch->due |= has_lingered(watch);
    } else if (watch) {
        (void)atomic_exchange(&watch->armed, false); /* acquires, too */
        watch->due = true;
    }
    pthread_mutex_unlock(&all->shared.lock);
}

/* What is due and has not had this turn; NULL: none. */
static wefti_net_watch *next_due(watcher *all, uint64_t turn)
{
    wefti_net_watch *watch = all->watches;
    while (watch && (!watch->due || watch->turn == turn)) {
        watch = watch->next;
    }
    return watch;
}

/* Calls each that is due once. Whether any wants more. */
static bool call_due(watcher *all, uint64_t turn)
{
    bool more = false;
    pthread_mutex_lock(&all->shared.lock);
    for (wefti_net_watch *watch; (watch = next_due(all, turn));) {
        watch->turn = turn;
        watch->due = false;
        all->current = watch;
        pthread_mutex_unlock(&all->shared.lock);
        const bool again = watch->news(watch->context);
        pthread_mutex_lock(&all->shared.lock);
        watch->due |= again;
        more |= again;
        all->current = NULL;
        pthread_cond_broadcast(&all->shared.changed);
    }
    pthread_mutex_unlock(&all->shared.lock);
    return more;
}

static void *watch_ports(void *argument)
{
    watcher *all = argument;
    bool more = false;
    uint64_t turn = 0;
    wefti_thread_work_begin(&all->shared.work);
    while (!atomic_load(&all->shared.stopping)) {
        struct epoll_event events[EVENTS_MOST];
        const int count =
            epoll_wait(all->epoll_fd, events, EVENTS_MOST, more ? 0 : -1);
        if (!more) {
            wefti_thread_work_woken(&all->shared.work);
        }
        for (int i = 0; i < count; i++) {
            take_event(all, events[i].data.u64);
        }
        more = call_due(all, ++turn);
    }
    return NULL;
}

/* ---- starting and stopping -------------------------------------------------
 */

static void close_fd(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

static bool add_fd(const watcher *all, int fd, uint32_t events, uint64_t what)
{
    struct epoll_event event = {.events = events, .data = {.u64 = what}};
    return epoll_ctl(all->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void remove_fd(const watcher *all, int fd)
{
    struct epoll_event none = {.events = 0};
    (void)epoll_ctl(all->epoll_fd, EPOLL_CTL_DEL, fd, &none);
}

static weft_status open_watcher(wefti_shared_thread *self)
{
    watcher *all = (watcher *)self;
    all->next_id = FIRST_ID;
    all->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    all->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return all->epoll_fd >= 0 && all->stop_fd >= 0 &&
                   add_fd(all, all->stop_fd, EPOLLIN, STOP)
               ? WEFT_OK
               : wefti_error_system("watcher of the network (epoll_create1, "
                                    "eventfd)");
}

static void close_watcher(wefti_shared_thread *self)
{
    close_fd(((watcher *)self)->epoll_fd);
    close_fd(((watcher *)self)->stop_fd);
}

static void stop(wefti_shared_thread *self)
{
    wefti_event_ring(((watcher *)self)->stop_fd);
}

/* Whether it watches none of that job. */
static bool takes(const wefti_shared_thread *self, const void *member)
{
    const wefti_net_watch *watch = ((const watcher *)self)->watches;
    while (watch && watch->job != ((const wefti_net_watch *)member)->job) {
        watch = watch->next;
    }
    return !watch;
}

/* event_fd is disabled until it is armed. */
static weft_status add(wefti_shared_thread *self, void *member)
{
    watcher *all = (watcher *)self;
    wefti_net_watch *watch = member;
    watch->of = all;
    watch->id = all->next_id++;
    if (!add_fd(all, watch->timer_fd, EPOLLIN, 2 * watch->id + 1) ||
        !add_fd(all, watch->event_fd, EPOLLONESHOT, 2 * watch->id)) {
        remove_fd(all, watch->timer_fd);
        return wefti_error_system("watcher of the network (epoll_ctl)");
    }
    watch->next = all->watches;
    all->watches = watch;
    return WEFT_OK;
}

static const wefti_shared_kind watcher_kind = {
    .name = "weft-net",
    .what = "watcher of the network",
    .bytes = sizeof(watcher),
    .open = open_watcher,
    .close = close_watcher,
    .run = watch_ports,
    .wake = stop,
    .takes = takes,
    .add = add,
};

static wefti_shared_list watchers = WEFTI_SHARED_LIST(watcher_kind);

/* Once its news has returned. */
static void take_out(wefti_net_watch *watch)
{
    watcher *all = watch->of;
    pthread_mutex_lock(&all->shared.lock);
    remove_fd(all, watch->event_fd);
    remove_fd(all, watch->timer_fd);
    wefti_net_watch **link = &all->watches;
    while (*link != watch) {
        link = &(*link)->next;
    }
    *link = watch->next;
    while (all->current == watch) {
        pthread_cond_wait(&all->shared.changed, &all->shared.lock);
    }
    pthread_mutex_unlock(&all->shared.lock);
}

weft_status wefti_net_watch_start(uint64_t job, int event_fd,
                                  bool (*news)(void *context), void *context,
                                  wefti_net_watch **watch_out)
{
    wefti_net_watch *watch = calloc(1, sizeof(*watch));
    if (!watch) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a watcher");
    }
    watch->job = job;
    watch->event_fd = event_fd;
    watch->news = news;
    watch->context = context;
    watch->timer_fd =
        timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (watch->timer_fd < 0) {
        free(watch);
        return wefti_error_system("watcher of the network (timerfd_create)");
    }
    weft_status status = wefti_shared_join(&watchers, watch);
    if (status != WEFT_OK) {
        watch->of = NULL;
        wefti_net_watch_stop(watch);
        return status;
    }
    *watch_out = watch;
    return WEFT_OK;
}

void wefti_net_watch_stop(wefti_net_watch *watch)
{
    if (!watch) {
        return;
    }
    if (watch->of) { /* NULL: it was never added */
        take_out(watch);
        wefti_shared_leave(&watchers, &watch->of->shared);
    }
    close(watch->timer_fd);
    free(watch);
}

const wefti_thread_work *wefti_net_watch_get_work(const wefti_net_watch *watch)
{
    return &watch->of->shared.work;
}

void wefti_net_watch_arm(wefti_net_watch *watch)
{
    if (watch && !atomic_exchange(&watch->armed, true)) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT,
                                    .data = {.u64 = 2 * watch->id}};
        (void)epoll_ctl(watch->of->epoll_fd, EPOLL_CTL_MOD, watch->event_fd,
                        &event);
    }
}

void wefti_net_watch_leave(wefti_net_watch *watch)
{
    if (!watch) {
        return;
    }
    const uint64_t departures = atomic_fetch_add(&watch->departures, 1) + 1;
    if (!atomic_exchange(&watch->lingering, true)) {
        atomic_store(&watch->noted, departures);
        start_timer(watch);
    }
}
