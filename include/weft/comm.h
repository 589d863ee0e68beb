/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/comm.h - communicators: making, splitting, ending them, and their
 * faults.
 */
#ifndef WEFT_COMM_H
#define WEFT_COMM_H

#include "weft/device.h"
#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * Belongs to the process that made it: in a forked child every call refuses it
 * by name, and destroy does nothing. After its destroy calls answer ERR_INVALID
 * too, as long as nothing else has taken its memory.
 */
typedef struct weft_comm weft_comm;

/* Opaque; holds the meeting point and the job's secret: treat it as one. */
typedef struct weft_unique_id {
    unsigned char bytes[128];
} weft_unique_id;

/*
 * Bits of weft_comm_config.flags.
 *
 * WEFT_COMM_SUM_FLAT   sums follow one tree over all ranks, whichever of them
 *                      share memory, as with WEFT_SUM_FLAT=on.
 */
typedef enum weft_comm_flags { WEFT_COMM_SUM_FLAT = 1 } weft_comm_flags;

/* Ends the creation of a communicator; named in its weft_comm_config. */
typedef struct weft_cancel weft_cancel;

/*
 * weft_cancel_create - by which another thread can end a creation that waits;
 * of one creation at a time.
 *
 * weft_cancel_post - end it, once and for all: the one that has it now, or
 * begins with it later. Without any, nothing happens.
 *
 * weft_comm_create then returns ERR_ABORTED within a second, here and, naming
 * this rank, on all ranks that have come; those that come later get
 * ERR_BOOTSTRAP, or miss it. Where the meeting has just succeeded, the others'
 * next operation fails so instead. weft_comm_split and weft_comm_create_from,
 * which other ranks cannot finish without this one, fail the parent as
 * weft_comm_abort does: all its ranks get ERR_ABORTED.
 *
 * weft_cancel_destroy - not while a creation or a post uses it; NULL is legal.
 *
 * Returns     OK | ERR_INVALID | ERR_NO_MEMORY | ERR_SYSTEM (no descriptor).
 * Threads     any.  Blocks: no.  Allocates: create.
 */
WEFT_NODISCARD weft_status weft_cancel_create(weft_cancel **cancel_out);
WEFT_NODISCARD weft_status weft_cancel_post(weft_cancel *cancel);
void weft_cancel_destroy(weft_cancel *cancel);

/*
 * weft_comm_config - all optional: zero means "from the environment, else the
 * default".
 *
 * size_bytes     sizeof(weft_comm_config) of the caller; must be set. What it
 *                lacks, up from name, counts as 0; what it has more must be 0.
 * id             the same on all ranks; NULL: WEFT_RENDEZVOUS and WEFT_SECRET.
 *                Borrowed during the call.
 * rank, nranks   with an id: mandatory. Without: both 0 takes WEFT_RANK and
 *                WEFT_NRANKS.
 * name           for messages, copied, up to 31 bytes; NULL: "world".
 * device         whose memory buffers may be in besides the host's; NULL: host
 *                memory only. Borrowed for the communicator's life.
 * warn_ms        a waiter names whom it waits for after this (10 000).
 * timeout_ms     and the communicator fails after this (600 000).
 * ops_in_flight  how many collectives may overlap, 1 .. 16 (16); any number
 *                may be posted.
 * sm_budget      multiprocessors of the device that work on the communicator's
 *                own streams may keep busy at most, as in weft_stream_config;
 *                0: all. ERR_UNSUPPORTED where the device has no budgets.
 * flags          bits of weft_comm_flags, those of rank 0 as settings are; 0:
 *                none.
 * cancel         lets another thread end the call; NULL: none can. Borrowed
 *                during the call. weft_comm_shrink_without has none.
 * idle           called again and again by a thread while it waits in an
 *                operation on the communicator or for its request, so that
 *                another library goes on meanwhile: every 0.1 ms or so while
 *                data move, else with a sleep of up to 1 ms in between. Waits
 *                that are over sooner may do without it. It returns soon, and
 *                calls nothing of weft.
 * idle_context   handed to it; borrowed for the communicator's life.
 */
typedef struct weft_comm_config {
    size_t size_bytes;
    const weft_unique_id *id;
    int rank;
    int nranks;
    const char *name;
    weft_device *device;
    int64_t warn_ms;
    int64_t timeout_ms;
    int ops_in_flight;
    int sm_budget;
    uint32_t flags;
    weft_cancel *cancel;
    void (*idle)(void *context);
    void *idle_context;
} weft_comm_config;

