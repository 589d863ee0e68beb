/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/core.h - the objects of comm: engine, communicator, operation.
 *
 *   engine (one per rank and job) --< communicator --< operation --< list
 *
 * The engine's lock guards everything here but what is marked atomic. The
 * thread that holds it may advance all operations of the rank: the rank's
 * progress thread while stream operations are pending, and any caller with a
 * NULL stream.
 */
#ifndef COMM_CORE_CORE_H
#define COMM_CORE_CORE_H

#include "base/doorbell.h"
#include "base/memory_limit.h"
#include "base/thread.h"
#include "comm/core/board.h"
#include "comm/core/choice_cache.h"
#include "comm/core/observer.h"
#include "comm/core/select.h"
#include "comm/fabric/fabric.h"
#include "comm/fabric/mapping.h"
#include "comm/fabric/process_read.h"
#include "comm/fabric/stager.h"
#include "comm/oob/membership.h"
#include "comm/pattern/pattern.h"
#include "comm/pattern/shape.h"
#include "device/device.h"
#include "weft/mem.h"
#include "weft/op.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    WEFTI_GATE_CHUNKS_MAX = 4096, /* of one operation */
    WEFTI_BOUNCES = 2, /* of a list: one for the step, one runs ahead */
    WEFTI_REDUCTIONS = WEFT_REDOP_USER_END - WEFT_REDOP_USER
};

/*
 * FREE -> POSTED (waits for its stream, then for its op slot) -> RUNNING ->
 * DRAINING (done for its poster; peers still read what it staged, or have not
 * shown that they entered the same) -> FREE
 */
typedef enum wefti_op_state {
    WEFTI_OP_FREE,
    WEFTI_OP_POSTED,
    WEFTI_OP_RUNNING,
    WEFTI_OP_DRAINING
} wefti_op_state;

/* What a list stands waiting for. */
typedef enum wefti_wait {
    WEFTI_WAIT_NOTHING, /* the step is done */
    WEFTI_WAIT_PEER,    /* list.peer has to send or to read */
    WEFTI_WAIT_GATE,    /* this rank's own ready or writable gate */
    WEFTI_WAIT_DEVICE,  /* a copy under way on the device */
    WEFTI_WAIT_HOST     /* the step's bytes, without the lock */
} wefti_wait;

/* How far one step has come; see comm/steps/step.c. */
typedef enum wefti_step_phase {
    WEFTI_PHASE_START,
    WEFTI_PHASE_FETCH, /* device -> bounce or slot is under way */
    WEFTI_PHASE_READY, /* sources can be read by the host */
    WEFTI_PHASE_HELD,  /* asked for, or under way, without the lock */
    WEFTI_PHASE_MADE,  /* the host has moved and added up the bytes */
    WEFTI_PHASE_STORE  /* bounce or message -> device is under way */
} wefti_step_phase;

/*
 * Gated operations run block by block, a block being what one gate chunk
 * covers of a rank's part; a pattern sees one block at a time. Blocks are
 * counted as they run.
 */
typedef struct wefti_step_place {
    size_t block;
    size_t next, count; /* index of the step in the block, and how many */
} wefti_step_place;

/* What a thread does without the lock; see comm/engine/held_work.h. */
typedef struct wefti_held_work {
    struct wefti_held_work *next;
    weft_comm *comm;
    void (*make)(struct wefti_held_work *work); /* the bytes */
    void (*end)(struct wefti_held_work *work);  /* lock held */
    bool urgent;
    bool alone; /* of comm's, no other such one is under way meanwhile */
} wefti_held_work;

typedef struct wefti_step_list {
    wefti_held_work work; /* first: the current step's bytes */
    struct wefti_op *op;  /* whose list it is, while the work is asked for */
    wefti_step_place at;  /* the current step's */
    wefti_step step;      /* itself, if loaded */
    bool loaded;
    wefti_step_phase phase;
    wefti_wait wait;
    int place;         /* REDUCE, RELAY: next source to look for */
    int peer;          /* who is awaited */
    int offered;       /* messages to come whose places the network has */
    int way;           /* which fetch and bounce is the step's: 0 or 1 */
    bool ahead;        /* the other one brings the source of a later step */
    bool lent;         /* the step reads peers' buffers */
    bool unread;       /* one of which could not be read */
    uint32_t apart;    /* REDUCE, RELAY: the sources in other processes */
    const void *from;  /* of the step's bytes: this rank's source */
    void *to;          /* and where they go; NULL: none move */
    size_t from_bytes; /* of a message, */
    wefti_bytes_place from_place; /* and where they lie */
    unsigned char *scratch;       /* a wide chunk */
    unsigned char *bounces[WEFTI_BOUNCES];
    const void **sources; /* [nranks] of a REDUCE */
    int *begins; /* [nranks + 1] of sources: how many ranks before each */
} wefti_step_list;

