/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/simt/simt_block.cc - runs a launch block by block:
 *
 *     host: run_launch -> run_block: round after round, each thread that can
 *           run does so until it waits, faults or ends
 *     thread: kernel -> simt_barrier or simt_exchange -> back to the host
 *
 * A barrier opens when all threads that have not ended are at it. A round in
 * which nothing ran and nothing opened is a deadlock, and so a fault. Shared
 * memory is filled with ones (NaN, -1) before each block. For the thread
 * sanitizer blocks are ordered: it finds races within a block only.
 *
 * Rules: CUDA C++ Programming Guide 13.0, 10.6 (synchronisation), 10.19 to
 * 10.22 (votes and shuffles): named lanes must be there with the same mask.
 */
#include "tests/simt/simt_block.h"

#include "tests/simt/simt_fiber.h"
#include "tests/simt/simt_launch.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

enum { MOST_THREADS = 1024, LANES = 32 };

enum thread_state { READY, AT_BARRIER, AT_EXCHANGE, ENDED };

struct simt_thread {
    simt_fiber fiber;
    thread_state state;
    unsigned number; /* in the block */
    unsigned index[3];
    simt_place place; /* where it waits */
    /* Its part of an exchange, and what it gets. */
    unsigned mask, from;
    uint64_t value;
    bool predicate;
    simt_got got;
    unsigned exchanges;     /* it took part in */
    char arrivals[2];       /* objects of the thread sanitizer, in turn */
    unsigned got_of[LANES]; /* which of them each peer came with */
};

/* Lanes of a warp that wait with one mask, kept where its lowest lane is: who
 * comes to them need not ask each of the others, as the first one has. A lane
 * that ends meanwhile leaves them waiting for ever, which is found. */
struct simt_waiting {
    unsigned mask, there; /* 0: nobody is */
    const char *call;
};

struct simt_run {
    const simt_kernel *kernel;
    const simt_config *config;
    void **params;
    simt_where where;
    simt_fiber host;
    simt_thread *running;
    unsigned thread_count;
    unsigned barrier_count, barrier_ayes, barriers;
    char barrier_arrivals[2];
    char begun, left; /* objects of the thread sanitizer */
    unsigned char *shared;
    uint64_t seed;
    bool faulted;
};

static simt_run run;
static simt_thread threads[MOST_THREADS]; /* their stacks serve all launches */
static simt_waiting waiting[MOST_THREADS];
static unsigned stacks;
static char fault_text[1024];

/* Where the linker has put all static shared memory; absent where none is. */
extern "C" unsigned char __start_simt_shared[] __attribute__((weak));
extern "C" unsigned char __stop_simt_shared[] __attribute__((weak));

const char *simt_fault(void)
{
    return fault_text;
}

