/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/shared.h - the memory that the ranks of one communicator share:
 * who writes what, and which store a reader pairs with.
 *
 *   header | region of rank 0 | region of rank 1 | ...
 *
 * The ranks of one domain (those that can map the same memory) share one such
 * mapping, with a region for each of them and for no other rank. Of a rank of
 * another domain, each rank keeps a mirror: private memory, laid out as a
 * region's begin is, into which comm/net/wire.c writes what the owner does.
 * Readers need not know which of the two they look at. So what a rank maps
 * grows with the ranks of its domain, and little with those of others.
 *
 *   region: bell        rung by anyone who has news for the rank
 *           completed   the rank has done all operations up to this number
 *           entries     [OP_SLOTS] what it has entered, small payloads inside
 *           pairs       [peer of the domain]; in a mirror one, this rank:
 *             consumed  [op slot][channel] messages it has read from peer
 *             counts    [OP_SLOTS] of the v forms: what it sends to peer; of a
 *                       leader in rounds: where all hosts' blocks are
 *             messages  [op slot][channel][DEPTH] what it has sent to peer
 *             marks     [area][mark] how far its streams are, for peer's
 *   then    staging     [OP_SLOTS] staged payload, one buffer per operation
 *           areas       [AREAS] payloads that no entry holds, and messages:
 *                       comm/steps/area.h
 *           p2p_staging [peer of the domain][channel] staged payload of
 *                       point-to-point operations
 *   or, in a mirror
 *           entered     [OP_SLOTS] what it has entered, as it said when asked
 *           arrivals    [op slot][channel][DEPTH] where its messages' bytes are
 *
 * Everything but the bell and the header is written by the owner alone (in a
 * mirror: by its reader, for the owner).
 * Operation n uses op slot n % OP_SLOTS; no rank enters n before every rank has
 * completed n - OP_SLOTS, so an op slot's cells are free when they are used
 * again. The slots behind those are the queues of point-to-point operations.
 *
 * Every flag is stored and loaded sequentially consistent: the bell needs it
 * (base/doorbell.h), and the store is also the release that publishes the
 * plain bytes written before it to the thread that loads it. Beside each flag
 * stands which store pairs with which load, and what that load may then read;
 * what is "alone" publishes nothing but itself.
 */
#ifndef COMM_FABRIC_SHARED_H
#define COMM_FABRIC_SHARED_H

#include "base/doorbell.h"
#include "comm/fabric/signature.h"
#include "comm/oob/limits.h"
#include "comm/pattern/pattern.h"
#include "comm/pattern/stream_work.h"
#include "weft/p2p.h"

#include <stdatomic.h>
#include <stdbool.h>

enum {
    WEFTI_OP_SLOTS = 16,
    /* Behind those of collectives: one for each queue of messages. */
    WEFTI_OP_SLOT_P2P = WEFTI_OP_SLOTS,
    WEFTI_ALL_SLOTS = WEFTI_OP_SLOTS + WEFT_P2P_QUEUES,
    WEFTI_DEPTH = 16,         /* messages per slot not yet read */
    WEFTI_ENTRY_BYTES = 4160, /* one entry with its payload */
    WEFTI_STAGING_BYTES = 4 << 20,
    WEFTI_AREA_BYTES = 64 << 10, /* one payload, or a message */
    WEFTI_AREAS = 32,            /* more than operations: comm/steps/area.h */
    WEFTI_P2P_SLOTS = 4,         /* to a peer of the domain */
    /* To another, whose word takes longer; its reader has offered places for
     * twice as many (comm/steps/offer.c). */
    WEFTI_P2P_REMOTE_SLOTS = WEFTI_DEPTH / 2,
    WEFTI_P2P_SLOT_BYTES = 64 << 10,
    /* To another domain: each piece costs a header, and mostly a wake-up. */
    WEFTI_P2P_REMOTE_BYTES = 128 << 10,
    /* What is staged for one peer, in areas: queue 0 and one-sided memory (its
     * second channel), and then the other queues. */
    WEFTI_P2P_AREAS = 1 + WEFT_P2P_QUEUES,
    WEFTI_P2P_STAGING_BYTES =
        WEFTI_P2P_AREAS * WEFTI_P2P_SLOTS * WEFTI_P2P_SLOT_BYTES
};