/* A staged message: its slot is free when every rank addressed has read it.
 * peer, owner, round and kind are its step's. */
typedef struct wefti_staged_slot {
    int peer, owner;
    size_t round;
    bool relayed;
    uint64_t number; /* to one peer: its sequence; to several: place among the
                        channel's messages */
} wefti_staged_slot;

/* Which buffers of an operation are memory that the host must not touch. */
typedef struct wefti_op_places {
    bool send, recv;
} wefti_op_places;

/* How members of a communicator read what another has not staged. */
typedef enum wefti_reading {
    WEFTI_READING_UNKNOWN, /* no rank has asked */
    WEFTI_READING_STAGED,  /* they cannot */
    WEFTI_READING_LOADS,   /* what they have mapped: comm/fabric/mapped.h */
    WEFTI_READING_COPIES   /* anything: comm/fabric/process_read.h */
} wefti_reading;

/* A transfer without a pause, for the observer. */
typedef struct wefti_op_piece {
    bool open;
    size_t bytes;
    int64_t posted_ns, ready_ns;
} wefti_op_piece;

/* A message to a rank of this domain that lies in an area until it is read. */
typedef struct wefti_area_message {
    wefti_fabric_path path;
    uint64_t sequence; /* 0: none */
} wefti_area_message;

typedef struct wefti_op {
    wefti_op_state state;
    weft_status status;
    struct wefti_request *request; /* that it carries out; NULL: done, or a
                                      message's */
    struct wefti_ticket *ticket;   /* of what its stream carries out */
    bool brief; /* a message of a list, with another behind it that ends as
                   late: it ends when both sides are there */
    weft_op desc;
    wefti_role role;        /* of this rank in desc */
    wefti_op_places places; /* of desc's buffers */
    unsigned char scale[8]; /* desc.scale points here, if anywhere */
    uint64_t epoch;
    uint64_t number; /* collectives: of the communicator; else of the pair */
    wefti_signature signature;
    wefti_choice choice;
    wefti_problem problem;
    int op_slot;
    wefti_step_list lists[WEFTI_STEP_LISTS];

    /* Staging. */
    int staging; /* -1: none */
    /* What of its buffers is not staged: nothing; MAPPED: what lies in such
     * memory; PROCESS: anything; LENT: what goes to other hosts. */
    wefti_bytes_place unstaged;
    size_t lent; /* messages of which the network has yet to take bytes */
    int held;    /* lists whose bytes move without the lock */
    bool
        being_read; /* its steps are done, but peers, or it, still read there */
    int slots[WEFTI_CHANNELS];
    size_t slots_begin[WEFTI_CHANNELS]; /* in the staging buffer */
    size_t slot_bytes;
    unsigned char *area; /* where its next message is staged; NULL: its slot */
    uint64_t sends[WEFTI_CHANNELS];
    wefti_staged_slot *slot_records[WEFTI_CHANNELS]; /* [slots_max] */
    uint64_t *checked; /* [nranks] last number with an equal signature */
    int unchecked;     /* all peers below this have been */
    size_t *counts;    /* [4][nranks] copies of desc's arrays */
    /* [nranks] elements to and from each, of deferred counts; the first is
     * SIZE_MAX as long as it has not been read. */
    size_t *gone, *come;
    int missing; /* oneshot: first peer not yet seen */
    int round;   /* of a barrier between hosts: the next to be sent */

    /* Gates. */
    size_t send_elems, recv_elems; /* of the whole buffers */
    size_t blocks;                 /* of a rank's part, of gate_elems each */
    size_t gate_elems;             /* elements per gate chunk; >= 1 */
    bool gate_per_rank;            /* instead: a chunk is a rank's part */
    uint64_t *gate_arrived; /* [WEFTI_GATE_CHUNKS_MAX] elements written */
    wefti_gate_watcher watcher, writable_watcher;

    /* Clocks. */
    int64_t entered_ns, moved_ns, checked_ns;
    bool warned;
    int suspect;      /* seen dead or gone at the last look; -1: no rank */
    int cause;        /* rank of the job, seen at the last look; -1: none */
    int64_t cause_ns; /* since when */
    wefti_op_piece piece;

} wefti_op;

typedef struct wefti_request wefti_request;
typedef struct wefti_collective wefti_collective;
typedef struct wefti_p2p_message wefti_p2p_message;
typedef struct wefti_ticket wefti_ticket;
typedef struct wefti_ticket_block wefti_ticket_block;
typedef struct wefti_twin wefti_twin;