/* Why a communicator has failed. status OK: it has not. */
typedef struct weft_fault {
    size_t size_bytes; /* set by the caller */
    weft_status status;
    int rank;           /* whom the fault is about; -1: nobody in particular */
    uint64_t op_number; /* the operation it hit; 0: none */
    char text[256];
} weft_fault;

/*
 * weft_unique_id_create - open a meeting point in this process and describe it.
 *
 * Send the id to all ranks by any private way: it holds the job's secret. The
 * meeting point is on this machine's loopback, or, for ranks of several
 * machines, on the address of this one that WEFT_HOST names; never on all
 * addresses. It closes when all ranks have met or the time limit is over.
 *
 * Returns     OK | ERR_INVALID (WEFT_HOST, WEFT_TIMEOUT_MS) | ERR_SYSTEM (no
 *             socket, no thread; WEFT_HOST is no address of this machine).
 * Threads     any.  Blocks: no.
 */
WEFT_NODISCARD weft_status weft_unique_id_create(weft_unique_id *id_out);

/*
 * weft_comm_create - bring the ranks together; collective.
 *
 * config   NULL = all from the environment.
 *
 * Returns     OK | ERR_INVALID | ERR_UNSUPPORTED (sm_budget) | ERR_BOOTSTRAP
 *             (who is missing, or whose version, secret or settings differ:
 *             weft_error_text()) | ERR_TIMEOUT | ERR_ABORTED (cancelled) |
 *             ERR_NO_MEMORY | ERR_SYSTEM.
 *             All ranks get the same verdict, the meeting's: also where one has
 *             a config, a setting or a limit that it cannot work with, or says
 *             another rank or nranks than the others can do with, as long as it
 *             finds the meeting and has its secret. One that does not hears so
 *             at once, the others that it is missing.
 *
 * A rank that dies before the verdict fails all, which name it. Whether one
 * dies just after it cannot be agreed: all others return OK, and their next
 * operation names it (ERR_PEER). If the one that serves the meeting dies while
 * it tells the verdict (rank 0, or who made the id), those that it has not told
 * return ERR_BOOTSTRAP, and the next operation of the others fails.
 *
 * Standard descriptors (0, 1, 2) that are closed are opened on /dev/null, so
 * that no socket of the library takes what the program prints.
 *
 * Threads     any; several ranks may be threads of one process.
 * Blocks      until all ranks have met, at most timeout_ms; under mpirun and
 *             srun, until PMIx has exchanged the ranks' addresses, cancel is
 *             not looked at.
 */
WEFT_NODISCARD weft_status weft_comm_create(const weft_comm_config *config,
                                            weft_comm **comm_out);

/*
 * weft_comm_split - ranks of equal color form a new communicator; collective
 * over comm.
 *
 * color    negative: this rank takes no part, *comm_out = NULL, still OK.
 * key      orders the new ranks; equal keys keep the old order.
 * config   what it leaves at 0 is the parent's, the name with the color behind
 *          it, as in "world/2"; where comm has been split by that color before,
 *          also how often: "world/2#3". id, rank and nranks do not count. A
 *          device of its own begins without a budget. flags are added to the
 *          parent's, the same on all ranks of a color. NULL: all the parent's.
 *
 * Returns     as weft_comm_create; the parent stays usable after ERR_INVALID,
 *             not after ERR_ABORTED.
 * Threads     one caller per comm at a time.  Blocks: yes.
 */
WEFT_NODISCARD weft_status weft_comm_split(weft_comm *comm, int color, int key,
                                           const weft_comm_config *config,
                                           weft_comm **comm_out);