static uint64_t draw()
{
    uint64_t z = run.seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Notes the first fault of a launch, by the thread that found it. */
__attribute__((format(printf, 3, 4))) static void
note_fault(const simt_thread *thread, simt_place place, const char *format, ...)
{
    const unsigned *b = run.where.block, *t = thread->index;
    int used = snprintf(
        fault_text, sizeof(fault_text),
        "%s block (%u,%u,%u) thread (%u,%u,%u) %s:%d: %s: ", run.kernel->name,
        b[0], b[1], b[2], t[0], t[1], t[2], place.file, place.line, place.call);
    va_list args;
    va_start(args, format);
    vsnprintf(fault_text + used, sizeof(fault_text) - (size_t)used, format,
              args);
    va_end(args);
    run.faulted = true;
}

/* Back to the host until there is reason to go on. */
static void leave(simt_thread *thread, thread_state state)
{
    thread->state = state;
    simt_sync_release(&run.left); /* to the host, once the block has ended */
    simt_fiber_switch(&thread->fiber, &run.host, state == ENDED);
}

[[noreturn]] static void stop(simt_thread *thread)
{
    leave(thread, ENDED);
    abort();
}

const simt_where *simt_here()
{
    return &run.where;
}

unsigned simt_lane()
{
    return run.running->number % LANES;
}

void *simt_dynamic_shared()
{
    return run.shared;
}

void simt_maybe_yield()
{
    if (run.config->order == SIMT_RANDOM && draw() % 4 == 0) {
        leave(run.running, READY);
    }
}

unsigned simt_barrier(simt_place place, bool predicate)
{
    simt_thread *self = run.running;
    char *arrivals = &run.barrier_arrivals[run.barriers % 2];
    self->place = place;
    self->predicate = predicate;
    simt_sync_release(arrivals);
    leave(self, AT_BARRIER);
    simt_sync_acquire(arrivals);
    return run.barrier_ayes;
}

/* Most are the same bytes, too, and each lane of a warp asks of each other. */
static bool is_same_text(const char *one, const char *other)
{
    return one == other || strcmp(one, other) == 0;
}

/* The lowest lane of a mask that is not empty. */
static unsigned lowest(unsigned mask)
{
    return (unsigned)__builtin_ctz(mask);
}

/* Those lanes of the mask that are there; a fault if one never can be. */
static unsigned find_there(simt_thread *self, simt_thread *warp, unsigned lanes)
{
    unsigned all = 0;
    for (unsigned left = self->mask; left != 0; left &= left - 1) {
        const unsigned lane = lowest(left);
        const simt_thread *peer = &warp[lane];
        if (lane >= lanes || peer->state == ENDED) {
            note_fault(self, self->place, "lane %u of mask %#x %s", lane,
                       self->mask,
                       lane >= lanes ? "does not exist" : "has ended");
            stop(self);
        }
        bool there = peer->state == AT_EXCHANGE || peer == self;
        if (there && (peer->mask != self->mask ||
                      !is_same_text(peer->place.call, self->place.call))) {
            note_fault(self, self->place,
                       "with mask %#x meets lane %u at %s:%d, %s with mask %#x",
                       self->mask, lane, peer->place.file, peer->place.line,
                       peer->place.call, peer->mask);
            stop(self);
        }
        all |= (unsigned)there << lane;
    }
    return all;
}

/* Whether all lanes of the mask are there. */
static bool exchange_complete(simt_thread *self, simt_thread *warp,
                              unsigned lanes)
{
    const unsigned first = self->number - self->number % LANES;
    simt_waiting *with = &waiting[first + lowest(self->mask)];
    unsigned there;
    if (with->there != 0 && with->mask == self->mask &&
        is_same_text(with->call, self->place.call)) {
        there = with->there |= 1U << self->number % LANES;
    } else {
        there = find_there(self, warp, lanes);
        if (with->there == 0) {
            *with = {self->mask, there, self->place.call};
        }
    }
    if (there == self->mask && with->mask == self->mask) {
        with->there = 0;
    }
    return there == self->mask;
}

/*
 * Which of their two objects a lane's peers came with, and that what they did
 * before is seen: only the thread sanitizer looks at either.
 */
static void note_peers(simt_thread *thread, const simt_thread *warp,
                       unsigned mask)
{
#ifdef SIMT_THREAD
    for (unsigned left = mask; left != 0; left &= left - 1) {
        thread->got_of[lowest(left)] = warp[lowest(left)].exchanges % 2;
    }
#endif
    (void)thread, (void)warp, (void)mask;
}

static void acquire_peers(const simt_thread *thread, simt_thread *warp,
                          unsigned mask)
{
#ifdef SIMT_THREAD
    for (unsigned left = mask; left != 0; left &= left - 1) {
        const unsigned lane = lowest(left);
        simt_sync_acquire(&warp[lane].arrivals[thread->got_of[lane]]);
    }
#endif
    (void)thread, (void)warp, (void)mask;
}

/* The last lane gives each what it asked for. */
static void exchange(simt_thread *warp, unsigned mask)
{
    unsigned ballots = 0;
    for (unsigned left = mask; left != 0; left &= left - 1) {
        ballots |= (unsigned)warp[lowest(left)].predicate << lowest(left);
    }
    for (unsigned left = mask; left != 0; left &= left - 1) {
        simt_thread *peer = &warp[lowest(left)];
        bool named = peer->from < LANES && (mask >> peer->from & 1);
        peer->got.value = named ? warp[peer->from].value : UINT64_MAX;
        peer->got.ballots = ballots;
        note_peers(peer, warp, mask);
    }
    for (unsigned left = mask; left != 0; left &= left - 1) {
        warp[lowest(left)].exchanges++;
        warp[lowest(left)].state = READY;
    }
}

simt_got simt_exchange(simt_place place, unsigned mask, uint64_t value,
                       unsigned from, bool predicate)
{
    simt_thread *self = run.running;
    unsigned first = self->number - self->number % LANES;
    unsigned lanes = run.thread_count - first;
    simt_thread *warp = &threads[first];
    self->place = place;
    self->mask = mask;
    self->value = value;
    self->from = from;
    self->predicate = predicate;
    if (!(mask >> self->number % LANES & 1)) {
        note_fault(self, place, "mask %#x does not name its own lane %u", mask,
                   self->number % LANES);
        stop(self);
    }
    simt_sync_release(&self->arrivals[self->exchanges % 2]);
    if (exchange_complete(self, warp, lanes)) {
        exchange(warp, mask);
    } else {
        leave(self, AT_EXCHANGE);
    }
    acquire_peers(self, warp, mask);
    return self->got;
}

static void thread_main(void *arg)
{
    simt_sync_acquire(&run.begun);
    run.kernel->call(run.params);
    stop(static_cast<simt_thread *>(arg));
}

/* Opens the barrier if all who have not ended are at it, and the same one. */
static bool open_barrier()
{
    const simt_thread *first = nullptr;
    unsigned ayes = 0;
    for (unsigned i = 0; i < run.thread_count; i++) {
        const simt_thread *thread = &threads[i];
        if (thread->state == ENDED) {
            continue;
        }
        if (thread->state != AT_BARRIER) {
            return false;
        }
        first = first ? first : thread;
        ayes += thread->predicate;
        if (thread->place.line != first->place.line ||
            !is_same_text(thread->place.file, first->place.file)) {
            note_fault(first, first->place,
                       "thread (%u,%u,%u) is at another barrier, %s:%d",
                       thread->index[0], thread->index[1], thread->index[2],
                       thread->place.file, thread->place.line);
            return false;
        }
    }
    for (unsigned i = 0; first && i < run.thread_count; i++) {
        if (threads[i].state == AT_BARRIER) {
            threads[i].state = READY;
        }
    }
    run.barrier_ayes = ayes;
    run.barriers++;
    return first != nullptr;
}

/* Names one that waits for a lane that never comes, or for a barrier. */
static void note_deadlock()
{
    const simt_thread *at[ENDED + 1] = {};
    for (unsigned i = 0; i < run.thread_count; i++) {
        at[threads[i].state] = &threads[i];
    }
    const simt_thread *waits = at[AT_EXCHANGE], *other = at[AT_BARRIER];
    for (unsigned lane = 0; lane < LANES; lane++) {
        unsigned peer = waits->number - waits->number % LANES + lane;
        if (waits->mask >> lane & 1 && threads[peer].state != AT_EXCHANGE) {
            other = &threads[peer];
        }
    }
    bool ended = !other || other->state == ENDED;
    note_fault(waits, waits->place, "mask %#x waits for ever: lane %u %s %s:%d",
               waits->mask, other ? other->number % LANES : 0,
               ended ? "has ended, last seen at" : "is at", //
               other && other->place.file ? other->place.file : "no wait",
               other ? other->place.line : 0);
}

/* The count numbers in the order of the launch. */
static void put_in_order(unsigned *order, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        order[i] = run.config->order == SIMT_REVERSE ? count - 1 - i : i;
    }
    for (unsigned i = count; run.config->order == SIMT_RANDOM && i > 1; i--) {
        unsigned j = (unsigned)(draw() % i);
        unsigned kept = order[i - 1];
        order[i - 1] = order[j];
        order[j] = kept;
    }
}