/* What must come from a rank before anything can go on here; see
 * comm/steps/expect.h. */
typedef struct wefti_expected {
    size_t messages, bytes; /* 0, 0: nothing is waited for */
    bool blocked;           /* a list waits until it may send more */
} wefti_expected;

/*
 * Who asks why something stands still (comm/watch/diagnosis.c). Lock held.
 *
 * stalled   each time op could not move
 * stands    each time the stream of a request has not come to it
 * launched  now and then, where graphs hold operations of comm
 * expects   what comm waits for from peer; false: that is not known
 */
typedef struct wefti_watch {
    void (*launched)(weft_comm *comm);
    void (*stalled)(weft_comm *comm, wefti_op *op);
    void (*stands)(weft_comm *comm, const wefti_request *request);
    bool (*expects)(weft_comm *comm, int peer, wefti_expected *expected_out);
} wefti_watch;

typedef struct wefti_net wefti_net;
typedef struct wefti_control wefti_control;
typedef struct wefti_hosts wefti_hosts;

/* A list of ranks that became a communicator, or a colour that a parent was
 * split by, and how often. */
typedef struct wefti_list {
    uint64_t digest;
    uint64_t times;
} wefti_list;

/* Which of a rank's waits its record shows; see comm/watch/waits.h. */
typedef struct wefti_shown_wait {
    const void *wait;
    int weight;
    int64_t since_ns, seen_ns;
} wefti_shown_wait;

/* What a thread calls while it waits; see idle of weft_comm_config. */
typedef struct wefti_idle {
    void (*function)(void *context); /* NULL: nothing */
    void *context;
} wefti_idle;

/*
 * Its flags (each pairs with loads in comm/engine/engine.c; the work itself is
 * under the lock):
 *
 * pending    raised before the progress thread's bell is rung, loaded by it
 *            between arm and sleep (base/doorbell.h)
 * driven     cleared by that thread before it loads pending again and sleeps
 *            without the engine's bell; loaded by posts behind pending
 * thread_bell  set once under the lock, with driver: comm/engine/driver.c
 * drivers    whatever takes it to 0 arms the network's watcher; the watcher
 *            loads it under the lock: alone
 * callers    of these, those that wait inside a call; likewise
 * pusher     only a thread that is it finds itself there
 * signalled_ns  CPU time of threads in wefti_engine_signalled: alone
 */
typedef struct wefti_engine {
    pthread_mutex_t lock;
    wefti_doorbell *bell; /* in shared memory: peers, gates and posts ring it */
    wefti_doorbell own;   /* in its place until there is such memory */
    /* The thread that drives it, with others of this process; NULL: none yet.
     * It sleeps at thread_bell too, and only there while nothing is pending. */
    struct wefti_driver *driver;
    _Atomic(wefti_doorbell *) thread_bell;
    _Atomic bool driven; /* that thread's: it is one of drivers */
    int64_t silent_ns;   /* that thread's: comm/engine/turn.h */
    _Atomic int pending; /* stream operations not yet done */
    _Atomic int drivers; /* with a net: who will look at it again */
    _Atomic int callers;
    _Atomic int64_t signalled_ns;
    _Atomic uintptr_t pusher; /* the thread that pushes; 0: none does */
    weft_device *host;        /* for gates of communicators without a device */
    weft_comm *comms;
    int users;
    int ranks_per_core;     /* as this rank has counted */
    bool oversubscribed;    /* more than one */
    bool one_core;          /* is all that this process may run on */
    int64_t spin_ns;        /* how long a waiting caller spins */
    int64_t link_free_ns;   /* the emulated link */
    int64_t due_ns;         /* next time something becomes visible */
    bool looks;             /* a device does something that rings no bell */
    bool handing;           /* a thread has left the lock for a device */
    uint64_t device_looks;  /* how often devices were asked if they failed */
    size_t copies_asked;    /* and not yet given; see comm/engine/copies.h */
    wefti_held_work *works; /* asked for; see comm/engine/held_work.h */
    bool worked;            /* since sleepers were last woken */
    bool signalled;         /* by the pusher, a gate of an operation */
    wefti_net *net;         /* NULL: all ranks share memory */
    wefti_control *control; /* with a net */
    wefti_hosts *hosts;     /* NULL: nothing is known of them */
    void (*hosts_close)(wefti_hosts *hosts); /* if there are any */
    wefti_shown_wait shown;
    bool failed;               /* some communicator of it has */
    wefti_memory_limit memory; /* as it was when the ranks met */
    wefti_list *lists;         /* [list_count]; see comm/make/key_count.h */
    size_t list_count, list_room;
    wefti_membership *members;      /* NULL: a job of one rank */
    wefti_mapping *mapping;         /* holds the bell while the thread lives */
    wefti_board_line *board;        /* the launcher's; NULL: there is none */
    const weft_comm *_Atomic noted; /* whose operation stands there; alone */
    uint64_t *home;                 /* reads as 0 in a forked child */
    wefti_witness *witnesses; /* [of the job's ranks] those of this domain */
    wefti_stager stager;      /* of what ranks of the domain read next */
    wefti_stager puts;        /* likewise, in a weft_mem of theirs */
    bool reads_processes;     /* all ranks of the domain read all others' */
    char unread_why[200];     /* why some cannot; "": they are not to */
} wefti_engine;

