/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/copies.c - places, a queue of those with a request, and the
 * streams.
 *
 * Each place has at most one request, so the queue has room for all. One
 * thread hands over at a time: the order of asking is that of the streams.
 *
 *   place:  asked >= handed >= the counter of its chunk of the gate `copied`
 */
#include "comm/engine/copies.h"

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/control/fault.h"
#include "comm/core/wake.h"
#include "comm/engine/op.h"
#include "comm/nccl/twin.h"
#include "device/failure.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    BATCH = 16,    /* handed over between two looks at the lock */
    MEM_PLACES = 2 /* behind those of lists: of puts, and what peers put here */
};

/* One place: its last request, and how many there were. */
typedef struct place {
    void *dst;
    const void *src;
    size_t bytes;
    uint64_t asked, handed, done; /* done: as far as it was looked at */
    bool refused;                 /* by the device: it will never be done */
} place;

struct wefti_copies {
    weft_stream *fetches, *stores;
    weft_gate *copied; /* chunk: place; epoch: which of its copies */
    wefti_gate_watcher watcher;
    place *places; /* [count] */
    size_t count;
    size_t *queue;       /* [count], places in the order of asking */
    uint64_t first, end; /* ever handed over, and ever asked for */
    uint64_t looked;     /* the engine's device_looks that has been here */
    bool handing;        /* somebody is between the lock and the device */
    bool arena_pinned;
};

static bool needs_copies(const weft_device *device)
{
    return device && !wefti_device_can(device, WEFT_CAP_HOST_READS);
}

static weft_status build(weft_comm *comm, weft_device *device,
                         wefti_copies *copies)
{
    const weft_stream_config config = {.size_bytes = sizeof(config),
                                       .sm_budget = comm->sm_budget};
    copies->count =
        wefti_op_count(comm) * WEFTI_STEP_LISTS * WEFTI_COPY_WAYS + MEM_PLACES;
    copies->places = calloc(copies->count, sizeof(*copies->places));
    copies->queue = calloc(copies->count, sizeof(*copies->queue));
    if (!copies->places || !copies->queue) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu copies",
                           copies->count);
    }
    weft_status status =
        weft_gate_create(device, copies->count, &copies->copied);
    if (status == WEFT_OK) {
        copies->watcher.woken = wefti_engine_woken;
        copies->watcher.context = comm->engine;
        wefti_gate_watch(copies->copied, &copies->watcher);
        status = weft_stream_create_as(device, &config, &copies->fetches);
    }
    return status == WEFT_OK
               ? weft_stream_create_as(device, &config, &copies->stores)
               : status;
}

static void report_unpinned(const weft_comm *comm, const weft_device *device,
                            size_t bytes)
{
    wefti_log(WEFTI_LOG_WARN, comm->rank,
              "\"%s\": %zu bytes of staging could not be pinned for %s device "
              "%d, copies take longer: %s",
              comm->name, bytes, wefti_device_get_table(device)->kind,
              wefti_device_get_index(device), weft_error_text());
}

/* Drains first: until then the staging is in use. */
static void release(wefti_copies *copies)
{
    weft_stream_destroy(copies->fetches);
    weft_stream_destroy(copies->stores);
    if (copies->watcher.watches) {
        wefti_gate_unwatch(copies->copied, &copies->watcher);
    }
    weft_gate_destroy(copies->copied);
    free(copies->places);
    free(copies->queue);
    free(copies);
}

static void pin(const weft_comm *comm, weft_device *device,
                wefti_mapping *mapping)
{
    if (mapping && wefti_mapping_pin(mapping, device) != WEFT_OK) {
        report_unpinned(comm, device, wefti_mapping_get_bytes(mapping));
    }
}

static wefti_mapping *get_outgoing(const weft_comm *comm, int number)
{
    return wefti_fabric_get_outgoing(&comm->fabric, number / WEFTI_P2P_AREAS,
                                     number % WEFTI_P2P_AREAS);
}

