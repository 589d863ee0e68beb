/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/profiler_events.c - one lock over all of it: NCCL calls some times
 * for each operation, which takes microseconds.
 *
 * An event's handle is its serial number, its place the number modulo the
 * number of places; a communicator's is its place and how often that has been
 * taken. What an event adds is added when it is known, so that nothing is lost
 * when its place is taken by another.
 */
#include "doors/nccl/profiler_events.h"

#include "doors/nccl/door_report.h"

#include "base/clock.h"
#include "base/settings.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 128, PLACE_BITS = 20 };

typedef struct profiler_comm {
    uint32_t taken; /* how often; odd: it is now */
    char name[NAME_BYTES];
    uint64_t hash;
    int rank, nranks;
    wefti_door_report report;
} profiler_comm;

typedef enum event_kind { OPERATION, CALL, CHANNEL } event_kind;

/*
 * begun_ns       by the host's clock, when it was made
 * first, last    of an operation: its kernel's channels, by one clock
 * clock          which; channels that know only the other one are left out
 * gpu_first, gpu_last   of a channel, by the GPU's; 0: not known
 */
typedef struct profiler_event {
    uint64_t serial, parent; /* 0: free */
    event_kind kind;
    void *context;
    int what;
    bool timed, seen;
    int64_t begun_ns;
    enum { NO_CLOCK, HOST_CLOCK, GPU_CLOCK } clock;
    uint64_t first, last, gpu_first, gpu_last;
} profiler_event;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static profiler_comm **comms;
static size_t comm_count;
static profiler_event events[WEFTI_PROFILER_EVENTS_MOST];
static uint64_t last_serial;

static void *context_of(size_t place)
{
    const uint64_t taken = comms[place]->taken;
    return (void *)(uintptr_t)(taken << PLACE_BITS | place);
}

/* NULL: not open. */
static profiler_comm *find_comm(void *context)
{
    const uint64_t number = (uintptr_t)context;
    const size_t place = number & ((1u << PLACE_BITS) - 1);
    if (place >= comm_count) {
        return NULL;
    }
    profiler_comm *comm = comms[place];
    return comm->taken % 2 && comm->taken == number >> PLACE_BITS ? comm : NULL;
}

static profiler_event *find_event(void *handle)
{
    const uint64_t serial = (uintptr_t)handle;
    profiler_event *event = &events[serial % WEFTI_PROFILER_EVENTS_MOST];
    return serial && event->serial == serial ? event : NULL;
}

/* Room for one more; comm_count: none. */
static size_t free_place(void)
{
    size_t place = 0;
    while (place < comm_count && comms[place]->taken % 2) {
        place++;
    }
    if (place < comm_count || place >= 1u << PLACE_BITS) {
        return place;
    }
    profiler_comm **more = realloc(comms, (place + 1) * sizeof(*comms));
    if (more) {
        comms = more;
        comms[place] = calloc(1, sizeof(**comms));
        comm_count += comms[place] != NULL;
    }
    return place;
}

static void set_name(profiler_comm *comm, const wefti_profiler_name *name)
{
    if (name->text && !comm->name[0]) {
        strncpy(comm->name, name->text, NAME_BYTES - 1);
    }
    comm->hash = comm->hash ? comm->hash : name->hash;
    comm->rank = comm->rank >= 0 ? comm->rank : name->rank;
    comm->nranks = comm->nranks ? comm->nranks : name->nranks;
}

void *wefti_profiler_open(const wefti_profiler_name *name)
{
    void *context = NULL;
    wefti_door_report report;
    wefti_door_report_init(&report);
    /* Who has NCCL load this library wants one, unless he says no. */
    report.wanted |= !wefti_setting_given(WEFTI_SETTING_NCCL_REPORT);
    if (!report.wanted) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    const size_t place = free_place();
    if (place < comm_count) {
        profiler_comm *comm = comms[place];
        *comm = (profiler_comm){
            .taken = comm->taken + 1, .rank = -1, .report = report};
        set_name(comm, name);
        context = context_of(place);
    }
    pthread_mutex_unlock(&lock);
    return context;
}

/* The file may be slow, or another's for now: no other thread waits for it. */
void wefti_profiler_close(void *context)
{
    profiler_comm closed = {.taken = 0};
    pthread_mutex_lock(&lock);
    profiler_comm *comm = find_comm(context);
    if (comm) {
        closed = *comm;
        comm->taken++;
    }
    pthread_mutex_unlock(&lock);
    if (closed.taken % 2) {
        wefti_door_report_print(
            &closed.report, &(wefti_door_reporter){.name = closed.name,
                                                   .carrier = "nccl",
                                                   .hash = closed.hash,
                                                   .rank = closed.rank,
                                                   .nranks = closed.nranks});
    }
}

