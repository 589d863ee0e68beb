/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/shared_thread.c - which of a kind's threads serves whom.
 *
 * The list's lock is held over all of a join, so that no thread that has been
 * found ends; members leave without it.
 */
#include "base/shared_thread.h"

#include "base/error.h"

#include <stdlib.h>
#include <unistd.h>

static void destroy(const wefti_shared_kind *kind, wefti_shared_thread *self)
{
    if (kind->close) {
        kind->close(self);
    }
    pthread_mutex_destroy(&self->lock);
    pthread_cond_destroy(&self->changed);
    free(self);
}

static weft_status create(const wefti_shared_kind *kind,
                          wefti_shared_thread **self_out)
{
    wefti_shared_thread *self = calloc(1, kind->bytes);
    if (!self) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a %s",
                           kind->what);
    }
    self->process = getpid();
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
    weft_status status = kind->open(self);
    if (status != WEFT_OK) {
        destroy(kind, self);
        return status;
    }
    *self_out = self;
    return WEFT_OK;
}

static weft_status start(wefti_shared_list *list, wefti_shared_thread *self)
{
    const wefti_shared_kind *kind = list->kind;
    if (wefti_thread_start(kind->run, self, &self->thread) != 0) {
        return wefti_error_system("%s (pthread_create)", kind->what);
    }
    (void)pthread_setname_np(self->thread, kind->name);
    self->next = list->first;
    list->first = self;
    return WEFT_OK;
}

static bool takes(const wefti_shared_kind *kind, wefti_shared_thread *self,
                  const void *member)
{
    if (self->process != getpid()) {
        return false; /* its lock may be held by a thread that fork left behind
                       */
    }
    pthread_mutex_lock(&self->lock);
    const bool taken = kind->takes(self, member);
    pthread_mutex_unlock(&self->lock);
    return taken;
}

/* What is new starts when it has its member, and else is gone. */
static weft_status add(wefti_shared_list *list, wefti_shared_thread *self,
                       void *member)
{
    const bool is_new = self->users == 0;
    pthread_mutex_lock(&self->lock);
    weft_status status = list->kind->add(self, member);
    pthread_mutex_unlock(&self->lock);
    if (status == WEFT_OK && is_new) {
        status = start(list, self);
    }
    if (status == WEFT_OK) {
        self->users++;
    } else if (is_new) {
        destroy(list->kind, self);
    }
    return status;
}

weft_status wefti_shared_join(wefti_shared_list *list, void *member)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&list->lock);
    wefti_shared_thread *self = list->first;
    while (self && !takes(list->kind, self, member)) {
        self = self->next;
    }
    if (!self) {
        status = create(list->kind, &self);
    }
    if (status == WEFT_OK) {
        status = add(list, self, member);
    }
    pthread_mutex_unlock(&list->lock);
    return status;
}

void wefti_shared_leave(wefti_shared_list *list, wefti_shared_thread *self)
{
    pthread_mutex_lock(&list->lock);
    const bool last = --self->users == 0;
    for (wefti_shared_thread **link = &list->first; last && *link;
         link = &(*link)->next) {
        if (*link == self) {
            *link = self->next;
            break;
        }
    }
    pthread_mutex_unlock(&list->lock);
    if (last) {
        atomic_store(&self->stopping, true);
        list->kind->wake(self);
        pthread_join(self->thread, NULL);
        destroy(list->kind, self);
    }
}
