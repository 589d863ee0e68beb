/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/fabric.h - move messages between the ranks of one communicator
 * in one way. No call blocks.
 *
 * A message goes from one rank to one peer in a slot (the operation's op slot)
 * and channel, and is read in the order of posting. Its bytes lie where stage
 * says, in mapped memory or in the sender's process, and must stay until the
 * peer has released it.
 *
 *   sender: stage -> write the bytes -> post ... read_by says it was released
 *   reader: peek  -> use the bytes where they lie -> release
 */
#ifndef COMM_FABRIC_FABRIC_H
#define COMM_FABRIC_FABRIC_H

#include "comm/fabric/mapped.h"
#include "comm/fabric/shared.h"

#include <stdbool.h>

typedef struct wefti_fabric wefti_fabric;
struct wefti_net;
struct wefti_inbound;
struct wefti_rounds;

/* Where a message travels. */
typedef struct wefti_fabric_path {
    int peer;
    int op_slot;
    int channel;
} wefti_fabric_path;

typedef struct wefti_outgoing {
    const void *data; /* from stage, mapped, lent, or of the process */
    size_t bytes;
    int64_t ready_ns;
    wefti_signature signature; /* point-to-point only */
    int slots;   /* as many may be unread before the next waits; 0: not known */
    bool urgent; /* compute waits for it soon */
    wefti_bytes_place place;
    size_t *lent; /* of LENT: counts it until the network has taken it */
} wefti_outgoing;

typedef struct wefti_incoming {
    const void *data; /* valid until release */
    size_t bytes;
    int64_t ready_ns;
    wefti_signature signature;
    wefti_bytes_place place; /* PROCESS: data is an address of the sender's */
} wefti_incoming;

/*
 * wefti_fabric_table - one way of moving bytes. How many messages have gone and
 * which of them are released is counted alike, whatever moves them.
 *
 * open      makes what this way alone keeps for a communicator, fabric->own:
 * once its regions are placed, and before any other call. NULL: nothing. close
 * gives it back, when the rank destroys the communicator or could not make it.
 * What peers have yet to release may still be needed then: outside of the
 * engine's lock this call may wait for them, bounded. stage     memory for
 * staging-relative byte offset of an operation's staging, or (P2P) for slot
 * `offset` of what goes to the peer. post      announce a staged message, for
 * which there is room. peek      the oldest unreleased message from the peer;
 * false: none yet. If one is under way and due at a known time, *due_ns is
 * lowered to that time. release   done with the message that peek gave.
 */
typedef struct wefti_fabric_table {
    const char *name;
    weft_status (*open)(wefti_fabric *fabric);
    void (*close)(wefti_fabric *fabric);
    void *(*stage)(wefti_fabric *fabric, wefti_fabric_path path, int staging,
                   size_t offset);
    void (*post)(wefti_fabric *fabric, wefti_fabric_path path,
                 const wefti_outgoing *message);
    bool (*peek)(wefti_fabric *fabric, wefti_fabric_path path,
                 wefti_incoming *message_out, int64_t *due_ns);
    void (*release)(wefti_fabric *fabric, wefti_fabric_path path);
} wefti_fabric_table;

/*
 * What has gone to, and come from, a peer over the network. told: how far this
 * rank has come, as the peer knows. owed: paths with releases that the peer
 * does not know of; urged: it waits for one of them, or may soon. asked: it
 * waits, and wants to know what this rank has entered; answered: how many
 * operations this rank had entered when it said so last.
 * leaves_after: its farewell counts once so many of its messages have come,
 * which was at left_ns. doubted: somebody here, on any thread, wants to know
 * whether it has left, if the wait goes on for doubt_after_ns; that has been so
 * since doubted_since_ns, last at doubted_ns, with doubted_got come before, and
 * it was asked last at doubt_told_ns. answered_left: it knows that this rank
 * has; asked is then that it is to know.
 */
typedef struct wefti_line {
    int world_rank;
    uint64_t sent, got;
    uint64_t told;
    int owed;
    bool urged, asked;
    uint64_t answered;
    wefti_leave leaving;
    uint64_t leaves_after;
    int64_t left_ns;
    _Atomic bool doubted;
    _Atomic int64_t doubt_after_ns;
    int64_t doubted_since_ns, doubted_ns, doubt_told_ns;
    uint64_t doubted_got;
    bool answered_left;
} wefti_line;

/*
 * One communicator's way to each of its members. tables[peer]: how a peer is
 * reached; bells[peer]: where it is woken. ns_per_byte > 0 limits the rate at
 * which this rank's messages arrive; link_free_ns, shared by all communicators
 * of a rank, is when its emulated link is idle again.
 */
struct wefti_fabric {
    const wefti_fabric_table **tables; /* [nranks] */
    wefti_shared shared;
    void *own; /* the table's, by which ranks of this domain are reached */
    wefti_mapping *mirrors; /* of ranks of other domains; NULL: none */
    wefti_mapped *mapped;   /* what local members need not stage */
    /* [nranks][WEFTI_P2P_AREAS] with a net: where messages to each are staged;
     * NULL: none has been. Stored, with release, before the first is posted. */
    _Atomic(wefti_mapping *) *outgoing;
    wefti_mapping *spare;  /* for one of them, where no memory is left */
    struct wefti_net *net; /* leads to them; NULL: there are none */
    struct wefti_inbound *inbound; /* with a net: what has come from them */
    struct wefti_rounds *rounds;   /* the same: what all ranks must know */
    uint64_t id;       /* the same on all members, and of no others */
    wefti_line *lines; /* [nranks], with a net */
    size_t
        *unsent; /* with a net: its messages whose bytes no operation lends */
    bool urged;  /* some line is */
    bool asked;  /* likewise */
    _Atomic bool doubts; /* likewise */
    uint64_t entered;    /* how often this rank has entered an operation */
    int64_t waiting_told_ns;
    int rank;
    wefti_doorbell **bells;
    double ns_per_byte;
    int64_t *link_free_ns;
    uint64_t *posted;     /* [peer][op slot][channel] */
    uint64_t *read;       /* the same: read_by, as last looked at for room */
    uint64_t *taken;      /* the same, of messages released by this rank */
    uint64_t *told_taken; /* the same, with a net: as far as the peer knows */
    uint64_t *awaited;    /* the same: the last whose release the peer awaits */
    uint64_t payload_bytes;
    uint64_t unstaged_bytes; /* sent where they lay in a buffer */
};

/* Memory shared by all ranks of the domain: shm. */
extern const wefti_fabric_table wefti_fabric_shm;

/* By messages, to a rank of another domain: net. */
extern const wefti_fabric_table wefti_fabric_net;

/*
 * wefti_fabric_init - base: the domain's memory; remote[peer]: the peer belongs
 * to another domain.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM; fini is legal after all.
 */
WEFT_NODISCARD weft_status wefti_fabric_init(wefti_fabric *fabric, int rank,
                                             int nranks, void *base,
                                             const bool *remote);
void wefti_fabric_fini(wefti_fabric *fabric);

/* Where messages of an area to a rank of another domain are staged; NULL: none
 * has been. */
static inline wefti_mapping *
wefti_fabric_get_outgoing(const wefti_fabric *fabric, int peer, int area)
{
    return fabric->outgoing
               ? atomic_load_explicit(
                     &fabric->outgoing[(size_t)peer * WEFTI_P2P_AREAS +
                                       (size_t)area],
                     memory_order_acquire)
               : NULL;
}

/*
 * wefti_fabric_open_spare, _open_outgoing - at its making; before the first of
 * those messages; the caller is alone with it. What ranks exchange to make a
 * communicator goes in such messages, and is not to fail on one of them alone:
 * so there is a spare.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_fabric_open_spare(wefti_fabric *fabric);
WEFT_NODISCARD weft_status wefti_fabric_open_outgoing(
    wefti_fabric *fabric, int peer, int area, wefti_mapping **mapping_out);

/* "shm", or what else carries messages of this communicator; of one rank
 * "self". */
const char *wefti_fabric_name(const wefti_fabric *fabric);

/* When bytes posted now will have crossed the emulated link; 0: no limit. */
int64_t wefti_fabric_charge(wefti_fabric *fabric, size_t bytes);

/* Whether its peer is of another domain. */
static inline bool wefti_fabric_is_remote(const wefti_fabric *fabric, int peer)
{
    return fabric->net && fabric->tables[peer] == &wefti_fabric_net;
}

/* Slots of an area of messages to peer. */
static inline uint64_t wefti_fabric_p2p_slots(const wefti_fabric *fabric,
                                              int peer)
{
    return wefti_fabric_is_remote(fabric, peer) ? WEFTI_P2P_REMOTE_SLOTS
                                                : WEFTI_P2P_SLOTS;
}

/* Index into posted and taken. */
static inline size_t wefti_fabric_cell(const wefti_fabric_path *path)
{
    return ((size_t)path->peer * WEFTI_ALL_SLOTS + (size_t)path->op_slot) *
               WEFTI_CHANNELS +
           (size_t)path->channel;
}

/* How many messages were ever posted on the path. */
static inline uint64_t wefti_fabric_posted(const wefti_fabric *fabric,
                                           wefti_fabric_path path)
{
    return fabric->posted[wefti_fabric_cell(&path)];
}

/* How many of them the peer has released. */
static inline uint64_t wefti_fabric_read_by(const wefti_fabric *fabric,
                                            wefti_fabric_path path)
{
    return atomic_load(wefti_shared_get_consumed(
        &fabric->shared, path.peer, fabric->rank, path.op_slot, path.channel));
}

/* Whether one more may be posted that needs no slot: LINE; or with at most
 * `most` unread ones, itself included. */
static inline bool wefti_fabric_has_room_of(wefti_fabric *fabric,
                                            wefti_fabric_path path,
                                            uint64_t most)
{
    const size_t cell = wefti_fabric_cell(&path);
    if (fabric->posted[cell] - fabric->read[cell] >= most) {
        fabric->read[cell] = wefti_fabric_read_by(fabric, path);
    }
    return fabric->posted[cell] - fabric->read[cell] < most;
}

static inline bool wefti_fabric_has_line(wefti_fabric *fabric,
                                         wefti_fabric_path path)
{
    return wefti_fabric_has_room_of(fabric, path, WEFTI_DEPTH);
}

static inline bool wefti_fabric_has_room(wefti_fabric *fabric,
                                         wefti_fabric_path path)
{
    return wefti_fabric_has_room_of(
        fabric, path,
        wefti_op_slot_is_p2p(path.op_slot)
            ? wefti_fabric_p2p_slots(fabric, path.peer)
            : WEFTI_DEPTH);
}

/* The calls of the table that the path's peer is reached by. */
static inline void *wefti_fabric_stage(wefti_fabric *fabric,
                                       wefti_fabric_path path, int staging,
                                       size_t offset)
{
    /* What goes to several peers lies in one place, whatever each of them is
     * reached by. */
    const int owner =
        wefti_op_slot_is_p2p(path.op_slot) ? path.peer : fabric->rank;
    return fabric->tables[owner]->stage(fabric, path, staging, offset);
}

static inline void wefti_fabric_post(wefti_fabric *fabric,
                                     wefti_fabric_path path,
                                     const wefti_outgoing *message)
{
    fabric->tables[path.peer]->post(fabric, path, message);
}

static inline bool wefti_fabric_peek(wefti_fabric *fabric,
                                     wefti_fabric_path path,
                                     wefti_incoming *message_out,
                                     int64_t *due_ns)
{
    return fabric->tables[path.peer]->peek(fabric, path, message_out, due_ns);
}

static inline void wefti_fabric_release(wefti_fabric *fabric,
                                        wefti_fabric_path path)
{
    fabric->tables[path.peer]->release(fabric, path);
}

#endif
