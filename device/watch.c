/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/watch.c - who is called when a gate is signalled.
 *
 * A signaller passes over the list without holding the gate's lock while it
 * calls. Its place is kept in a record on its stack that unwatch can see:
 *
 *     watchers:  A -> B -> C          pass: current A (being called), next B
 *     unwatch(B) by anyone:  A -> C         next moves on to C
 *     unwatch(A) by another thread:         waits until current leaves A
 *     unwatch(A) from inside A's call:      current is cleared, A forgotten
 *
 * so a watcher's memory is never touched after its unwatch has returned.
 */
#include "base/check.h"
#include "device/object.h"

struct wefti_gate_pass {
    wefti_gate_pass *outer; /* another pass over the same gate */
    wefti_gate_watcher *current, *next;
    pthread_t thread;
};

static bool same_call(const wefti_gate_watcher *a, const wefti_gate_watcher *b)
{
    return a->woken == b->woken && a->context == b->context;
}

void wefti_gate_watch(weft_gate *gate, wefti_gate_watcher *watcher)
{
    pthread_mutex_lock(&gate->lock);
    wefti_gate_watcher **place = NULL;
    wefti_gate_watcher *other = gate->watchers;
    for (; other && other != watcher; other = other->next) {
        if (!place && same_call(other, watcher)) {
            place = &other->next; /* equal ones stand together: one call */
        }
    }
    if (other) {
        watcher->watches++;
    } else {
        place = place ? place : &gate->watchers;
        watcher->watches = 1;
        watcher->next = *place;
        *place = watcher;
        atomic_fetch_add(&gate->watched, 1);
        wefti_gate_hold(gate);
    }
    pthread_mutex_unlock(&gate->lock);
}

static void unlink_watcher(weft_gate *gate, wefti_gate_watcher *watcher)
{
    wefti_gate_watcher **place = &gate->watchers;
    while (*place != watcher) {
        WEFTI_ASSERT(*place != NULL);
        place = &(*place)->next;
    }
    *place = watcher->next;
    atomic_fetch_sub(&gate->watched, 1);
    for (wefti_gate_pass *pass = gate->passes; pass; pass = pass->outer) {
        if (pass->next == watcher) {
            pass->next = watcher->next;
        }
        if (pass->current == watcher &&
            pthread_equal(pass->thread, pthread_self())) {
            pass->current = NULL; /* we are inside that very call */
        }
    }
}

static bool is_being_called(const weft_gate *gate,
                            const wefti_gate_watcher *watcher)
{
    for (wefti_gate_pass *pass = gate->passes; pass; pass = pass->outer) {
        if (pass->current == watcher) {
            return true;
        }
    }
    return false;
}

void wefti_gate_unwatch(weft_gate *gate, wefti_gate_watcher *watcher)
{
    pthread_mutex_lock(&gate->lock);
    WEFTI_ASSERT(watcher->watches > 0);
    const bool last = --watcher->watches == 0;
    if (last) {
        unlink_watcher(gate, watcher);
        while (is_being_called(gate, watcher)) {
            pthread_cond_wait(&gate->left, &gate->lock);
        }
    }
    pthread_mutex_unlock(&gate->lock);
    if (last) {
        wefti_gate_drop(gate);
    }
}

/* The next watcher to call; skips those that ask for the call just made. */
static wefti_gate_watcher *step(wefti_gate_pass *pass)
{
    wefti_gate_watcher *next = pass->next;
    while (next && pass->current && same_call(next, pass->current)) {
        next = next->next;
    }
    pass->next = next ? next->next : NULL;
    return next;
}

void wefti_gate_call_watchers(weft_gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    wefti_gate_pass pass = {gate->passes, NULL, gate->watchers, pthread_self()};
    gate->passes = &pass;
    while ((pass.current = step(&pass)) != NULL) {
        void (*woken)(void *context) = pass.current->woken;
        void *context = pass.current->context;
        pthread_mutex_unlock(&gate->lock);
        woken(context);
        pthread_mutex_lock(&gate->lock);
        pthread_cond_broadcast(&gate->left);
    }
    wefti_gate_pass **place = &gate->passes;
    while (*place != &pass) {
        place = &(*place)->outer;
    }
    *place = pass.outer;
    pthread_mutex_unlock(&gate->lock);
}