/* NULL: the host reads all of device's memory. */
static weft_status make(weft_comm *comm, weft_device *device,
                        wefti_copies **copies_out)
{
    *copies_out = NULL;
    if (!needs_copies(device)) {
        return WEFT_OK;
    }
    wefti_copies *copies = calloc(1, sizeof(*copies));
    if (!copies) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for copies");
    }
    weft_status status = build(comm, device, copies);
    if (status != WEFT_OK) {
        release(copies);
        return status;
    }
    pin(comm, device, comm->mapping);
    copies->arena_pinned =
        weft_device_register(device, comm->arena, comm->arena_bytes) == WEFT_OK;
    if (!copies->arena_pinned) {
        report_unpinned(comm, device, comm->arena_bytes);
    }
    *copies_out = copies;
    return WEFT_OK;
}

static void take(weft_comm *comm, weft_device *device, wefti_copies *copies)
{
    comm->device = device;
    comm->copies = copies;
    if (copies) {
        comm->heap_bytes += sizeof(*copies) + copies->count * sizeof(place) +
                            copies->count * sizeof(size_t);
    }
}

weft_status wefti_copies_create(weft_comm *comm)
{
    wefti_copies *copies;
    weft_status status = make(comm, comm->device, &copies);
    if (status == WEFT_OK) {
        take(comm, comm->device, copies);
    }
    return status;
}

weft_status wefti_copies_create_late(weft_comm *comm, weft_device *device)
{
    wefti_copies *copies;
    weft_status status = make(comm, device, &copies);
    if (status != WEFT_OK) {
        return status;
    }
    /* What is opened meanwhile is pinned here or there. */
    pthread_mutex_lock(&comm->queues_lock);
    for (int i = 0; copies && i < comm->nranks * WEFTI_P2P_AREAS; i++) {
        pin(comm, device, get_outgoing(comm, i));
    }
    pthread_mutex_lock(&comm->engine->lock);
    take(comm, device, copies);
    pthread_mutex_unlock(&comm->engine->lock);
    pthread_mutex_unlock(&comm->queues_lock);
    return WEFT_OK;
}

void wefti_copies_destroy(weft_comm *comm)
{
    wefti_copies *copies = comm->copies;
    if (!copies) {
        return;
    }
    const bool arena_pinned = copies->arena_pinned;
    release(copies);
    if (arena_pinned) {
        weft_device_unregister(comm->device, comm->arena);
    }
    wefti_copies_unpin(comm, comm->mapping);
    for (int i = 0; i < comm->nranks * WEFTI_P2P_AREAS; i++) {
        wefti_copies_unpin(comm, get_outgoing(comm, i));
    }
    comm->copies = NULL;
}

void wefti_copies_pin(weft_comm *comm, wefti_mapping *mapping)
{
    if (comm->copies) {
        pin(comm, comm->device, mapping);
    }
}

void wefti_copies_unpin(weft_comm *comm, wefti_mapping *mapping)
{
    if (comm->copies && mapping) {
        wefti_mapping_unpin(mapping, comm->device);
    }
}

size_t wefti_copy_place(const weft_comm *comm, const wefti_op *op,
                        const wefti_step_list *list, int way)
{
    const size_t number = wefti_op_index(comm, op) * WEFTI_STEP_LISTS +
                          (size_t)(list - op->lists);
    return number * WEFTI_COPY_WAYS + (size_t)way;
}

size_t wefti_copy_place_of_mem(const weft_comm *comm, bool stored)
{
    return comm->copies->count - MEM_PLACES + stored;
}

void *wefti_copies_get_bounce(const weft_comm *comm)
{
    return comm->arena + comm->arena_bytes - WEFTI_P2P_SLOT_BYTES;
}

void wefti_copies_ask(weft_comm *comm, size_t at, void *dst, const void *src,
                      size_t bytes)
{
    wefti_copies *copies = comm->copies;
    place *asking = &copies->places[at];
    WEFTI_ASSERT(asking->asked == asking->handed);
    asking->dst = dst;
    asking->src = src;
    asking->bytes = bytes;
    asking->asked++;
    copies->queue[copies->end++ % copies->count] = at;
    comm->engine->copies_asked++;
}

