/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/mem/mem.h - memory that peers write into; see weft/mem.h.
 *
 *   header | part | part | ...     in a domain's memory, for each of its ranks
 *   part:  cells   [source][slot] counters, each raised by its source
 *          data    the owner's bytes; none where these are registered: memory
 *                  of the owner's own
 *
 * What a rank can map is written to directly, once all have seen what the
 * others write there. To any other rank, and to all others where memory is
 * apart, data and signals travel as messages on the queue of point-to-point
 * messages, channel WEFTI_MEM_CHANNEL, and the engine of their target puts them
 * where they belong; being in one queue, they keep their order.
 *
 * A cell's raise (by its source; by its owner's engine where that is a message)
 * releases the data put before; a wait's load acquires them. Both are
 * sequentially consistent, because the bell needs it.
 *
 * Registered host memory no other rank has mapped. Registered memory of a
 * device the devices of other ranks write to, where they reach it: after all
 * have tried (mem_lent.c). That its owner has left is a bit in the header: the
 * memory is its program's again, and no message is taken out.
 */
#ifndef COMM_MEM_MEM_H
#define COMM_MEM_MEM_H

#include "comm/engine/request.h"
#include "comm/post/consensus.h"
#include "comm/watch/stall.h"
#include "weft/mem.h"

enum { WEFTI_MEM_CHANNEL = 1 };

/* Another rank's registered memory. */
typedef struct wefti_mem_reach {
    unsigned char *data; /* as this rank's device has it; NULL: by messages */
    bool imported;
    bool writes; /* the other's device writes to this rank's */
} wefti_mem_reach;

struct weft_mem {
    weft_mem *next; /* of the communicator */
    weft_comm *comm;
    uint64_t id; /* the id-th of the communicator, on all ranks */
    size_t bytes;
    size_t part_bytes, total_bytes;
    uint64_t offset; /* in the domain's memory */
    wefti_mapping *mapping;
    wefti_mapped *mapped; /* until the fabric has it */
    bool apart; /* of every rank: what ranks have mapped is not the same */

    /* Of a registered one. */
    bool registered;
    bool on_device;           /* this rank's bytes are its device's */
    bool lent;                /* some rank's are */
    bool messages;            /* some go between this rank and another */
    unsigned char *own;       /* this rank's bytes */
    wefti_mem_reach *reaches; /* [nranks] */
    weft_status reached;      /* until it is tried: whether all was, and why */
    char why[160];            /* not */
    unsigned char *kept;      /* while it is tried: what was there before */
};

/* Where a rank's part begins, of this domain: part_bytes. */
unsigned char *wefti_mem_get_part(const weft_mem *mem, int rank);

/*
 * The counter of rank that source raises. local ranks only. Raised by
 * fetch-and-add (for a remote source by its messages, mem_remote.c), loaded by
 * weft_mem_get_signal: what source had put before may then be read.
 */
_Atomic uint64_t *wefti_mem_get_cell(const weft_mem *mem, int rank, int source,
                                     int slot);
unsigned char *wefti_mem_get_data(const weft_mem *mem, int rank);

/* Whether this rank writes to peer's part by itself, and then whether only its
 * device can; whether peer, of this domain, has destroyed what it registered:
 * what would go there is lost. */
bool wefti_mem_is_local(const weft_mem *mem, int peer);
bool wefti_mem_is_on_device(const weft_mem *mem, int peer);
bool wefti_mem_has_left(const weft_mem *mem, int peer);

/*
 * wefti_mem_check_range - whether comm's rank may offer these bytes to others:
 * memory that this process, or comm's device, writes, all of one allocation
 * there, and that no other weft_mem of comm has.
 *
 * Returns     OK | ERR_INVALID | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_mem_check_range(weft_comm *comm,
                                                 const void *pointer,
                                                 size_t bytes,
                                                 bool *on_device_out);

/*
 * wefti_mem_trial_begin  - before any other use: this rank writes what the
 *                          others of its domain look for.
 * wefti_mem_trial_look   - once all have. Returns OK | ERR_SYSTEM: what a rank
 *                          has written is not there.
 * wefti_mem_trial_end    - once all have looked: memory is zero again. Peers
 * may signal meanwhile.
 */
void wefti_mem_trial_begin(const weft_mem *mem);
WEFT_NODISCARD weft_status wefti_mem_trial_look(const weft_mem *mem);
void wefti_mem_trial_end(const weft_mem *mem);

/*
 * wefti_mem_lent_meet  - of a memory that some rank has on its device, by all:
 *                        what this rank reaches of the others'. mem->reached
 *                        says whether that is all it should.
 * wefti_mem_lent_part  - gives back what it has imported.
 *
 * Then, before any other use, and blocking:
 *
 * wefti_mem_lent_keep     the first bytes of this rank's are kept aside.
 * wefti_mem_lent_write    once all have: writes what the others look for.
 * wefti_mem_lent_look     once all have. Returns OK | ERR_SYSTEM: what a rank
 *                         has written is not there | as weft_device_copy.
 * wefti_mem_lent_restore  the kept bytes are there again; what the device
 *                         refuses is logged. Legal without.
 */
WEFT_NODISCARD weft_status wefti_mem_lent_meet(weft_mem *mem,
                                               wefti_consensus *consensus);
void wefti_mem_lent_part(weft_mem *mem);
WEFT_NODISCARD weft_status wefti_mem_lent_keep(weft_mem *mem);
WEFT_NODISCARD weft_status wefti_mem_lent_write(const weft_mem *mem);
WEFT_NODISCARD weft_status wefti_mem_lent_look(weft_mem *mem);
void wefti_mem_lent_restore(weft_mem *mem);

/* Frees what its user has not destroyed; messages are taken no more. */
void wefti_mems_fini(weft_comm *comm);

/* What one call does once its stream has come to it. Lock held for all. */
typedef enum wefti_mem_act {
    WEFTI_MEM_PUT,
    WEFTI_MEM_SIGNAL,
    WEFTI_MEM_WAIT
} wefti_mem_act;

typedef struct wefti_mem_op {
    wefti_request request;
    struct wefti_mem_op *next;
    weft_mem *mem;
    wefti_mem_act act;
    int peer, slot;
    uint64_t value;
    const unsigned char *src;
    bool src_on_device;
    size_t dst_offset, bytes;
    bool over; /* nothing of it is left to do */
    wefti_stall stall;
} wefti_mem_op;

/* Moves what is pending, and what remote peers have sent. */
extern const wefti_request_kind wefti_mem_op_kind;

/*
 * wefti_mem_remote_put - hand over as much of op's bytes as the peer's queue
 * has room for; of device memory a piece at a time, through comm's bounce. Lock
 * held. op then begins behind them. Returns whether anything moved.
 *
 * wefti_mem_remote_signal - whether it was handed over.
 */
bool wefti_mem_remote_put(wefti_mem_op *op);
bool wefti_mem_remote_signal(weft_mem *mem, int peer, int slot, uint64_t add);

/*
 * wefti_mem_lent_put    - a piece of op's bytes, which are the host's, into
 *                         device memory that is within reach, through comm's
 *                         bounce. Returns whether anything moved.
 *
 * wefti_mem_lent_store  - what a message has brought, into this rank's device
 *                         memory. Returns whether it is there: call again.
 *
 * Lock held for both.
 */
bool wefti_mem_lent_put(wefti_mem_op *op);
bool wefti_mem_lent_store(weft_mem *mem, int source, size_t offset,
                          const void *data, size_t bytes);

/* Puts where it belongs what remote peers have sent. Lock held. */
bool wefti_mem_remote_receive(weft_comm *comm);

#endif