/* Whether what has that op slot is a queue of messages. */
static inline bool wefti_op_slot_is_p2p(int op_slot)
{
    return op_slot >= WEFTI_OP_SLOT_P2P;
}

/* Whether such an op slot carries messages on a channel. */
static inline bool wefti_p2p_has_channel(int op_slot, int channel)
{
    return channel == 0 || (op_slot == WEFTI_OP_SLOT_P2P && channel == 1);
}

/* The area that such an op slot's messages on a channel are staged in. */
static inline int wefti_p2p_area(int op_slot, int channel)
{
    return op_slot == WEFTI_OP_SLOT_P2P ? channel
                                        : op_slot - WEFTI_OP_SLOT_P2P + 1;
}

/*
 * An operation that a rank has entered. number is stored last; the other
 * words are atomic only because diagnosis reads them at any time.
 *
 * number   wefti_entry_publish -> wefti_op_check_peer: the words beside it,
 *          the payload and the counts. The way back is page.completed.
 * met      in rounds: comm/steps/meeting.c; else comm/steps/payload.c
 */
typedef struct wefti_entry {
    _Alignas(64) _Atomic uint64_t number;
    _Atomic uint64_t count;
    _Atomic uint64_t kind;
    _Atomic uint64_t cut;
    _Atomic int64_t stamp_ns;  /* when its payload may be read */
    _Atomic uint64_t met;      /* number: in rounds once all ranks have
                                  entered, else once the rank has read all */
    unsigned char payload[16]; /* all of it, or else it lies behind the struct,
                                  where lines begin */
} wefti_entry;

enum { WEFTI_PAYLOAD_BYTES = WEFTI_ENTRY_BYTES - (int)sizeof(wefti_entry) };

/* Where an entry has a payload of so many bytes. */
static inline unsigned char *wefti_entry_payload(wefti_entry *entry,
                                                 size_t bytes)
{
    return bytes <= sizeof(entry->payload) ? entry->payload
                                           : (unsigned char *)(entry + 1);
}

/* Where a message's bytes lie until it is released. */
typedef enum wefti_bytes_place {
    WEFTI_PLACE_STAGED,  /* in the sender's region */
    WEFTI_PLACE_MAPPED,  /* in memory that all have mapped: comm/fabric/mapped.h
                          */
    WEFTI_PLACE_PROCESS, /* in the sender's process, at an address of its own;
                            local peers only */
    WEFTI_PLACE_LENT,    /* there too, until the network has taken them; remote
                            peers only, which find them STAGED */
    WEFTI_PLACE_LINE     /* in the message itself, which copies them; its reader
                            takes them for staged; local peers only */
} wefti_bytes_place;

enum { WEFTI_LINE_BYTES = 24 }; /* the most that such a message has */

/*
 * One message. sequence: fabric post -> peek, stored last: the words beside it
 * and the staged bytes. The way back are the reader's "consumed" counters:
 * release -> has_room and read_by, so that a slot is written again only after
 * it has been read.
 */
typedef struct wefti_posted_message {
    _Alignas(64) _Atomic uint64_t sequence;
    uint32_t bytes;
    uint32_t place;            /* a wefti_bytes_place */
    wefti_signature signature; /* of point-to-point operations */
    union {
        struct {
            uint64_t offset;    /* of its bytes: from the sender's region, in
                                   the domain's memory, or an address */
            int64_t ready_ns;   /* when the sender's data were there */
            int64_t visible_ns; /* not to be read before (rate limit); 0: at
                                   once */
        };
        unsigned char line[WEFTI_LINE_BYTES]; /* LINE: instead of all three */
    };
} wefti_posted_message;

/*
 * Where the bytes of a message from another domain are, or will be, until its
 * release: in a buffer from comm/net/inbound.h, from its first byte's arrival
 * on, or where its operation wants them (offered), from before it. This rank's
 * alone, under the engine's lock.
 */
