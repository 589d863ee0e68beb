/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/cancel.c - ending a creation from another thread.
 *
 * While ranks meet, a descriptor wakes the poll that this rank waits in
 * (comm/oob/client.c). Once there is a communicator to wait in, the new one or
 * the parent, that is failed: its ranks could not finish without this one.
 */
#include "comm/make/cancel.h"

#include "base/error.h"
#include "base/event.h"
#include "comm/watch/abort.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct weft_cancel {
    pthread_mutex_t lock; /* guards the rest but fd */
    bool posted;
    weft_comm *comm; /* attached; NULL: none is */
    int fd;
};

weft_status weft_cancel_create(weft_cancel **cancel_out)
{
    if (!cancel_out) {
        return wefti_error(WEFT_ERR_INVALID,
                           "cancel_out is NULL: allowed is a place for the "
                           "cancel");
    }
    *cancel_out = NULL;
    weft_cancel *made = calloc(1, sizeof(*made));
    if (!made) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a cancel");
    }
    made->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (made->fd < 0) {
        weft_status status =
            wefti_error_system("descriptor of a cancel (eventfd)");
        free(made);
        return status;
    }
    pthread_mutex_init(&made->lock, NULL);
    *cancel_out = made;
    return WEFT_OK;
}

static void give_up(weft_comm *comm)
{
    wefti_abort_publish(comm, "cancelled a creation on");
}

weft_status weft_cancel_post(weft_cancel *cancel)
{
    if (!cancel) {
        return wefti_error(WEFT_ERR_INVALID,
                           "cancel is NULL: allowed is a weft_cancel");
    }
    pthread_mutex_lock(&cancel->lock);
    if (!cancel->posted) {
        cancel->posted = true;
        wefti_event_ring(cancel->fd);
        if (cancel->comm) {
            give_up(cancel->comm);
        }
    }
    pthread_mutex_unlock(&cancel->lock);
    return WEFT_OK;
}

void weft_cancel_destroy(weft_cancel *cancel)
{
    if (cancel) {
        close(cancel->fd);
        pthread_mutex_destroy(&cancel->lock);
        free(cancel);
    }
}

const int *wefti_cancel_get_fd(const weft_cancel *cancel)
{
    return cancel ? &cancel->fd : NULL;
}

bool wefti_cancel_is_posted(weft_cancel *cancel)
{
    bool posted = false;
    if (cancel) {
        pthread_mutex_lock(&cancel->lock);
        posted = cancel->posted;
        pthread_mutex_unlock(&cancel->lock);
    }
    return posted;
}

void wefti_cancel_attach(weft_cancel *cancel, weft_comm *comm)
{
    if (!cancel) {
        return;
    }
    pthread_mutex_lock(&cancel->lock);
    cancel->comm = comm;
    if (cancel->posted) {
        give_up(comm);
    }
    pthread_mutex_unlock(&cancel->lock);
}

void wefti_cancel_detach(weft_cancel *cancel)
{
    if (cancel) {
        pthread_mutex_lock(&cancel->lock);
        cancel->comm = NULL;
        pthread_mutex_unlock(&cancel->lock);
    }
}