/*
 * weft_comm_shrink - the ranks that are left go on without those that are not;
 * called by every survivor.
 *
 * Survivors agree who they are, also while another of them dies; the new ranks
 * keep the old order, and name, limits and device are the parent's. Ranks that
 * have died or destroyed the parent are left out at once, others that do not
 * come after timeout_ms: whoever comes later is told so. The parent fails, if
 * it has not yet, so that every rank comes out of its operations; it must still
 * be destroyed. A communicator can be shrunk 8 times, each rank lost during the
 * agreement counting once more; what came of it, again as often.
 *
 * Hosts that lost each other, their ranks still alive, would each go on with
 * their own. So where ranks of other hosts cannot be reached, and are not known
 * to have died, the larger part goes on; of two halves the one that has the
 * lowest of these ranks.
 *
 * Returns     OK | ERR_INVALID | ERR_PEER (the others went on without this
 *             rank, or may have; or it was shrunk too often) | ERR_NO_MEMORY,
 *             ERR_SYSTEM (a survivor could not build its end: the same on all).
 * Threads     one caller per comm at a time.  Blocks: at most 2 timeout_ms for
 *             each rank that is lost, 6 between hosts; mostly milliseconds.
 * Source      M. Herlihy, "Wait-free synchronization", 1991; between hosts
 *             T. Chandra, S. Toueg, "Unreliable failure detectors for reliable
 *             distributed systems", 1996; comm/make/shrink.c,
 *             comm/make/ballot.c.
 */
WEFT_NODISCARD weft_status weft_comm_shrink(weft_comm *comm,
                                            weft_comm **comm_out);

/*
 * weft_comm_shrink_without - the ranks that stay go on without those on a list,
 * which may be alive; called by those that stay, and by no other.
 *
 * ranks       [rank_count] of comm, each once, the caller not among them, the
 *             same on all callers. Borrowed during the call. NULL with 0.
 * config      as of weft_comm_split, the name with the ranks left out behind
 *             it, as in "world-1,3".
 *
 * The new ranks keep the old order. A healthy parent stays usable, by those
 * left out too; the callers talk by its point-to-point messages, in order with
 * those that they post themselves. Where the parent has failed, or fails
 * meanwhile (also because one that is left out dies), this is weft_comm_shrink:
 * the callers agree which of them are left, and those on the list count as
 * gone.
 *
 * Returns     as weft_comm_shrink | ERR_INVALID (here: nothing was sent; or a
 *             caller's list or config differs, and the parent stays usable).
 * Threads     one caller per comm at a time.  Blocks: as weft_comm_shrink.
 */
WEFT_NODISCARD weft_status
weft_comm_shrink_without(weft_comm *comm, const int *ranks, int rank_count,
                         const weft_comm_config *config, weft_comm **comm_out);

/*
 * weft_comm_create_from - a new communicator of some ranks of an old one;
 * called by those alone.
 *
 * ranks       [rank_count] of parent, each once, this one among them, the same
 *             on all; ranks[i] becomes rank i. Borrowed during the call.
 * config      as of weft_comm_split, the name with the ranks behind it, as in
 *             "world/0,2".
 *
 * The members talk by point-to-point messages of the parent, in order with
 * those that they post themselves.
 *
 * Returns     OK | ERR_INVALID (here: nothing was sent; or a member's list or
 *             config differs) | ERR_NO_MEMORY, ERR_SYSTEM (a member could not
 *             build its end: the same on all) | the parent's fault.
 * Threads     one caller per comm at a time.  Blocks: yes.
 */
WEFT_NODISCARD weft_status weft_comm_create_from(weft_comm *parent,
                                                 const int *ranks,
                                                 int rank_count,
                                                 const weft_comm_config *config,
                                                 weft_comm **comm_out);

/*
 * weft_comm_set_device - give a communicator that was made without a device one
 * for its buffers: for programs that learn only later which GPU a rank uses.
 * Local: other ranks may do it at another time, or not at all, and what goes on
 * meanwhile goes on.
 *
 * device   borrowed for the communicator's life; of one that has it already
 *          nothing changes. Its operations go weft's own way, by staging in
 *          host memory: WEFT_ROUTE counts when a communicator is made, as by a
 *          split of this one. From now on streams are this device's. Its copies
 *          are not tried first, as they are when a communicator is made.
 *
 * Returns     OK | ERR_INVALID (device is NULL; it has another device, or a
 *             weft_mem; it has posted on streams; WEFT_SINGLE_COPY is on: peers
 *             read its buffers themselves) | ERR_NO_MEMORY | ERR_SYSTEM |
 *             ERR_UNSUPPORTED, or the device's own fault (it makes no gates or
 *             streams). After an error all is as before.
 * Threads     one caller per comm at a time.  Allocates: yes.
 * Blocks      as long as making streams, and pinning all of its staging, does.
 */