typedef struct wefti_arrival {
    uint64_t sequence;
    unsigned char *buffer; /* NULL: none */
    uint32_t bytes;
    bool offered; /* buffer is the operation's */
    bool begun;   /* the message has begun to arrive */
} wefti_arrival;

/*
 * Why the communicator has failed. state goes 0 -> 1 (one writer has won) ->
 * 2 (the rest is written): comm/control/fault.c, write_page -> learn and
 * weft_comm_get_fault.
 */
typedef struct wefti_fault_page {
    _Alignas(64) _Atomic uint32_t state;
    int32_t status;
    int32_t rank;
    uint64_t op_number;
    uint64_t completed; /* by who found it */
    char text[256];
} wefti_fault_page;

/*
 * One attempt of the survivors to agree who is left; see comm/make/shrink.c.
 * Each word is set once, by compare-and-swap: the rank that is first decides
 * for all.
 *
 * decided   propose -> decide: the author's proposal
 * outcome   conclude -> conclude: what a rank that could not build has written
 */
typedef struct wefti_shrink_round {
    _Atomic uint32_t decided; /* 1 + the rank whose proposal it is; or 0 */
    _Atomic uint32_t outcome; /* 0: open; else WEFTI_SHRINK_* */
    _Atomic uint64_t
        offset; /* of the new communicator's memory, + 1; 0: none */
} wefti_shrink_round;

enum {
    WEFTI_SHRINK_ROUNDS = 8, /* of one communicator, over all calls */
    WEFTI_SHRINK_AGREED = 1,
    WEFTI_SHRINK_AGAIN = 2, /* somebody was lost meanwhile */
    WEFTI_SHRINK_FAILED = 3 /* + the rank that could not build */
};

/* What a rank proposes in a round: written before its swap of decided. */
typedef struct wefti_proposal {
    uint64_t alive[WEFTI_JOB_RANKS_MOST / 64];
} wefti_proposal;

/*
 * A rank's part in shrinking.
 *
 * round      decide -> has_entered: alone
 * built[k]   build -> look_at_builders, stored last: status and text
 */
typedef struct wefti_shrink_page {
    _Atomic uint32_t round;
    _Atomic uint32_t built[WEFTI_SHRINK_ROUNDS]; /* 0; 1: yes; 2: no */
    int32_t status;
    char text[124];
    wefti_proposal proposals[WEFTI_SHRINK_ROUNDS];
} wefti_shrink_page;

/* How a rank of the job has ended, as its domain or another knows it. */
typedef enum wefti_rank_outcome {
    WEFTI_RANK_OUTCOME_NONE = 0, /* it has not, as far as is known */
    WEFTI_RANK_OUTCOME_DEAD, /* its process is gone: its host's kernel says so
                              */
    WEFTI_RANK_OUTCOME_CUT,  /* its host does not answer */
    WEFTI_RANK_OUTCOME_LEFT  /* it has ended well */
} wefti_rank_outcome;

enum {
    WEFTI_VOTE_WORDS = WEFTI_JOB_RANKS_MOST / 64,
    WEFTI_VOTE_WORDS_LEAST = 16, /* the first, and so many bytes of text */
    WEFTI_VOTE_TEXT_BYTES = 8 * (WEFTI_VOTE_WORDS_LEAST - 1),
    WEFTI_BALLOT_QUESTIONS = 2, /* of a round: who is left; have all built */
    WEFTI_BALLOT_TURNS = 2      /* what a domain says first, and in its turn */
};

/* What a domain says in a ballot; what it means is comm/make/shrink.c's. */
typedef struct wefti_vote {
    uint64_t number;
    uint64_t words[WEFTI_VOTE_WORDS];
} wefti_vote;

/*
 * A domain's vote, as this domain has it. state goes once, by
 * compare-and-swap, from 0 to one of WEFTI_CELL_*, which publishes the words:
 * all who write them write the same. There are as many words as the
 * communicator's ranks take.
 */