/* One member as seen by this rank. */
typedef struct wefti_peer {
    int world_rank;
    int first; /* the lowest rank here that shares memory with it */
    bool dead;
    _Atomic int64_t looked_ns; /* when a put last looked whether it lives;
                                  alone */
} wefti_peer;

/* What goes to one peer, or comes from it, oldest first. */
typedef struct wefti_p2p_queue {
    wefti_p2p_message *first, *last;
    wefti_op *op;    /* carries out the first */
    uint64_t number; /* of the last that op has carried */
    struct wefti_p2p_queue *next_busy;
    bool busy;  /* in the communicator's list of queues with messages */
    bool ahead; /* op has nothing to do until a stream comes to the first */
} wefti_p2p_queue;

/*
 * Those of one number, made when it is first used; the arrays are [2 * nranks]:
 * what goes out to each rank, what comes in. made is stored last, and pairs
 * with the load of a thread that posts.
 */
typedef struct wefti_p2p_queues {
    _Atomic bool made;
    wefti_p2p_queue *list;
    wefti_op *ops; /* one for each */
    wefti_staged_slot *records;
    uint64_t *arrived;
} wefti_p2p_queues;

struct weft_comm {
    uint64_t head_word; /* comm/core/live.h */
    const uint64_t *home;
    weft_comm *next; /* of the engine */
    wefti_engine *engine;
    char name[32];
    int rank, nranks;
    weft_device *device; /* may be NULL: host memory only */
    int sm_budget;       /* of its streams there; 0: all */
    int64_t warn_ns, timeout_ns;
    wefti_idle idle;
    int inside; /* threads that are in a call for a handle that is done */
    int ops_in_flight;
    const char *rounds[WEFT_P2P_QUEUES]; /* comm/post/p2p.h; NULL: of none */
    wefti_tuning tuning;
    wefti_known_rates rates; /* the same on all members */
    int ranks_per_core;      /* likewise; 0: not known of all */
    wefti_choice_cache *choices;
    wefti_observer observer;
    const wefti_watch *watch;

    struct wefti_remains *remains; /* comm/make/remains.h; NULL: one host */
    wefti_mapping *mapping;
    uint64_t memory_offset;
    int local_count; /* members of this rank's domain, itself included */
    wefti_grouping *grouping; /* NULL: one level */
    wefti_nest *nest;         /* NULL: none inside that */
    wefti_fabric fabric;
    wefti_reading reading;
    wefti_doorbell **bells; /* [nranks] */
    wefti_peer *peers;      /* [nranks] */
    /* Of calls that make communicators, so that these need no memory. */
    int *group;  /* [nranks], room for split and shrink */
    void *table; /* [nranks] of wefti_verdict */

    uint64_t number;     /* last that has an op slot */
    uint64_t completed;  /* all up to this are done */
    uint64_t settled;    /* and seen to be the same on all ranks */
    uint64_t peers_done; /* every rank has completed this, as last seen */
    const struct wefti_request_kind *const *kinds; /* NULL after the last */
    /* Posted and not taken in: pushed by any thread, released; taken in under
     * the lock. */
    wefti_request *_Atomic inbox;
    wefti_collective *posted, **posted_end; /* those without a number yet */
    wefti_op ops[WEFTI_OP_SLOTS];
    void *op_arrays;       /* what the ops' pointers point into */
    uint32_t active;       /* bit set of ops not FREE */
    uint32_t urgent;       /* of those, the ones that compute waits for soon */
    int64_t budget_bytes;  /* that may still move in this turn */
    uint32_t staging_used; /* bit set */
    /* The last operation that used each area, and the message that is in it:
     * comm/steps/area.h. */
    uint64_t area_users[WEFTI_AREAS];
    wefti_area_message area_messages[WEFTI_AREAS];
    int area_messages_count; /* of those with one, as last looked at */
    int far_area;            /* where the next far one is looked for */
    size_t far_begin;        /* the next far staging, in a staging buffer */
    const wefti_op *wanted;  /* the first posted waits for this op slot */
    int slots_max;
    unsigned char *arena; /* scratch and bounces of all lists */
    size_t arena_bytes;
    size_t heap_bytes; /* of this struct and its arrays */