/* Names whom the refused copy was for. text is the device's. Lock held. */
static void fail(weft_comm *comm, size_t at, weft_status status,
                 const char *text)
{
    const size_t number = at / (WEFTI_STEP_LISTS * WEFTI_COPY_WAYS);
    comm->copies->places[at].refused = true;
    if (at >= wefti_copy_place_of_mem(comm, false)) {
        wefti_fault_publish(
            comm, status, comm->rank, 0,
            "%sput into a weft_mem of \"%s\": rank %d's device "
            "refused a copy: %s",
            at == wefti_copy_place_of_mem(comm, true) ? "what was " : "",
            comm->name, comm->rank, text);
        return;
    }
    char what[200];
    snprintf(what, sizeof(what), "rank %d's device refused a copy: %s",
             comm->rank, text);
    wefti_op_fail(comm, wefti_op_at(comm, number), status, what);
}

bool wefti_copies_are_done(weft_comm *comm, size_t at)
{
    const wefti_copies *copies = comm->copies;
    place *asked = &copies->places[at];
    if (asked->done == asked->asked) {
        return true;
    }
    if (!asked->refused &&
        wefti_gate_reached(copies->copied, at, asked->asked)) {
        /* A gate that has failed with its device counts as reached. */
        const char *text;
        weft_status status = wefti_gate_get_failure(copies->copied, &text);
        if (status == WEFT_OK) {
            asked->done = asked->asked;
            return true;
        }
        fail(comm, at, status, text);
    }
    wefti_engine_look(comm->engine, copies->copied);
    return false;
}

weft_status wefti_copies_run(weft_comm *comm, void *dst, const void *src,
                             size_t bytes)
{
    weft_stream *stream = comm->copies->stores;
    weft_status status =
        weft_device_copy(comm->device, dst, src, bytes, stream);
    return status == WEFT_OK ? weft_stream_wait(stream) : status;
}

/* To the stream, and behind it the word that says it is done. */
static weft_status hand_over(const wefti_copies *copies, weft_device *device,
                             size_t at, const place *asked)
{
    const bool stores = at < copies->count - MEM_PLACES
                            ? at % WEFTI_COPY_WAYS == WEFTI_COPY_STORE
                            : at + 1 == copies->count;
    weft_stream *stream = stores ? copies->stores : copies->fetches;
    weft_status status =
        weft_device_copy(device, asked->dst, asked->src, asked->bytes, stream);
    return status == WEFT_OK
               ? weft_gate_signal(copies->copied, at, asked->asked, stream)
               : status;
}

/* Up to BATCH of comm's; the lock is held before and after. */
static void hand_over_some(weft_comm *comm)
{
    wefti_copies *copies = comm->copies;
    size_t places[BATCH], count = 0;
    place asked[BATCH];
    while (count < BATCH && copies->first < copies->end) {
        const size_t at = copies->queue[copies->first++ % copies->count];
        copies->places[at].handed = copies->places[at].asked;
        places[count] = at;
        asked[count++] = copies->places[at];
    }
    comm->engine->copies_asked -= count;
    copies->handing = true;
    pthread_mutex_unlock(&comm->engine->lock);
    weft_status status = WEFT_OK;
    size_t done = 0;
    while (done < count && status == WEFT_OK) {
        status = hand_over(copies, comm->device, places[done], &asked[done]);
        done += status == WEFT_OK;
    }
    char text[160] = "";
    if (status != WEFT_OK) {
        snprintf(text, sizeof(text), "%s", weft_error_text());
    }
    pthread_mutex_lock(&comm->engine->lock);
    for (; done < count; done++) { /* nor what stands behind it */
        fail(comm, places[done], status, text);
    }
    copies->handing = false;
}

/* The next communicator that has asked for something. */
static weft_comm *find_asking(const wefti_engine *engine)
{
    weft_comm *comm = engine->comms;
    while (comm &&
           (!comm->copies || comm->copies->first == comm->copies->end)) {
        comm = comm->next;
    }
    return comm;
}