typedef struct wefti_ballot_cell {
    _Atomic uint32_t state;
    _Atomic uint64_t number;
    _Atomic uint64_t words[];
} wefti_ballot_cell;

/* Words of a vote that say something, of so many ranks. */
static inline int wefti_vote_count_words(int nranks)
{
    const int words = (nranks + 63) / 64;
    return words > WEFTI_VOTE_WORDS_LEAST ? words : WEFTI_VOTE_WORDS_LEAST;
}

enum { WEFTI_CELL_VOTED = 1, WEFTI_CELL_LOST = 2 };

/*
 * next_offset   fetch-and-add, alone: ranges are handed out in its order
 * gone          fetch-and-add by each that leaves: the last one's addition
 *               pairs with all before it, and no rank uses the memory any more
 * observed      wefti_comm_observe -> wefti_oneshot_announce, which loads it
 *               relaxed: alone, and an operation sooner or later is the same
 */
typedef struct wefti_shared_header {
    wefti_fault_page fault;
    wefti_shrink_round shrink[WEFTI_SHRINK_ROUNDS];
    /* Of all ranks of the job, wefti_rank_outcome; used in the world's header.
     */
    _Atomic uint8_t outcomes[WEFTI_JOB_RANKS_MOST];
    /* There too, of this domain's: where their control channels listen. */
    _Atomic uint16_t ports[WEFTI_JOB_RANKS_MOST];
    /* Where the next split's memory starts; used in the world's header. */
    _Atomic uint64_t next_offset;
    _Atomic uint32_t gone;     /* ranks that have destroyed it */
    _Atomic uint32_t observed; /* some rank wants exact times of entry */
} wefti_shared_header;

/*
 * What a rank waits in: words that comm/watch/waits.c packs. For people: a
 * reader may see words of two waits. seen_ns is stored last.
 */
enum { WEFTI_WAIT_WORDS = 9 };

typedef struct wefti_wait_page {
    _Atomic uint64_t words[WEFTI_WAIT_WORDS];
    _Atomic int64_t since_ns, seen_ns;
} wefti_wait_page;

/*
 * How a rank's process can be read by others of its domain, in the world's
 * region; stored before the meeting's verdict. trial is stored before the rank
 * enters the creation's barrier, and loaded behind it: 0, or 1 + the errno of
 * the first process that it could not read.
 */
typedef struct wefti_process_page {
    _Atomic uint64_t address;
    _Atomic uint64_t words[2];
    _Atomic uint32_t trial;
    _Atomic uint32_t trial_rank; /* of that process, in the job */
} wefti_process_page;

/* How far a rank is with what streams carry out, after a fault. */
typedef enum wefti_streams_halt {
    WEFTI_STREAMS_GO,
    WEFTI_STREAMS_HALTED, /* its operations will end with the fault */
    WEFTI_STREAMS_LET_GO  /* stored before: its streams wait for nobody more,
                             and what they leave may be wrong */
} wefti_streams_halt;

/* How a rank has destroyed its communicator. */
typedef enum wefti_leave {
    WEFTI_LEAVE_NONE, /* it has not */
    WEFTI_LEAVE_WELL,
    WEFTI_LEAVE_AFTER_FAULT /* which it has told the others */
} wefti_leave;

/*
 * completed    publish -> wefti_op_may_enter: the rank has read all it needs
 *              of the peers' entries and staging of these operations, which
 *              may be written again
 * finished     the same as far as its own part goes: for who looks on, alone
 * all_completed  of a host's lowest rank, comm/net/rounds.c: what all ranks
 *              have completed
 * left         weft_comm_destroy -> wefti_peer_lost: alone; a wefti_leave
 * streams_posted  of the route streams, operations that it has begun to queue,
 *              or to capture, which then never end:
 *              stored before it looks for a fault, loaded behind one by
 *              comm/streams/streams.c; streams_done: those that have ended
 * streams_stopped  a wefti_streams_halt
 * streams_closed  it reaches no other rank's staging of that route any more
 * host_only    its end of the communicator has no memory that only a device
 *              reads; stored before the ranks' first operation: alone
 * ranks_per_core  of a world: as it has counted; stored before that, too, and
 *              all take rank 0's: alone
 */
