/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/channel_crew.c - who serves which channel.
 *
 *   joins, leaves                    thread
 *     lock: into members, more room    lock: members, room
 *     wake_fd                          a turn of each; over: lock: out, ended
 *     leaves: wait until ended         poll for all at once
 *
 * Members are taken out by the thread alone, and come to the front: so it walks
 * from the first that it has found without the lock.
 */
#include "comm/control/channel_crew.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/event.h"
#include "base/shared_thread.h"
#include "comm/control/channel_state.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct wefti_crew {
    wefti_shared_thread shared; /* changed: of ended */
    int wake_fd;
    wefti_control *members; /* linked by next; lock */
    struct pollfd *more;    /* for the thread to use instead; NULL: nothing */
    size_t room;            /* that all members need */
    struct pollfd *polled;  /* the thread's; wake_fd comes first */
};

static void wake(wefti_shared_thread *self)
{
    wefti_event_ring(((wefti_crew *)self)->wake_fd);
}

void wefti_crew_wake(wefti_crew *crew)
{
    wake(&crew->shared);
}

/* ---- the thread ------------------------------------------------------------
 */

/* Its members as they are now: the first of them. */
static wefti_control *take_changes(wefti_crew *crew)
{
    pthread_mutex_lock(&crew->shared.lock);
    if (crew->more) {
        free(crew->polled);
        crew->polled = crew->more;
        crew->more = NULL;
    }
    wefti_control *first = crew->members;
    pthread_mutex_unlock(&crew->shared.lock);
    return first;
}

static void let_go(wefti_crew *crew, wefti_control *control)
{
    pthread_mutex_lock(&crew->shared.lock);
    wefti_control **link = &crew->members;
    while (*link != control) {
        link = &(*link)->next;
    }
    *link = control->next;
    crew->room -= wefti_control_room(control);
    control->ended = true;
    pthread_cond_broadcast(&crew->shared.changed);
    pthread_mutex_unlock(&crew->shared.lock);
}

static void *run(void *argument)
{
    wefti_crew *crew = argument;
    wefti_thread_work_begin(&crew->shared.work);
    while (!atomic_load(&crew->shared.stopping)) {
        wefti_control *at = take_changes(crew), *after, *served = NULL;
        int64_t next_ns = INT64_MAX;
        nfds_t count = 1;
        crew->polled[0] =
            (struct pollfd){.fd = crew->wake_fd, .events = POLLIN};
        for (; at; at = after) {
            after = at->next;
            if (wefti_control_turn(at, &next_ns)) {
                count += wefti_control_watch(at, crew->polled + count);
                at->served = served;
                served = at;
            } else {
                let_go(crew, at);
            }
        }
        if (poll(crew->polled, count, wefti_clock_poll_ms(next_ns)) > 0) {
            if (crew->polled[0].revents) {
                wefti_event_take(crew->wake_fd);
            }
            for (; served; served = served->served) {
                wefti_control_serve(served);
            }
        }
    }
    return NULL;
}

/* ---- joining and leaving ---------------------------------------------------
 */

static weft_status open_crew(wefti_shared_thread *self)
{
    wefti_crew *crew = (wefti_crew *)self;
    crew->room = 1;
    crew->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return crew->wake_fd >= 0 ? WEFT_OK
                              : wefti_error_system("control channel (eventfd)");
}

static void close_crew(wefti_shared_thread *self)
{
    wefti_crew *crew = (wefti_crew *)self;
    if (crew->wake_fd >= 0) {
        close(crew->wake_fd);
    }
    free(crew->more);
    free(crew->polled);
}

/* Whether it serves none of the channel's job. */
static bool takes(const wefti_shared_thread *self, const void *member)
{
    const wefti_control *at = ((const wefti_crew *)self)->members;
    while (at && at->job != ((const wefti_control *)member)->job) {
        at = at->next;
    }
    return !at;
}

static weft_status add(wefti_shared_thread *self, void *member)
{
    wefti_crew *crew = (wefti_crew *)self;
    wefti_control *control = member;
    const size_t room = crew->room + wefti_control_room(control);
    struct pollfd *more = calloc(room, sizeof(*more));
    if (!more) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for the control channel");
    }
    free(crew->more);
    crew->more = more;
    crew->room = room;
    control->crew = crew;
    control->next = crew->members;
    crew->members = control;
    wake(self);
    return WEFT_OK;
}

static const wefti_shared_kind crew_kind = {
    .name = "weft-control",
    .what = "thread of the control channel",
    .bytes = sizeof(wefti_crew),
    .open = open_crew,
    .close = close_crew,
    .run = run,
    .wake = wake,
    .takes = takes,
    .add = add,
};

static wefti_shared_list crews = WEFTI_SHARED_LIST(crew_kind);

weft_status wefti_crew_join(wefti_control *control)
{
    weft_status status = wefti_shared_join(&crews, control);
    if (status != WEFT_OK) {
        control->crew = NULL;
    }
    return status;
}

void wefti_crew_leave(wefti_control *control)
{
    wefti_shared_thread *self = &control->crew->shared;
    wake(self);
    pthread_mutex_lock(&self->lock);
    while (!control->ended) {
        pthread_cond_wait(&self->changed, &self->lock);
    }
    pthread_mutex_unlock(&self->lock);
    wefti_shared_leave(&crews, self);
}