static void run_thread(simt_thread *thread)
{
    run.running = thread;
    memcpy(run.where.thread, thread->index, sizeof(thread->index));
    simt_fiber_switch(&run.host, &thread->fiber, false);
}

/* With the address sanitizer by plain stores: its own bytes lie between. */
static void poison(unsigned char *at, const unsigned char *end)
{
#ifdef SIMT_ADDRESS
    for (volatile unsigned char *byte = at; byte != end; byte++) {
        *byte = 0xff;
    }
#else
    memset(at, 0xff, (size_t)(end - at));
#endif
}

static void run_block()
{
    const unsigned *size = run.config->block;
    if (__start_simt_shared) {
        poison(__start_simt_shared, __stop_simt_shared);
    }
    poison(run.shared, run.shared + run.config->shared_bytes);
    for (unsigned i = 0; i < run.thread_count; i++) {
        simt_thread *thread = &threads[i];
        thread->state = READY;
        thread->number = i;
        thread->place = simt_place();
        thread->index[0] = i % size[0];
        thread->index[1] = i / size[0] % size[1];
        thread->index[2] = i / size[0] / size[1];
        simt_fiber_start(&thread->fiber, thread_main, thread);
    }
    memset(waiting, 0, run.thread_count * sizeof(*waiting));
    simt_sync_release(&run.begun);
    static unsigned order[MOST_THREADS];
    unsigned left = run.thread_count;
    while (left != 0 && !run.faulted) {
        bool ran = false;
        left = 0;
        put_in_order(order, run.thread_count);
        for (unsigned i = 0; i < run.thread_count && !run.faulted; i++) {
            simt_thread *thread = &threads[order[i]];
            if (thread->state == READY) {
                run_thread(thread);
                ran = true;
            }
            left += thread->state != ENDED;
        }
        if (left != 0 && !run.faulted && !open_barrier() && !ran &&
            !run.faulted) {
            note_deadlock();
        }
    }
    simt_sync_acquire(&run.left);
}

