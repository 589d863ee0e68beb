/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/held_work.c - the queue of an engine's work, and doing it.
 */
#include "comm/engine/held_work.h"

#include "comm/engine/copies.h"

void wefti_held_work_ask(wefti_held_work *work)
{
    wefti_held_work **link = &work->comm->engine->works;
    while (*link && ((*link)->urgent || !work->urgent)) {
        link = &(*link)->next;
    }
    work->next = *link;
    *link = work;
    work->comm->held++;
}

/* The first that may be done now: what calls a program's function waits for
 * its communicator's other one. */
static wefti_held_work **find_first(wefti_engine *engine)
{
    wefti_held_work **link = &engine->works;
    while (*link && (*link)->alone && (*link)->comm->alone) {
        link = &(*link)->next;
    }
    return link;
}

wefti_held_work *wefti_held_work_take(wefti_engine *engine)
{
    wefti_held_work **link = find_first(engine);
    wefti_held_work *work = *link;
    if (work) {
        *link = work->next;
        work->comm->alone |= work->alone;
    }
    return work;
}

void wefti_held_work_end(wefti_held_work *work)
{
    weft_comm *comm = work->comm;
    comm->held--;
    comm->alone = comm->alone && !work->alone;
    comm->engine->worked = true;
    work->end(work);
}

bool wefti_engine_work(wefti_engine *engine)
{
    if (engine->works && engine->copies_asked) {
        wefti_copies_hand_over(engine); /* the device is at it meanwhile */
    }
    wefti_held_work *work = wefti_held_work_take(engine);
    if (!work) {
        return false;
    }
    pthread_mutex_unlock(&engine->lock);
    work->make(work);
    pthread_mutex_lock(&engine->lock);
    wefti_held_work_end(work);
    return true;
}

void wefti_held_work_tell(wefti_engine *engine)
{
    if (engine->worked || *find_first(engine)) {
        engine->worked = false;
        wefti_doorbell_ring(engine->bell);
    }
}
