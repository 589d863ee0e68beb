/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/inbox.c - takes what another domain sends about a communicator
 * into the memory that all ranks of this domain see.
 */
#include "comm/control/ballot_cell.h"
#include "comm/control/channel_state.h"
#include "comm/control/fault.h"

#include <string.h>

static weft_comm *find_comm(const wefti_engine *engine, uint64_t id)
{
    weft_comm *comm = engine->comms;
    while (comm && comm->fabric.id != id) {
        comm = comm->next;
    }
    return comm;
}

static bool take_fault(weft_comm *comm, const wefti_note *note)
{
    wefti_fault_page page = {.status = note->status,
                             .rank = note->rank,
                             .op_number = note->op_number,
                             .completed = note->completed};
    memcpy(page.text, note->text, sizeof(page.text));
    if (note->rank < comm->nranks) {
        wefti_fault_repeat(comm, &page);
    }
    return true;
}

/* Only a domain itself votes for it. */
static bool take_ballot(weft_comm *comm, const wefti_peer_probe *probe,
                        const wefti_note *note)
{
    const int domain = (int)note->place.domain;
    if (domain < comm->nranks) {
        const int *domains = comm->engine->control->domains;
        const int world_rank = comm->peers[domain].world_rank;
        if (comm->peers[domain].first == domain &&
            domains[world_rank] == domains[probe->peer]) {
            wefti_ballot_take(comm, &note->place, &note->vote);
        }
    }
    return true;
}

void wefti_control_receive(wefti_control *control, wefti_peer_probe *probe,
                           const wefti_note *note)
{
    wefti_engine *engine = control->engine;
    wefti_note ack = {.kind = WEFTI_NOTE_ACK, .serial = note->serial};
    if (note->kind == WEFTI_NOTE_ACK) {
        wefti_notices_acknowledge(control, note);
        return;
    }
    pthread_mutex_lock(&engine->lock);
    weft_comm *comm = find_comm(engine, note->comm);
    if (note->kind == WEFTI_NOTE_PING) {
        ack.known = true;
    } else if (comm && note->kind == WEFTI_NOTE_FAULT) {
        ack.known = take_fault(comm, note);
    } else if (comm && note->kind == WEFTI_NOTE_BALLOT) {
        ack.known = take_ballot(comm, probe, note);
    }
    pthread_mutex_unlock(&engine->lock);
    if (note->kind != WEFTI_NOTE_PRESENT) {
        wefti_peer_probe_send(probe, &ack);
    }
}
