/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/mem.h - memory that peers write into by themselves, and signals that
 * tell its owner so.
 *
 *   rank 0                                  rank 1
 *   weft_mem_put(mem, 64, x, n, f32, 1, s)
 *   weft_mem_signal(mem, 5, 1, 1, s)  --->  weft_mem_wait(mem, 5, 1, 0, s)
 *                                           use weft_mem_get_base(mem) + 64
 *
 * Every rank owns as many bytes as every other (the memory is symmetric), and
 * WEFT_MEM_SLOTS counters for each rank that may signal to it. Whoever has
 * waited for a signal sees everything that its sender had put into this rank's
 * memory before, by calls that were over or on the same stream. A signal says
 * nothing about what others have put.
 */
#ifndef WEFT_MEM_H
#define WEFT_MEM_H

#include "weft/comm.h"
#include "weft/types.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct weft_mem weft_mem;

enum {
    WEFT_MEM_SLOTS = 64,   /* counters per pair of ranks */
    WEFT_MEM_ANY_PEER = -1 /* weft_mem_wait: whoever signals */
};

/*
 * weft_mem_create - bytes of zeroed memory on every rank; collective over comm.
 *
 * It is host memory, page-aligned, and may serve as any operation's buffer; of
 * comm's own, and of communicators that are split from it afterwards, large
 * ones are faster there, as peers of the same host read them where they lie.
 * That they see each other's part is tried first: where one does not, rank 0
 * logs it, and what is put there goes by messages, as with weft_mem_register.
 * Pages cost memory from when they are first touched.
 *
 * bytes   the same on all ranks; 0 is legal (signals work).
 *
 * Returns     OK | ERR_INVALID (also on all ranks where their bytes differ) |
 *             ERR_NO_MEMORY, ERR_SYSTEM (on all ranks, with the words of the
 *             one that could not) | ERR_PEER, ERR_TIMEOUT, ERR_ABORTED.
 * Threads     one caller per comm at a time.  Blocks: until all have called.
 */
WEFT_NODISCARD weft_status weft_mem_create(weft_comm *comm, size_t bytes,
                                           weft_mem **mem_out);

/*
 * weft_mem_register - let peers put into memory that is there already: bytes
 * from pointer on; collective over comm.
 *
 * pointer   host memory that this process may write, or memory of the
 *           communicator's device, within one allocation; at any address and
 *           of any alignment, on each rank its own. Borrowed until
 *           weft_mem_destroy: what peers put is written at any time until then.
 *           NULL where bytes is 0.
 * bytes     the same on all ranks.
 *
 * It is used as created memory is, by put, signal and wait with the same
 * promises. Other ranks do not map host memory, so weft_mem_get_peer_base is
 * NULL for all others, and what is put travels as messages also where ranks
 * share memory: it is copied twice, the second time by the owner's progress
 * thread. Where speed matters, create memory.
 *
 * Device memory of ranks of one host, of as many bytes as there are ranks at
 * least, is reached by each other's device, if ranks are threads of one process
 * or the device lets other processes open it (WEFT_CAP_IPC; not
 * WEFT_MEMORY_EXPORTABLE between processes). A put is then one copy by the
 * putting rank's device, and weft_mem_get_peer_base an address for its kernels.
 * That is tried first, on the memory's first bytes, which are what they were on
 * return: its program may not use them meanwhile. Where it fails on some rank,
 * rank 0 logs why, and puts go by messages on all. So do those to device memory
 * of other hosts, which the owner's device stores. Free it after all ranks have
 * destroyed theirs: they have it open until then.
 *
 * Returns     as weft_mem_create. Also ERR_INVALID (pointer is NULL, part of
 *             the memory cannot be written, is not of the allocation, or is
 *             another weft_mem's, or it is another device's); where one rank's
 *             cannot be, on all ranks: the text of the others names the rank.
 * Threads     one caller per comm at a time.  Blocks: until all have called.
 */
WEFT_NODISCARD weft_status weft_mem_register(weft_comm *comm, void *pointer,
                                             size_t bytes, weft_mem **mem_out);

