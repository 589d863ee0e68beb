/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/mem/mem.h - memory that peers write into; see weft/mem.h.
 *
 *   header | part | part | ...     in a domain's memory, for each of its ranks
 *   part:  cells   [source][slot] counters, each raised by its source
 *          data    the owner's bytes; none where these are registered: memory
 *                  of the owner's own, which no other process has mapped
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
 */
#ifndef COMM_MEM_MEM_H
#define COMM_MEM_MEM_H

#include "comm/engine/request.h"
#include "comm/watch/stall.h"
#include "weft/mem.h"

enum { WEFTI_MEM_CHANNEL = 1 };

struct weft_mem {
    weft_mem *next; /* of the communicator */
    weft_comm *comm;
    uint64_t id; /* the id-th of the communicator, on all ranks */
    size_t bytes;
    size_t part_bytes, total_bytes;
    uint64_t offset; /* in the domain's memory */
    wefti_mapping *mapping;
    wefti_mapped *mapped; /* until the fabric has it */
    unsigned char *own;   /* of a registered one: this rank's bytes */
    bool registered;
    bool apart; /* of every rank: it is registered, or what ranks have mapped is
                   not the same */
    bool engaged; /* keeps the engine's thread awake for messages */
};

/*
 * The counter of rank that source raises. local ranks only. Raised by
 * fetch-and-add (for a remote source by its messages, mem_remote.c), loaded by
 * weft_mem_get_signal: what source had put before may then be read.
 */
_Atomic uint64_t *wefti_mem_get_cell(const weft_mem *mem, int rank, int source,
                                     int slot);
unsigned char *wefti_mem_get_data(const weft_mem *mem, int rank);

/* Whether this rank writes to peer's part by itself. */
bool wefti_mem_is_local(const weft_mem *mem, int peer);

/*
 * wefti_mem_check_range - whether comm's rank may offer these bytes to others:
 * memory that this process writes, and that no other weft_mem of comm has.
 *
 * Returns     OK | ERR_INVALID | ERR_UNSUPPORTED (a device's) | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_mem_check_range(weft_comm *comm,
                                                 const void *pointer,
                                                 size_t bytes);

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

/* Frees what its user has not destroyed. */
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

/* Puts where it belongs what remote peers have sent. Lock held. */
bool wefti_mem_remote_receive(weft_comm *comm);

#endif
