/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/abort.c - what a program does about faults: it asks for one, and
 * makes one.
 */
#include "comm/watch/abort.h"

#include "base/error.h"
#include "base/sized.h"
#include "comm/control/fault.h"
#include "comm/core/live.h"
#include "comm/engine/request.h"
#include "comm/net/net.h"
#include "comm/watch/peer_life.h"

#include <stdio.h>
#include <string.h>

weft_status weft_comm_get_fault(weft_comm *comm, weft_fault *fault_out)
{
    if (!wefti_comm_is_live(comm)) {
        return wefti_comm_refuse(comm, "comm");
    }
    if (!fault_out) {
        return wefti_error(WEFT_ERR_INVALID,
                           "fault_out is NULL: allowed is a weft_fault");
    }
    weft_status sized =
        wefti_sized_check("fault_out", fault_out->size_bytes,
                          offsetof(weft_fault, op_number), sizeof(*fault_out));
    if (sized != WEFT_OK) {
        return sized;
    }
    wefti_fault_page *page = &comm->fabric.shared.header->fault;
    if (comm->fabric.net && pthread_mutex_trylock(&comm->engine->lock) == 0) {
        (void)wefti_net_progress(comm->engine->net);
        pthread_mutex_unlock(&comm->engine->lock);
    }
    weft_fault found = {.rank = -1};
    if (atomic_load(&page->state) == 2) {
        found.status = (weft_status)page->status;
        found.rank = page->rank;
        found.op_number = page->op_number;
        memcpy(found.text, page->text, sizeof(found.text));
    } else if (atomic_load(&comm->fault_seen)) {
        found = comm->fault;
    }
    wefti_sized_write(fault_out, &found, sizeof(found));
    return WEFT_OK;
}

/* The ranks that it ends learn how far this one has come. */
static void publish(weft_comm *comm, const char *did)
{
    const char *what;
    char last[64] = "";
    int64_t when_ns;
    const uint64_t number =
        wefti_peer_last_entered(comm, comm->rank, &what, &when_ns);
    if (number > 0) {
        snprintf(last, sizeof(last), " (its last: #%llu %s)",
                 (unsigned long long)number, what);
    }
    wefti_fault_publish(comm, WEFT_ERR_ABORTED, comm->rank, 0,
                        "rank %d %s \"%s\"%s", comm->rank, did, comm->name,
                        last);
}

/* Perhaps no rank drives the engine, and no message would go out. */
static void spread(weft_comm *comm)
{
    if (comm->fabric.net) {
        pthread_mutex_lock(&comm->engine->lock);
        (void)wefti_requests_stop(comm);
        pthread_mutex_unlock(&comm->engine->lock);
    }
}

void wefti_abort_publish(weft_comm *comm, const char *did)
{
    publish(comm, did);
    spread(comm);
}

void wefti_abort_because(weft_comm *comm, weft_status status, const char *text)
{
    wefti_fault_publish(comm, status, comm->rank, 0, "%s", text);
    spread(comm);
}

weft_status weft_comm_abort(weft_comm *comm)
{
    if (!wefti_comm_is_live(comm)) {
        return wefti_comm_refuse(comm, "comm");
    }
    wefti_abort_publish(comm, "aborted");
    return WEFT_OK;
}