void wefti_copies_hand_over(wefti_engine *engine)
{
    if (engine->handing) {
        return; /* who is at it looks again before it leaves */
    }
    engine->handing = true;
    while (engine->copies_asked > 0) {
        hand_over_some(find_asking(engine));
    }
    engine->handing = false;
}

/* The next communicator whose device is to be asked whether it has failed. */
static weft_comm *find_unasked(const wefti_engine *engine, uint64_t round)
{
    weft_comm *comm = engine->comms;
    while (comm && (!comm->copies || comm->copies->looked == round)) {
        comm = comm->next;
    }
    return comm;
}

/* The oldest collective that NCCL has, else a message. */
static const wefti_op *find_oldest(const weft_comm *comm)
{
    const wefti_op *oldest = NULL;
    const size_t messages = 2 * (size_t)comm->nranks; /* of queue 0 alone */
    for (size_t i = 0; i < WEFTI_OP_SLOTS + messages; i++) {
        const wefti_op *op = wefti_op_at(comm, i);
        const bool message = i >= WEFTI_OP_SLOTS;
        if (wefti_op_pending(op) && op->choice.route == WEFTI_ROUTE_NCCL &&
            (!oldest || (!message && op->number < oldest->number))) {
            oldest = op;
        }
    }
    return oldest;
}

/* NCCL says of itself that it has failed. */
static void fail_by_nccl(weft_comm *comm, weft_status status, const char *why)
{
    const wefti_op *op = find_oldest(comm);
    char what[240];
    snprintf(what, sizeof(what), "rank %d's NCCL has failed: %s", comm->rank,
             why);
    if (op) {
        wefti_op_fail(comm, op, status, what);
    } else {
        wefti_fault_publish(comm, status, comm->rank, 0, "\"%s\": %s",
                            comm->name, what);
    }
}

void wefti_copies_look(wefti_engine *engine)
{
    if (engine->handing) {
        return;
    }
    engine->handing = true;
    const uint64_t round = ++engine->device_looks;
    weft_comm *comm;
    while ((comm = find_unasked(engine, round)) != NULL) {
        wefti_twin *twin = comm->twin;
        comm->copies->looked = round;
        comm->copies->handing = true;
        pthread_mutex_unlock(&engine->lock);
        wefti_device_look(comm->device);
        weft_status status = wefti_twin_look(twin);
        char why[200];
        snprintf(why, sizeof(why), "%s", status ? weft_error_text() : "");
        pthread_mutex_lock(&engine->lock);
        if (status != WEFT_OK) {
            fail_by_nccl(comm, status, why);
        }
        comm->copies->handing = false;
    }
    engine->handing = false;
}

void wefti_copies_await_hands(weft_comm *comm)
{
    while (comm->copies && comm->copies->handing) {
        pthread_mutex_unlock(&comm->engine->lock);
        sched_yield();
        pthread_mutex_lock(&comm->engine->lock);
    }
}

void wefti_copies_drop(weft_comm *comm)
{
    wefti_copies *copies = comm->copies;
    for (; copies && copies->first < copies->end; copies->first++) {
        place *asked =
            &copies->places[copies->queue[copies->first % copies->count]];
        asked->asked = asked->handed;
        comm->engine->copies_asked--;
    }
}

/* Handed over, if anything was asked for, and with the device no more. */
static bool is_over(const wefti_copies *copies, size_t at)
{
    const place *asked = &copies->places[at];
    return asked->refused || asked->done == asked->asked ||
           (asked->handed == asked->asked &&
            wefti_gate_reached(copies->copied, at, asked->asked));
}

bool wefti_copies_is_over(const weft_comm *comm, size_t at)
{
    return is_over(comm->copies, at);
}

bool wefti_copies_are_over(weft_comm *comm)
{
    wefti_copies *copies = comm->copies;
    if (!copies) {
        return true;
    }
    bool over = !copies->handing && copies->first == copies->end;
    for (size_t at = 0; over && at < copies->count; at++) {
        over = is_over(copies, at);
    }
    return over;
}

bool wefti_copies_are_handed(const weft_comm *comm)
{
    return !comm->copies || !comm->copies->handing;
}
