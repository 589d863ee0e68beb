/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/errand.c - a note goes to one rank of a domain after the other,
 * until one of them has heard it.
 *
 * Who does not answer within HEARD_NS may only be slow: he keeps what was sent,
 * and every note may be heard twice.
 */
#include "comm/control/channel_state.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEARD_NS = 300000000 };
static const int64_t errand_ns = 10 * INT64_C(1000000000);

static void append(wefti_control *control, wefti_errand *errand)
{
    const uint64_t one = 1;
    pthread_mutex_lock(&control->lock);
    *control->inbox_end = errand;
    control->inbox_end = &errand->next;
    pthread_mutex_unlock(&control->lock);
    ssize_t written = write(control->wake_fd, &one, sizeof(one));
    (void)written;
}

void wefti_control_tell(weft_comm *comm, int peer, const wefti_note *note)
{
    wefti_control *control = comm->engine->control;
    if (!control) {
        return;
    }
    const int domain = control->domains[comm->peers[peer].world_rank];
    wefti_errand *errand =
        calloc(1, sizeof(*errand) + (size_t)comm->nranks * sizeof(int));
    if (!errand) {
        wefti_log(WEFTI_LOG_ERROR, comm->rank,
                  "no memory to tell rank %d's host what happened", peer);
        return;
    }
    errand->note = *note;
    errand->note.comm = comm->fabric.id;
    errand->culprit = note->kind == WEFTI_NOTE_FAULT && note->rank >= 0
                          ? comm->peers[note->rank].world_rank
                          : -1;
    for (int rank = 0; rank < comm->nranks; rank++) {
        int world_rank = comm->peers[rank].world_rank;
        if (control->domains[world_rank] == domain) {
            errand->ranks[errand->count++] = world_rank;
        }
    }
    append(control, errand);
}

void wefti_control_tell_all(weft_comm *comm, const wefti_note *note)
{
    const wefti_control *control = comm->engine->control;
    for (int peer = 0; control && peer < comm->nranks; peer++) {
        if (comm->peers[peer].first == peer &&
            peer != comm->peers[comm->rank].first) {
            wefti_control_tell(comm, peer, note);
        }
    }
}

void wefti_control_ask(weft_comm *comm, int peer)
{
    const wefti_note ping = {.kind = WEFTI_NOTE_PING};
    wefti_control_tell(comm, peer, &ping);
}

void wefti_errands_take(wefti_control *control, int64_t now_ns)
{
    pthread_mutex_lock(&control->lock);
    wefti_errand *list = control->inbox;
    control->inbox = NULL;
    control->inbox_end = &control->inbox;
    pthread_mutex_unlock(&control->lock);
    wefti_errand **end = &control->errands;
    while (*end) {
        end = &(*end)->next;
    }
    *end = list;
    for (; list; list = list->next) {
        list->note.serial = ++control->serial;
        list->until_ns = now_ns + errand_ns;
        list->since_ns = now_ns;
    }
}

static void go_to_next(wefti_errand *errand, int64_t now_ns)
{
    errand->at++;
    errand->said = false;
    errand->since_ns = now_ns;
}

/* Moves one errand as far as it goes; false: it has ended. */
static bool advance(wefti_control *control, wefti_errand *errand,
                    int64_t now_ns)
{
    while (errand->at < errand->count && now_ns < errand->until_ns) {
        const int rank = errand->ranks[errand->at];
        if (wefti_control_get_fate(control, rank) != WEFTI_FATE_NONE) {
            go_to_next(errand, now_ns);
            continue;
        }
        if (now_ns - errand->since_ns > HEARD_NS &&
            errand->at + 1 < errand->count) {
            go_to_next(errand, now_ns);
            continue;
        }
        wefti_contact *contact = wefti_control_find_contact(control, rank);
        if (!contact) {
            errand->said = false;
            wefti_control_call(control, rank, now_ns);
        } else if (contact->state != WEFTI_CONTACT_OPEN) {
            errand->said = false;
        } else if (!errand->said) {
            errand->said = true;
            wefti_contact_say(contact, &errand->note);
        }
        return true;
    }
    return false;
}

int64_t wefti_errands_advance(wefti_control *control, int64_t now_ns)
{
    int64_t next_ns = INT64_MAX;
    for (wefti_errand **link = &control->errands; *link;) {
        wefti_errand *errand = *link;
        if (!advance(control, errand, now_ns)) {
            *link = errand->next;
            free(errand);
            continue;
        }
        int64_t look_ns = now_ns + HEARD_NS + 1;
        next_ns = look_ns < next_ns ? look_ns : next_ns;
        link = &errand->next;
    }
    return next_ns;
}

/* Whether its note lies with the kernel of the rank that it is for. */
static bool is_delivered(wefti_control *control, const wefti_errand *errand)
{
    const wefti_contact *contact =
        errand->at < errand->count
            ? wefti_control_find_contact(control, errand->ranks[errand->at])
            : NULL;
    return contact && contact->state == WEFTI_CONTACT_OPEN && errand->said &&
           !wefti_oob_connection_has_output(&contact->connection) &&
           contact->unheard_ns == 0;
}

/* A question whose asker goes; a fault that its own rank shall hear. */
static bool is_idle(const wefti_errand *errand)
{
    return errand->note.kind == WEFTI_NOTE_PING ||
           (errand->at < errand->count &&
            errand->ranks[errand->at] == errand->culprit);
}

bool wefti_errands_may_end(wefti_control *control)
{
    for (const wefti_errand *errand = control->errands; errand;
         errand = errand->next) {
        if (!is_idle(errand) && !is_delivered(control, errand)) {
            return false;
        }
    }
    return true;
}

void wefti_errands_lost(wefti_control *control, int rank)
{
    for (wefti_errand *errand = control->errands; errand;
         errand = errand->next) {
        if (errand->at < errand->count && errand->ranks[errand->at] == rank) {
            errand->said = false;
        }
    }
}

void wefti_errands_heard(wefti_control *control, const wefti_note *heard)
{
    for (wefti_errand **link = &control->errands; *link;
         link = &(*link)->next) {
        wefti_errand *errand = *link;
        if (errand->note.serial != heard->serial) {
            continue;
        }
        if (heard->known) {
            *link = errand->next;
            free(errand);
        } else {
            go_to_next(errand, wefti_clock_ns());
        }
        return;
    }
}
