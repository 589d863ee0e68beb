/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/startline.c - counting barrier in anonymous shared memory.
 *
 * One word holds the round, whether it is cancelled, and how many have come.
 * Whoever comes counts itself, which releases what it did before; the last
 * starts the next round, which a waiter's load acquires. Being one word, a
 * round is either complete for all or cancelled for all.
 */
#include "perf/startline.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_S = 60, LOOK_NS = 20000000, SPINS = 2000, LINE_BYTES = 128 };

typedef struct page {
    _Alignas(LINE_BYTES) _Atomic uint64_t state;
    _Alignas(LINE_BYTES) int ranks;
    uint64_t token;
} page;

/* A state: how many have come | CANCELLED | round. */
#define CANCELLED ((uint64_t)1 << 31)

static uint64_t round_of(uint64_t state)
{
    return state >> 32;
}

static int come_of(uint64_t state)
{
    return (int)(state & (CANCELLED - 1));
}

struct wefti_startline {
    page *page;
    int descriptor; /* -1: opened, not created */
    int spins;      /* looks before yielding; 0 where ranks share cores */
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int spins_for(int ranks)
{
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof(cores), &cores) != 0) {
        return 0;
    }
    /* A process bound to one core says nothing of where the others are. */
    int count = CPU_COUNT(&cores);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return ranks <= (count > 1 ? count : online) ? SPINS : 0;
}

static wefti_startline *map_line(int descriptor)
{
    wefti_startline *line = malloc(sizeof(*line));
    if (!line) {
        return NULL;
    }
    line->page = mmap(NULL, sizeof(page), PROT_READ | PROT_WRITE, MAP_SHARED,
                      descriptor, 0);
    if (line->page == MAP_FAILED) {
        free(line);
        return NULL;
    }
    line->descriptor = -1;
    return line;
}

wefti_startline *wefti_startline_create(int ranks,
                                        wefti_startline_place *place_out)
{
    *place_out = (wefti_startline_place){0};
    int descriptor = memfd_create("startline", MFD_CLOEXEC);
    if (descriptor < 0) {
        return NULL;
    }
    wefti_startline *line = NULL;
    if (ftruncate(descriptor, sizeof(page)) == 0) {
        line = map_line(descriptor);
    }
    if (!line) {
        close(descriptor);
        return NULL;
    }
    line->descriptor = descriptor;
    line->spins = spins_for(ranks);
    line->page->ranks = ranks;
    line->page->token = (uint64_t)now_ns() ^ (uint64_t)(uintptr_t)line;
    *place_out = (wefti_startline_place){.process = getpid(),
                                         .descriptor = descriptor,
                                         .token = line->page->token};
    return line;
}

wefti_startline *wefti_startline_open(const wefti_startline_place *place)
{
    char path[64];
    if (place->process == 0) {
        return NULL;
    }
    snprintf(path, sizeof(path), "/proc/%lld/fd/%lld",
             (long long)place->process, (long long)place->descriptor);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) {
        return NULL;
    }
    wefti_startline *line = NULL;
    if (lseek(descriptor, 0, SEEK_END) == (off_t)sizeof(page)) {
        line = map_line(descriptor);
    }
    close(descriptor);
    if (line && line->page->token != place->token) {
        wefti_startline_close(line);
        return NULL;
    }
    if (line) {
        line->spins = spins_for(line->page->ranks);
    }
    return line;
}

void wefti_startline_close(wefti_startline *line)
{
    if (!line) {
        return;
    }
    munmap(line->page, sizeof(page));
    if (line->descriptor >= 0) {
        close(line->descriptor);
    }
    free(line);
}

void wefti_startline_cancel(wefti_startline *line)
{
    atomic_fetch_or(&line->page->state, CANCELLED);
}

static void rest(const wefti_startline *line, int looks)
{
    if (looks < line->spins) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    } else {
        sched_yield();
    }
}

/* A wait that has become long. */
typedef struct vigil {
    int64_t limit_ns, look_ns; /* 0: not yet long */
    bool (*hopeless)(const void *context);
    const void *context;
} vigil;

static bool gives_up(vigil *self)
{
    int64_t at_ns = now_ns();
    if (self->limit_ns == 0) {
        self->limit_ns = at_ns + (int64_t)LIMIT_S * 1000000000;
        self->look_ns = at_ns + LOOK_NS;
    }
    if (at_ns > self->limit_ns) {
        return true;
    }
    if (at_ns < self->look_ns || !self->hopeless) {
        return false;
    }
    self->look_ns = at_ns + LOOK_NS;
    return self->hopeless(self->context);
}

/* All have come: the next round begins, unless this one has been cancelled. */
static bool start(page *shared, uint64_t state)
{
    uint64_t next = (round_of(state) + 1) << 32;
    return atomic_compare_exchange_strong(&shared->state, &state, next);
}

bool wefti_startline_wait(wefti_startline *line,
                          bool (*hopeless)(const void *context),
                          const void *context)
{
    page *shared = line->page;
    uint64_t state = atomic_fetch_add(&shared->state, 1) + 1;
    const uint64_t round = round_of(state);
    if (!(state & CANCELLED) && come_of(state) == shared->ranks) {
        return start(shared, state);
    }
    vigil wait = {.hopeless = hopeless, .context = context};
    /* A yield may take a slice of every process on the core: from the first on,
     * only the clock says how long this has taken. */
    for (int looks = 0; round_of(state) == round;
         looks = looks < SPINS ? looks + 1 : looks) {
        if (state & CANCELLED) {
            return false;
        }
        if (looks >= line->spins && gives_up(&wait)) {
            atomic_compare_exchange_strong(&shared->state, &state,
                                           state | CANCELLED);
        } else {
            rest(line, looks);
        }
        state = atomic_load_explicit(&shared->state, memory_order_acquire);
    }
    return true;
}
