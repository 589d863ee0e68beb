/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake.h - what the files of the fake CUDA driver share.
 *
 *   fake_api.c      which functions there are; versions; error texts
 *   fake_demand.c   the environment: how many devices, errors on demand
 *   fake_device.c   devices and what they can do
 *   fake_context.c  contexts, the current one, peer access
 *   fake_arena.c    a device's memory: two mappings of one file
 *   fake_range.c    every range of addresses that the driver knows
 *   fake_memory.c   allocations of device and host, questions about pointers
 *   fake_copy.c     copies and fills
 *   fake_stream.c   streams: a queue and a thread each
 *   fake_event.c    events
 *   fake_memop.c    values written and waited for in memory
 *   fake_capture.c  streams that capture
 *   fake_graph.c    what they have captured, and its launches
 *   fake_ipc.c      memory and events of other processes
 *   fake_vmm.c      physical memory and addresses apart
 *   fake_module.c   kernels, run by tests/simt
 *   fake_green.c    parts of the multiprocessors
 *
 * One lock, fake.lock, guards all that is declared here, but for what its
 * comment excepts. Each operation of a stream runs without it.
 *
 * The rules that the fake enforces are those of the driver's documentation
 * (CUDA driver API 13.0; CUDA C++ programming guide 13.0); the comment at each
 * names the function or section. Where that leaves freedom the fake takes the
 * least convenient course, by chance.
 */
#ifndef TESTS_FAKE_FAKE_H
#define TESTS_FAKE_FAKE_H

#include "tests/fake/fake_functions.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { FAKE_MOST_DEVICES = 16, FAKE_PAGE_BYTES = 4096 };

/* Memory operations, copies and launches that a stream takes behind one that
 * stands (seen with driver 580 on an H200). */
enum { FAKE_QUEUE_MOST = 1020 };

/* Dynamic shared memory of a block: as it is, and where the kernel was given
 * more (compute capability 9.0). */
enum { FAKE_SHARED_BYTES = 48 << 10, FAKE_SHARED_MOST_BYTES = 227 << 10 };

/* Owners that are no ordinal. */
enum { FAKE_HOST = -1, FAKE_HIDDEN = -2 };

/* From the environment (fake_demand.c); constant once read. */
typedef struct fake_settings {
    int devices;                    /* on the machine */
    int visible[FAKE_MOST_DEVICES]; /* physical number by ordinal */
    int visible_count;
    uint64_t seed;
    uint64_t delay_percent;
    size_t memory_bytes; /* of each device */
    uint64_t driver_version;
    uint64_t fail_allocation;        /* the k-th; 0: none */
    uint64_t error, error_operation; /* the k-th; 0: none */
    uint64_t wrong_copy; /* the k-th from or to imported memory; 0: none */
    uint64_t no_peer, no_flush, no_waits_64;
    const char *missing; /* names, separated by commas */
    bool good;
} fake_settings;

/* What the first call has read; a line on stderr for what is bad in it. */
const fake_settings *fake_get_settings(void);

/* A draw below `below`, from a seed that one thread uses. */
uint64_t fake_draw(uint64_t *seed, uint64_t below);
/* A draw for a call: without the lock. */
uint64_t fake_chance(uint64_t below);
/* Sleeps for a time by chance: mostly nothing, seldom 20 ms. */
void fake_delay(uint64_t *seed);
/* One line on stderr: what the program did wrong, or was made to fail. */
void fake_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

typedef struct fake_arena {
    int file;
    char *pointers, *alias; /* NULL: not yet mapped */
    size_t cursor, used_bytes;
} fake_arena;

struct CUctx_st {
    int ordinal;
    unsigned retained;
    uint32_t peers; /* ordinals that this one may access */
    CUgreenCtx green;
    bool gone;         /* a green one that was destroyed */
    CUcontext primary; /* itself, or the green context's device's */
};

typedef struct fake_device {
    struct CUctx_st primary;
    fake_arena arena;
} fake_device;

typedef enum fake_kind {
    FAKE_ALLOCATED,  /* cuMemAlloc */
    FAKE_PINNED,     /* cuMemHostAlloc */
    FAKE_REGISTERED, /* cuMemHostRegister */
    FAKE_IMPORTED,   /* cuIpcOpenMemHandle */
    FAKE_MAPPED      /* cuMemMap */
} fake_kind;