    wefti_p2p_queues queues[WEFT_P2P_QUEUES];
    pthread_mutex_t queues_lock; /* while one is made */
    wefti_p2p_queue *busy_queues;
    size_t messages_pending;

    weft_mem *mems;
    uint64_t mems_made;
    bool mems_engaged; /* one had remote peers: their messages are taken */
    struct wefti_mem_op *mem_ops, **mem_ops_end; /* in order of posting */

    pthread_mutex_t tickets_lock; /* innermost; guards these two */
    wefti_ticket_block *ticket_blocks;
    wefti_ticket *tickets_free;

    wefti_twin *twin;              /* NULL: NCCL carries nothing out */
    struct wefti_streams *streams; /* NULL: no stream carries anything out */
    char route_why[200];           /* why neither, where one was asked for */

    int held;   /* its works that are asked for or under way */
    bool alone; /* one of these is, and no other may be beside it */

    struct wefti_copies *copies;        /* NULL: the host reads all memory */
    const struct wefti_mem_op *fetcher; /* its put's bytes are being copied */
    const weft_mem *stored;             /* into it, what a message brought */
    int stored_from;                    /* by this rank */

    weft_status failed;         /* this rank has acted on the fault */
    bool released;              /* and has ended all its operations */
    int64_t release_ns;         /* when it does so, at the latest */
    int64_t half_fault_ns;      /* since when a fault is being written */
    int64_t ripens_ns, ripe_ns; /* when it is acted on, at the latest */
    int64_t asked_ns;           /* when last whether hosts answer */
    /* When a stream that has not come to an operation was last looked at, and
     * since when that has been seen, up to when. */
    int64_t stream_look_ns, stream_since_ns, stream_seen_ns;
    /* This rank must tell other domains of it: stored before the fault page's
     * state, loaded after it. */
    _Atomic bool fault_announced;
    /* wefti_fault_learn -> weft_comm_get_fault: a copy is in fault. */
    _Atomic uint32_t fault_seen;
    weft_fault fault;

    /* A NULL is a free number. */
    struct wefti_reduction *reductions[WEFTI_REDUCTIONS];
    uint64_t tail_word;
};

/* Tells the launcher, if there is one that listens, where this rank is. Also
 * without the lock: two threads' words may then stand there mixed. */
static inline void wefti_comm_note(weft_comm *comm, uint64_t number,
                                   uint64_t kind)
{
    wefti_engine *engine = comm->engine;
    if (!engine->board) {
        return;
    }
    if (atomic_load_explicit(&engine->noted, memory_order_relaxed) != comm) {
        wefti_board_set_name(engine->board, comm->name);
        atomic_store_explicit(&engine->noted, comm, memory_order_relaxed);
    }
    wefti_board_note(engine->board, number, kind);
}

/* What a choice for the communicator depends on, with its tuning or another. */
static inline wefti_scope wefti_comm_scope(const weft_comm *comm,
                                           const wefti_tuning *tuning)
{
    return (wefti_scope){.tuning = tuning,
                         .nranks = comm->nranks,
                         .grouping = comm->grouping,
                         .nest = comm->nest,
                         .apart = comm->local_count == 1,
                         .rates = wefti_known_rates_get(&comm->rates),
                         .ranks_per_core = comm->ranks_per_core};
}

/* Whether the next piece of compute waits for it; gradients and what else
 * moves in bulk can wait. */
static inline bool wefti_class_is_urgent(weft_class class_id)
{
    return class_id >= WEFT_CLASS_TP && class_id < WEFT_CLASS_DP;
}

/* What the choice says of its steps. */
static inline void wefti_op_take_choice(const weft_comm *comm, wefti_op *op)
{
    op->problem.chunk_elems = op->choice.chunk_elems;
    op->problem.relay_elems = op->choice.relay_elems;
    op->problem.upward = op->choice.pattern == &wefti_pattern_nested_sums;
    op->problem.nest =
        op->problem.upward || op->choice.pattern == &wefti_pattern_nested
            ? comm->nest
            : NULL;
}

/* Whether its poster may still be waiting for it. */
static inline bool wefti_op_pending(const wefti_op *op)
{
    return op->state == WEFTI_OP_POSTED || op->state == WEFTI_OP_RUNNING;
}

#endif