static void run_launch()
{
    const unsigned *grid = run.config->grid;
    unsigned count = grid[0] * grid[1] * grid[2];
    unsigned *order = static_cast<unsigned *>(malloc(count * sizeof(*order)));
    put_in_order(order, count);
    for (unsigned i = 0; i < count && !run.faulted; i++) {
        run.where.block[0] = order[i] % grid[0];
        run.where.block[1] = order[i] / grid[0] % grid[1];
        run.where.block[2] = order[i] / grid[0] / grid[1];
        run_block();
    }
    free(order);
}

static simt_list *lists;

void simt_add(simt_list *list)
{
    list->next = lists;
    lists = list;
}

const simt_kernel *simt_at(size_t index)
{
    for (const simt_list *list = lists; list; list = list->next) {
        for (const simt_kernel *at = list->kernels; at->name; at++) {
            if (index-- == 0) {
                return at;
            }
        }
    }
    return nullptr;
}

const simt_kernel *simt_find(const char *name)
{
    const simt_kernel *at = nullptr;
    for (size_t i = 0; (at = simt_at(i)) && strcmp(at->name, name) != 0;) {
        i++;
    }
    return at;
}

static bool config_fits(const simt_config *config)
{
    uint64_t count = 1;
    for (int i = 0; i < 3; i++) {
        count *= config->block[i];
        if (config->grid[i] == 0 || count == 0 || count > MOST_THREADS) {
            return false;
        }
    }
    return true;
}

int simt_launch(const char *name, const simt_config *config, void **params)
{
    run = simt_run();
    run.kernel = simt_find(name);
    if (!run.kernel || !config_fits(config)) {
        snprintf(fault_text, sizeof(fault_text), "%s: %s", name,
                 run.kernel ? "a grid of none, or not 1 to 1024 threads"
                            : "no such kernel");
        return -1;
    }
    run.config = config;
    run.params = params;
    run.seed = config->seed;
    memcpy(run.where.block_size, config->block, sizeof(config->block));
    memcpy(run.where.grid_size, config->grid, sizeof(config->grid));
    run.thread_count = config->block[0] * config->block[1] * config->block[2];
    void *shared = nullptr;
    if (posix_memalign(&shared, 128, config->shared_bytes)) {
        perror("simt");
        abort();
    }
    run.shared = static_cast<unsigned char *>(shared);
    simt_fiber_host(&run.host);
    for (; stacks < run.thread_count; stacks++) {
        simt_fiber_init(&threads[stacks].fiber);
    }
    run_launch();
    free(run.shared);
    return run.faulted ? -1 : 0;
}