typedef struct wefti_rank_page {
    _Alignas(128) wefti_doorbell bell; /* the world's is the rank's */
    _Alignas(128) _Atomic uint64_t completed;
    _Atomic uint64_t all_completed;
    _Atomic uint32_t left;
    _Atomic uint32_t host_only;
    _Atomic uint32_t ranks_per_core;
    _Atomic uint64_t streams_posted, streams_done;
    _Atomic uint32_t streams_stopped, streams_closed;
    wefti_process_page process;
    wefti_wait_page wait;
    wefti_shrink_page shrink;
    _Atomic uint64_t finished;
} wefti_rank_page;

/* Offsets in bytes; within a region or mirror from its start, in a pair from
 * its own. total_bytes: of the domain's memory. */
typedef struct wefti_layout {
    int nranks, local_ranks; /* of the communicator; of these in the domain */
    size_t header_bytes;
    size_t region_bytes, mirror_bytes;
    size_t total_bytes;
    size_t cells; /* in the header, behind it: comm/make/ballot.h */
    size_t cell_bytes;
    size_t entries, pairs, staging, areas, p2p_staging, entered, arrivals;
    size_t pair_bytes, counts, messages, marks;
} wefti_layout;

wefti_layout wefti_layout_plan(int nranks, int local_ranks);

/* Address space that a rank needs for all regions and mirrors. */
size_t wefti_layout_count_bytes(const wefti_layout *layout);

/*
 * What one rank sees of a communicator's memory. header: its domain's.
 * regions[rank]: in the domain's memory, or this rank's own mirror of it.
 * places[rank]: which of the domain's regions is its own, in order of rank; -1:
 * it is of another domain.
 */
typedef struct wefti_shared {
    wefti_layout layout;
    wefti_shared_header *header;
    unsigned char **regions; /* [nranks] */
    int *places;             /* [nranks] */
} wefti_shared;

/* Where the region at that place lies in a domain's memory from base on. */
unsigned char *wefti_layout_get_region(const wefti_layout *layout, void *base,
                                       int place);

wefti_rank_page *wefti_shared_get_page(const wefti_shared *shared, int rank);
wefti_entry *wefti_shared_get_entry(const wefti_shared *shared, int rank,
                                    uint64_t number);

/* A mirror's: what its rank has said of an operation that it entered without
 * telling this one at once; a wefti_entry without payload. rank: of another
 * domain. */
wefti_entry *wefti_shared_get_entered(const wefti_shared *shared, int rank,
                                      uint64_t number);

/* The entry of the operation with that number, as far as is known here; NULL:
 * nothing is known of it. For diagnosis. */
wefti_entry *wefti_shared_find_entry(const wefti_shared *shared, int rank,
                                     uint64_t number);

/*
 * What two ranks have in common. At least one of them is this rank, or both are
 * of its domain.
 */
uint64_t *wefti_shared_get_count(const wefti_shared *shared, int writer,
                                 int reader, uint64_t number);
_Atomic uint64_t *wefti_shared_get_consumed(const wefti_shared *shared,
                                            int reader, int writer, int op_slot,
                                            int channel);
wefti_posted_message *wefti_shared_get_message(const wefti_shared *shared,
                                               int writer, int reader,
                                               int op_slot, int channel,
                                               uint64_t sequence);

/* [area][mark], see comm/streams/streams.h; both of this domain. */
_Atomic uint64_t *wefti_shared_get_marks(const wefti_shared *shared,
                                         int signaller, int waiter);

/* Where in a region a slot lies for what goes point to point to a peer of the
 * domain. */
size_t wefti_shared_find_p2p_slot(const wefti_shared *shared, int peer,
                                  int op_slot, int channel, size_t slot);

/* writer: of another domain. */
wefti_arrival *wefti_shared_get_arrival(const wefti_shared *shared, int writer,
                                        int op_slot, int channel,
                                        uint64_t sequence);

#endif