void wefti_profiler_rename(void *context, const wefti_profiler_name *name)
{
    pthread_mutex_lock(&lock);
    profiler_comm *comm = find_comm(context);
    if (comm) {
        set_name(comm, name);
    }
    pthread_mutex_unlock(&lock);
}

static profiler_event *add_event(event_kind kind, void *context, int what)
{
    const uint64_t serial = ++last_serial;
    profiler_event *event = &events[serial % WEFTI_PROFILER_EVENTS_MOST];
    *event = (profiler_event){.serial = serial,
                              .kind = kind,
                              .context = context,
                              .what = what,
                              .begun_ns = wefti_clock_ns()};
    return event;
}

static void *handle_of(const profiler_event *event)
{
    return (void *)(uintptr_t)event->serial;
}

void *wefti_profiler_operation(void *context, int what, uint64_t bytes,
                               bool timed)
{
    void *handle = NULL;
    pthread_mutex_lock(&lock);
    profiler_comm *comm = find_comm(context);
    if (comm) {
        profiler_event *event = add_event(OPERATION, context, what);
        event->timed = timed;
        comm->report.tallies[what].calls++;
        comm->report.tallies[what].bytes += bytes;
        handle = handle_of(event);
    }
    pthread_mutex_unlock(&lock);
    return handle;
}

void *wefti_profiler_call(void *context, int what)
{
    void *handle = NULL;
    pthread_mutex_lock(&lock);
    if (find_comm(context)) {
        profiler_event *event = add_event(CALL, context, what);
        event->timed = true;
        handle = handle_of(event);
    }
    pthread_mutex_unlock(&lock);
    return handle;
}

void *wefti_profiler_channel(void *operation, uint64_t gpu_ns)
{
    void *handle = NULL;
    pthread_mutex_lock(&lock);
    profiler_event *parent = find_event(operation);
    profiler_comm *comm = parent ? find_comm(parent->context) : NULL;
    if (comm && parent->kind == OPERATION) {
        wefti_door_tally *tally = &comm->report.tallies[parent->what];
        /* Before its place may be another's. */
        const profiler_event known = *parent;
        if (!parent->seen) {
            parent->seen = true;
            tally->on_gpu++;
            tally->queued_ns += wefti_clock_ns() - parent->begun_ns;
        }
        profiler_event *event = add_event(CHANNEL, known.context, known.what);
        event->parent = known.serial;
        event->gpu_first = gpu_ns;
        handle = handle_of(event);
    }
    pthread_mutex_unlock(&lock);
    return handle;
}

void wefti_profiler_channel_ended(void *channel, uint64_t gpu_ns)
{
    pthread_mutex_lock(&lock);
    profiler_event *event = find_event(channel);
    if (event && event->kind == CHANNEL) {
        event->gpu_last = gpu_ns;
    }
    pthread_mutex_unlock(&lock);
}

/* The operation's time on the GPU grows to what this channel has seen. */
static void add_channel(const profiler_event *event, wefti_door_tally *tally)
{
    profiler_event *parent = find_event((void *)(uintptr_t)event->parent);
    const bool gpu = event->gpu_first && event->gpu_last >= event->gpu_first;
    const uint64_t first = gpu ? event->gpu_first : (uint64_t)event->begun_ns;
    const uint64_t last = gpu ? event->gpu_last : (uint64_t)wefti_clock_ns();
    const int clock = gpu ? GPU_CLOCK : HOST_CLOCK;
    if (!parent || (parent->clock && (int)parent->clock != clock)) {
        return;
    }
    const uint64_t before = parent->last - parent->first;
    if (!parent->clock || first < parent->first) {
        parent->first = first;
    }
    parent->clock = clock;
    if (last > parent->last) {
        parent->last = last;
    }
    tally->gpu_ns += (int64_t)(parent->last - parent->first - before);
}

void wefti_profiler_stop(void *event)
{
    pthread_mutex_lock(&lock);
    profiler_event *ended = find_event(event);
    profiler_comm *comm = ended ? find_comm(ended->context) : NULL;
    if (comm && ended->kind == CHANNEL) {
        add_channel(ended, &comm->report.tallies[ended->what]);
        ended->serial = 0;
    } else if (comm && ended->timed) {
        comm->report.tallies[ended->what].ns +=
            wefti_clock_ns() - ended->begun_ns;
        ended->timed = false; /* once; its channels still need it */
    }
    pthread_mutex_unlock(&lock);
}