/* Addresses that belong together. */
typedef struct fake_range {
    CUdeviceptr address;
    size_t bytes; /* as asked for */
    fake_kind kind;
    char *alias;    /* where the fake itself finds the bytes */
    int owner;      /* ordinal, FAKE_HOST or FAKE_HIDDEN */
    uint32_t reach; /* ordinals that may access it, besides owner and peers */
    CUcontext context;
    uint64_t id;
    unsigned users, opened; /* operations at work in it; times opened */
    size_t file_offset;
    uint64_t key; /* of what it was imported from, or mapped from */
} fake_range;

typedef struct fake_state {
    pthread_mutex_t lock;
    pthread_cond_t progress; /* work was done, or an error came */
    atomic_int pid;          /* of the process that has initialised; else 0 */
    CUresult dying;          /* no work touches memory any more */
    CUresult sticky;         /* what all calls return from now on */
    uint64_t allocations, operations, next_id, chance;
    fake_device devices[FAKE_MOST_DEVICES];
    fake_range **ranges; /* by address */
    size_t range_count, range_capacity;
    CUstream streams; /* all, chained by next */
    unsigned waiting; /* calls that wait for a GPU: no work is taken */
} fake_state;

extern fake_state fake;

/*
 * Begins a call. An error is what the call must return: not initialised, in a
 * child of the process that was, no context current, or the sticky one.
 */
CUresult fake_enter(void);         /* needs cuInit */
CUresult fake_enter_context(void); /* needs a current context too */
/* Whether this thread is in a function of cuLaunchHostFunc. */
void fake_set_in_function(bool inside);
CUcontext fake_current(void); /* after fake_enter_context: not NULL */

/* Makes an error sticky: the first stays. It becomes visible only when nothing
 * touches memory any more, which the program may then take away; a driver's
 * pinned pages would outlive it. Without the lock. */
void fake_fail(CUresult error);
/* Waits for progress, or for a moment: others' memory changes silently. */
void fake_wait_locked(uint64_t *backoff_ns);

/* Until the GPU has nothing to do. */
void fake_await_idle_locked(int ordinal);

bool fake_is_ordinal(CUdevice device);
bool fake_has_function(const char *name, unsigned since);

/* fake_arena.c */
CUresult fake_arena_alloc(int ordinal, size_t bytes, fake_range *range);
void fake_arena_free(int ordinal, const fake_range *range);
/* Unused addresses for what comes from elsewhere, faulting; 0: none left. */
CUdeviceptr fake_arena_reserve(size_t bytes, size_t alignment);
/* A second mapping, for the fake itself, or MAP_FAILED. */
void *fake_arena_alias(int file, size_t offset, size_t bytes);

/* fake_range.c; all with the lock. */
fake_range *fake_range_add(const fake_range *range); /* NULL: no memory */
void fake_range_remove(fake_range *range);
/* The range that holds all these bytes, or NULL. */
fake_range *fake_range_find(CUdeviceptr address, size_t bytes);
/* The range that overlaps these bytes, or NULL. */
fake_range *fake_range_touching(CUdeviceptr address, size_t bytes);
bool fake_range_reachable(const fake_range *range, int ordinal);
/* Whether an operation is at work in any. */
bool fake_range_any_used(void);
/* Waits until no operation uses it. */
void fake_range_await_unused(fake_range *range);

/*
 * fake_range_use - where an operation of a device finds memory, until
 * fake_range_done; host memory that the driver does not know is itself, where
 * allowed. NULL: the address is illegal for the device, and a line says so; or
 * an error is about to become visible.
 * Without the lock.
 */
void *fake_range_use(int ordinal, CUdeviceptr address, size_t bytes,
                     bool any_device, const char *what, fake_range **used_out);
void fake_range_done(fake_range *used);

/* One operation of a stream; run is called without the lock. */
typedef struct fake_work {
    struct fake_work *next;
    CUresult (*run)(CUstream stream, struct fake_work *work);
    CUdeviceptr dst, src;
    size_t bytes;
    void *staged;
    CUevent event;
    uint64_t mark;
    CUhostFn function;
    void *user_data;
    CUstreamBatchMemOpParams *values;
    unsigned value_count;
    struct fake_launch *launch;
    CUgraphExec exec;
    bool writes_value; /* memory operations that begin with a write */
} fake_work;