WEFT_NODISCARD weft_status weft_comm_set_device(weft_comm *comm,
                                                weft_device *device);

/*
 * weft_comm_destroy - leave. Local: waits only for this rank's own operations.
 *
 * A peer that still waits for this rank in an operation learns that it left.
 * Operations that streams hold are waited for, timeout_ms at most; then the
 * communicator is aborted, and they end with an error when their streams get
 * there. On a failed communicator nothing is waited for: its operations have
 * ended, and streams may still pass the marks they left.
 *
 * comm     NULL is legal. Not while another thread is inside a call on it.
 * Threads  one.  Blocks: at most timeout_ms.
 */
void weft_comm_destroy(weft_comm *comm);

/*
 * weft_comm_abort - make every pending and later operation fail, on all ranks.
 *
 * Returns     OK | ERR_INVALID.  Threads: any, also while another thread is
 *             blocked in the communicator.  Blocks: no.
 */
WEFT_NODISCARD weft_status weft_comm_abort(weft_comm *comm);

/*
 * weft_comm_get_fault - has it failed, and why.
 *
 * Returns     OK (also when there is a fault: see fault_out->status) |
 *             ERR_INVALID.  Threads: any.  Blocks: no.
 */
WEFT_NODISCARD weft_status weft_comm_get_fault(weft_comm *comm,
                                               weft_fault *fault_out);

/*
 * weft_comm_get_rank, _get_nranks - this rank's number, and how many there are;
 * -1 if comm is NULL.
 */
int weft_comm_get_rank(const weft_comm *comm);
int weft_comm_get_nranks(const weft_comm *comm);

/*
 * weft_comm_dump - the flight record of all ranks as text, one line each: last
 * operations, what is in flight, whom it waits for.
 *
 * Then the sends and receives of this rank that are not done. Of the others is
 * known which one they have waited in for longest; from other hosts, once that
 * is half as long as what warn_ms and half of timeout_ms allow. From then on
 * the last operations of their ranks are known too; before, only of those that
 * this rank exchanges data with, and of all what they have completed.
 *
 * text_out     room for text_bytes, always ends in a zero byte.
 *
 * Returns     OK | ERR_INVALID.  Threads: any.  Blocks: no, but for the
 *             engine's lock.
 */
WEFT_NODISCARD weft_status weft_comm_dump(weft_comm *comm, char *text_out,
                                          size_t text_bytes);

/* What a communicator costs this process, and all its ranks together. */
typedef struct weft_comm_bytes {
    size_t size_bytes;       /* set by the caller */
    uint64_t own_bytes;      /* memory of this rank alone */
    uint64_t shared_bytes;   /* memory that all ranks of it share, once */
    uint64_t reserved_bytes; /* address space, most of it never touched */
} weft_comm_bytes;

/*
 * weft_comm_get_bytes - the memory that it uses now.
 *
 * Returns     OK | ERR_INVALID.  Threads: any.  Blocks: no.
 */
WEFT_NODISCARD weft_status weft_comm_get_bytes(weft_comm *comm,
                                               weft_comm_bytes *bytes_out);

/* How a report is written. */
typedef enum weft_comm_format {
    WEFT_COMM_TEXT,
    WEFT_COMM_JSON
} weft_comm_format;

/*
 * weft_comm_get_health - state, fault, fabric, memory, and of each rank whether
 * it is alive, dead, unreachable (its host does not answer) or has left, its
 * last operation and how long ago that was.
 *
 * text_out    room for text_bytes: about 300 + 160 for each rank. JSON: one
 *             object with name, state (healthy, failed), rank, nranks, fabric,
 *             fault (null, or status, code, rank, op, text), bytes (own,
 *             shared, reserved) and ranks[] (rank, state, completed, last_op,
 *             last_what, age_s). What is known of ranks of other hosts is as
 *             in weft_comm_dump; where it is only completed, last_what and
 *             age_s are null.
 *
 * Returns     OK | ERR_INVALID (also: too little room; the text says how much
 *             is needed) | ERR_NO_MEMORY.  Threads: any.  Blocks: no.
 */
WEFT_NODISCARD weft_status weft_comm_get_health(weft_comm *comm,
                                                weft_comm_format format,
                                                char *text_out,
                                                size_t text_bytes);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
