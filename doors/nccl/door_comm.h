/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_comm.h - what an ncclComm_t points to, and the list of those
 * that there are.
 *
 * A handle is looked up by its address and never read before it is found: one
 * of another library, or of a communicator that is gone, is refused by name.
 * Who has found it is inside until it leaves; whoever ends the communicator
 * takes it off the list, and the last to leave gives it back.
 *
 *   enter(handle) .. calls on comm->weft .. leave(comm)     any thread
 *   take(comm)    .. the others leave .. drop(comm)
 */
#ifndef DOORS_NCCL_DOOR_COMM_H
#define DOORS_NCCL_DOOR_COMM_H

#include "doors/nccl/door_config.h"
#include "doors/nccl/door_report.h"
#include "weft/weft.h"

#include <pthread.h>
#include <stdint.h>

/* One of a program's own reductions. */
typedef struct wefti_door_redop {
    int op; /* 0: this place is free */
    int dtype;
    int residence;
    const void *scalar;     /* of the device */
    unsigned char value[8]; /* of the host */
} wefti_door_redop;

/* A stream of the program's, as weft has it. */
typedef struct wefti_door_stream {
    void *native;
    weft_stream *stream;
} wefti_door_stream;

/*
 * next, inside, leaving   of the list (door_comm.c)
 * rank, nranks, ordinal, device, wish
 *                         from when it is on the list
 * weft                    set by whoever makes it; lock
 * state                   of a communicator that does not block, what became of
 *                         its making; lock
 * busy                    jobs that have it (door_job.h); lock
 * requests                what has been begun and not been seen to be done;
 *                         lock
 * hash                    for its report, from when it is made
 * children                split and shrunk from it; of the one job that makes
 * finalized, revoked      lock
 * cancel                  ends its creation; NULL: cannot be
 * redops, streams, asides of the one thread that uses it; redops: lock
 */
typedef struct wefti_door_comm {
    struct wefti_door_comm *next;
    int inside;
    bool leaving;
    int rank, nranks;
    int ordinal;
    weft_device *device;
    wefti_door_wish wish;
    pthread_mutex_t lock;
    weft_comm *weft;
    int state;
    int busy;
    weft_request **requests;
    size_t request_count, request_room;
    uint64_t hash;
    uint64_t children;
    bool finalized, revoked;
    weft_cancel *cancel;
    wefti_door_redop *redops;
    size_t redop_count;
    wefti_door_stream *streams;
    size_t stream_count;
    struct wefti_door_aside *asides;
    wefti_door_report report;
} wefti_door_comm;

/* A new one, on the list, without its weft_comm; the caller is inside. NULL:
 * no memory, and a text says so. device becomes the communicator's. */
wefti_door_comm *wefti_door_comm_create(int rank, int nranks,
                                        const wefti_door_wish *wish,
                                        weft_device *device, int ordinal);

struct ncclComm *wefti_door_handle(wefti_door_comm *comm);

/*
 * wefti_door_enter - find it, and be inside; name is the call's.
 *
 * Returns     SUCCESS | INVALID_ARGUMENT (NULL, foreign, gone).
 */
int wefti_door_enter(struct ncclComm *handle, const char *call,
                     wefti_door_comm **comm_out);

/* One more inside of a communicator that the caller is inside of. */
void wefti_door_stay(wefti_door_comm *comm);
void wefti_door_leave(wefti_door_comm *comm);

/*
 * wefti_door_take - take it off the list, for good; the caller, who is inside,
 * goes on to wefti_door_drop.
 *
 * Returns     SUCCESS | INVALID_ARGUMENT: another thread has taken it; the
 *             caller has left.
 */
int wefti_door_take(wefti_door_comm *comm, const char *call);

/* Leaves it for good, some seconds after the others if they stay so long: the
 * last one gives all of it back. */
void wefti_door_drop(wefti_door_comm *comm);

/* The weft_comm it has now; NULL: none yet. */
weft_comm *wefti_door_get_weft(wefti_door_comm *comm);

/*
 * wefti_door_settle - look what has become of what goes on.
 *
 * Returns     SUCCESS | IN_PROGRESS | the error it ended with, or the fault of
 *             the communicator, with a text.
 */
int wefti_door_settle(wefti_door_comm *comm);

/* As enter, of one that is made and has nothing going on.
 *
 * Returns     SUCCESS | INVALID_ARGUMENT | the error that its making met. */
int wefti_door_enter_ready(struct ncclComm *handle, const char *call,
                           wefti_door_comm **comm_out);

/* Keeps a request until settle has seen its end. False: no memory; it has been
 * waited for. */
bool wefti_door_keep(wefti_door_comm *comm, weft_request *request);

#endif
