/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/net_watch.c - why no wake-up is lost:
 *
 *   sleeper                           watcher
 *   seen = arm(bell)
 *   look for news: none
 *   arm the port: event_fd will tell  poll(event_fd) returns
 *   armed = true, ring(ask)           armed = false
 *   sleep(bell, seen)                 news: wake(bell), moves the count
 *
 * If armed = true comes after armed = false, the watcher polls again, and the
 * descriptor is readable if anything came since. If it comes before, so did
 * seen, and the wake moves the count that the sleeper compares.
 *
 * Who goes away does not arm: he is mostly back at once, and waking a thread
 * each time would cost more than a small operation. He sets left, and the
 * watcher looks after a while whether anybody has come since:
 *
 *   goer                              watcher
 *   left = true                       left was set: left = false
 *   lingering? else ring(ask)         lingering = true, sleep LINGER_NS
 *                                     lingering = false
 *                                     left again? linger again : news
 *
 * Either the goer sees that no thread lingers and rings, or the watcher sees
 * left.
 */
#include "comm/net/net_watch.h"

#include "base/doorbell.h"
#include "base/error.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { IDLE_NS = 1000000000, LINGER_NS = 1000000 };

struct wefti_net_watch {
    int event_fd, stop_fd;
    void (*news)(void *context);
    void *context;
    wefti_doorbell ask; /* the thread sleeps here while none asks */
    _Atomic bool armed; /* pairs with itself: set by sleepers, seq_cst */
    _Atomic bool left;  /* as is each of these two, by goers */
    _Atomic bool lingering;
    _Atomic bool stopping; /* stored before ask is rung */
    pthread_t thread;
    wefti_thread_work work;
};

/* Until the port is armed; news, once a thread has left and none since. */
static void rest(wefti_net_watch *watch)
{
    uint32_t seen = wefti_doorbell_arm(&watch->ask);
    bool lingers = atomic_exchange(&watch->left, false);
    atomic_store(&watch->lingering, lingers);
    if (!atomic_load(&watch->armed) && !atomic_load(&watch->stopping)) {
        wefti_doorbell_sleep(&watch->ask, seen, lingers ? LINGER_NS : IDLE_NS);
        wefti_thread_work_woken(&watch->work);
    }
    wefti_doorbell_disarm(&watch->ask, seen);
    atomic_store(&watch->lingering, false);
    if (lingers && !atomic_load(&watch->left) && !atomic_load(&watch->armed) &&
        !atomic_load(&watch->stopping)) {
        watch->news(watch->context);
    }
}

static void *watch_port(void *argument)
{
    wefti_net_watch *watch = argument;
    wefti_thread_work_begin(&watch->work);
    while (!atomic_load(&watch->stopping)) {
        if (!atomic_load(&watch->armed)) {
            rest(watch);
            continue;
        }
        struct pollfd wait[2] = {{.fd = watch->event_fd, .events = POLLIN},
                                 {.fd = watch->stop_fd, .events = POLLIN}};
        const int ready = poll(wait, 2, -1);
        wefti_thread_work_woken(&watch->work);
        if (ready > 0 && wait[0].revents) {
            atomic_store(&watch->armed, false);
            watch->news(watch->context);
        }
    }
    return NULL;
}

weft_status wefti_net_watch_start(int event_fd, void (*news)(void *context),
                                  void *context, wefti_net_watch **watch_out)
{
    wefti_net_watch *watch = calloc(1, sizeof(*watch));
    if (!watch) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a watcher");
    }
    watch->event_fd = event_fd;
    watch->news = news;
    watch->context = context;
    wefti_doorbell_init(&watch->ask);
    watch->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool started = watch->stop_fd >= 0 &&
                   wefti_thread_start(watch_port, watch, &watch->thread) == 0;
    if (!started) {
        weft_status status = wefti_error_system(
            "watcher of the network (%s)",
            watch->stop_fd >= 0 ? "pthread_create" : "eventfd");
        if (watch->stop_fd >= 0) {
            close(watch->stop_fd);
        }
        free(watch);
        return status;
    }
    *watch_out = watch;
    return WEFT_OK;
}

void wefti_net_watch_stop(wefti_net_watch *watch)
{
    const uint64_t one = 1;
    if (!watch) {
        return;
    }
    atomic_store(&watch->stopping, true);
    ssize_t written = write(watch->stop_fd, &one, sizeof(one));
    (void)written;
    wefti_doorbell_wake(&watch->ask);
    pthread_join(watch->thread, NULL);
    close(watch->stop_fd);
    free(watch);
}

const wefti_thread_work *wefti_net_watch_get_work(const wefti_net_watch *watch)
{
    return &watch->work;
}

void wefti_net_watch_arm(wefti_net_watch *watch)
{
    if (!watch) {
        return;
    }
    atomic_store(&watch->armed, true);
    wefti_doorbell_ring(&watch->ask);
}

void wefti_net_watch_leave(wefti_net_watch *watch)
{
    if (!watch) {
        return;
    }
    atomic_store(&watch->left, true);
    if (!atomic_load(&watch->lingering)) {
        wefti_doorbell_ring(&watch->ask);
    }
}