/*
 * weft_mem_destroy - local: the other ranks' parts stay as long as they keep
 * them, and all is given back when the last has left.
 *
 * What peers still put here is lost, so ranks usually meet in a barrier first;
 * into device memory a peer's stream may still be copying what was put before,
 * so there they must. Not while a stream holds operations on it:
 * weft_stream_wait() before. Before the communicator is destroyed; not while a
 * thread is in a call on it. NULL is legal.
 *
 * Where ranks of other hosts had it, this rank's progress thread looks for what
 * they may still put, every 20 ms at least, until the communicator ends.
 */
void weft_mem_destroy(weft_mem *mem);

/*
 * weft_mem_get_base       where this rank's memory begins.
 * weft_mem_get_peer_base  where a peer's does, if it can be reached by loads
 *                         and stores (it shares memory with this rank, and
 *                         was not registered; device memory that was: by those
 *                         of this rank's device), else NULL.
 * weft_mem_get_bytes      how large each rank's is.
 */
void *weft_mem_get_base(const weft_mem *mem);
void *weft_mem_get_peer_base(const weft_mem *mem, int peer);
size_t weft_mem_get_bytes(const weft_mem *mem);

/*
 * weft_mem_put - copy count elements into a peer's memory.
 *
 * dst_offset   bytes from the start of the peer's memory.
 * src          host memory or the communicator's device's; borrowed until the
 *              put is done.
 * peer         may be this rank.
 * stream       runs after work already queued on it; NULL: done on return.
 *
 * Done means that src may be used again; that the data have come, only a
 * signal tells. Puts to overlapping bytes without one between them may come in
 * any order.
 *
 * Returns     OK | ERR_INVALID (the text names the argument; nothing was put) |
 *             ERR_NO_MEMORY | the fault of a communicator that has failed:
 *             ERR_PEER also if the peer has died, as is seen within 20 ms. What
 *             is put to one that has destroyed its communicator is lost; if it
 *             shares no memory with this rank, ERR_PEER names it in the end.
 *             ERR_INVALID also of device memory that is not there any more; by
 *             messages that is a fault, which names its owner.
 * Threads     any on one mem, if not on one stream.
 * Blocks      with a NULL stream; a peer whose memory this rank does not reach
 *             (weft_mem_get_peer_base) takes the bytes at its own pace.
 * Allocates   only with a stream.
 */
WEFT_NODISCARD weft_status weft_mem_put(weft_mem *mem, size_t dst_offset,
                                        const void *src, size_t count,
                                        weft_dtype dtype, int peer,
                                        weft_stream *stream);

/*
 * weft_mem_signal - add to a counter of the peer's: the one for this rank and
 * slot.
 *
 * slot   0 .. WEFT_MEM_SLOTS - 1
 * add    1 .. INT64_MAX. Counters wrap round.
 *
 * Returns, Threads, Allocates: as weft_mem_put.
 */
WEFT_NODISCARD weft_status weft_mem_signal(weft_mem *mem, int slot,
                                           uint64_t add, int peer,
                                           weft_stream *stream);

/*
 * weft_mem_wait - until the counter for peer and slot has come to value.
 *
 * Nothing is taken away: the next wait names a higher value. Counters begin at
 * 0 and are compared by the sign of their difference, so they may wrap round
 * while value is less than 2^63 ahead or behind.
 *
 * peer     who signals; WEFT_MEM_ANY_PEER: the sum of all ranks' counters of
 *          the slot.
 * stream   work queued later waits; NULL: the caller does.
 *
 * Returns     as weft_mem_put; with a NULL stream also, or else from
 *             weft_stream_wait, the communicator's fault. The text names the
 *             slot and whom it waited for, also where another rank's operation
 *             found the fault; other ranks that wait for this one are told so.
 * Blocks      if stream is NULL, at most timeout_ms.
 */
WEFT_NODISCARD weft_status weft_mem_wait(weft_mem *mem, int slot,
                                         uint64_t value, int peer,
                                         weft_stream *stream);

/* weft_mem_get_signal - the counter that weft_mem_wait would look at, now; 0
 * for what is out of range. What was put before is visible, as after a wait. */
uint64_t weft_mem_get_signal(const weft_mem *mem, int slot, int peer);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