/* Nodes of a graph that come before what follows. */
enum { FAKE_TAIL_NODES = 16 };

typedef struct fake_tail {
    unsigned count, nodes[FAKE_TAIL_NODES];
} fake_tail;

struct fake_capture;

struct CUstream_st {
    CUstream next;
    CUcontext context;
    unsigned flags;
    int priority;
    uint64_t seed; /* the thread's own */
    pthread_cond_t queued;
    fake_work *first, **last;
    uint64_t submitted, done;
    size_t taken; /* of what is queued, what the driver takes so much of */
    bool destroyed;
    struct fake_capture *capture;
    uint64_t captured, joined; /* work in it; of that, others wait for */
    fake_tail tail;            /* the nodes of the last */
    /* A part of a write to another device that is still under way. */
    struct {
        CUdeviceptr dst;
        size_t bytes;
        void *data; /* NULL: none */
    } late;
};

/* Whether a handle is a stream that lives; a line says so if not. Locked. */
bool fake_stream_is(CUstream stream);
/* Frees what work holds; locked if it has an exec. */
void fake_stream_drop(const fake_work *work);
/* Carries one out, and is late; without the lock. */
void fake_stream_run(CUstream stream, fake_work *work);
/* Adds an operation, which it takes; to the capture if there is one. */
CUresult fake_stream_submit(CUstream stream, const fake_work *work);
CUresult fake_stream_create(CUcontext context, unsigned flags, int priority,
                            CUstream *stream_out);
/* Waits until all submitted so far is done; after an error not, unless
 * to_the_end. Locked. */
CUresult fake_stream_drain_locked(CUstream stream, bool to_the_end);
/* Lets late parts of writes arrive: those of a stream, those for a device. */
void fake_stream_land(CUstream stream);
void fake_stream_land_on(int ordinal);

/* fake_event.c: records are numbered from 1; each has its own word. */
enum { FAKE_EVENT_WORDS = 64 };

typedef struct fake_event_state {
    _Atomic uint64_t recorded, completed_ns;
    _Atomic uint64_t completed[FAKE_EVENT_WORDS];
} fake_event_state;

struct CUevent_st {
    CUcontext context;
    unsigned flags, users;
    bool destroyed, imported;
    fake_event_state *state; /* shared between processes if INTERPROCESS */
    uint64_t capture_id;     /* of the capture it was last recorded in; or 0 */
    CUstream capture_stream;
    uint64_t capture_mark;
    fake_tail capture_tail;
};

void fake_event_free_locked(CUevent event);

/* fake_ipc.c; with the lock. NULL: no memory. */
fake_event_state *fake_ipc_make_event(void);
void fake_ipc_drop_event(CUevent event);

/* fake_capture.c; all with the lock. */
/* Whether a call on the stream is refused since it captures, which breaks the
 * capture. */
CUresult fake_capture_refuse(CUstream stream);
/* Refuses a call that is unsafe while any stream captures. */
CUresult fake_capture_unsafe(void);
/* Whether work, the record of an event, or a wait for one is part of a capture,
 * which then takes it, and so not done; or is refused. */
CUresult fake_capture_work(CUstream stream, const fake_work *work,
                           bool *captured_out);
CUresult fake_capture_record(CUstream stream, CUevent event,
                             bool *captured_out);
CUresult fake_capture_wait(CUstream stream, CUevent event, bool *captured_out);
void fake_capture_leave(CUstream stream);

/* fake_graph.c; all with the lock. */
CUgraph fake_graph_create(uint64_t id, int ordinal); /* NULL: no memory */
void fake_graph_drop(CUgraph graph);
/* Adds work, which it takes, behind all of tail, which it becomes. */
CUresult fake_graph_add(CUgraph graph, const fake_work *work, fake_tail *tail);
/* All of one tail comes before the other, too. */
CUresult fake_tail_join(fake_tail *tail, const fake_tail *other);
void fake_exec_drop(CUgraphExec exec);

#endif
