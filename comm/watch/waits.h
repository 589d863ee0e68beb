/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/waits.h - what each rank waits in and for whom, where all ranks
 * can see it: the edges along which comm/watch/cause.h looks for the cause.
 *
 * A rank has one record, the same in all its communicators (of other hosts,
 * once the wait has lasted). Of its waits it shows the one that says most.
 */
#ifndef COMM_WATCH_WAITS_H
#define COMM_WATCH_WAITS_H

#include "comm/core/core.h"

typedef enum wefti_wait_kind {
    WEFTI_WAITS_COLLECTIVE = 1,
    WEFTI_WAITS_SEND,
    WEFTI_WAITS_RECV,
    WEFTI_WAITS_SIGNAL,   /* a weft_mem's slot */
    WEFTI_WAITS_GATE,     /* this rank's own ready gate */
    WEFTI_WAITS_WRITABLE, /* the gate that lets its buffer be overwritten */
    WEFTI_WAITS_STREAM,   /* its stream has not come to the operation */
    WEFTI_WAITS_DEVICE,   /* a copy of its device */
    WEFTI_WAITS_END
} wefti_wait_kind;

/* How much a wait says of why its rank does not come. */
typedef enum wefti_wait_weight {
    WEFTI_WEIGHT_CIRCLE, /* it waits for ranks that wait for it */
    WEFTI_WEIGHT_OWN,    /* it waits for what it has to make itself */
    WEFTI_WEIGHT_CAUSE   /* it waits for another, where the cause is */
} wefti_wait_weight;

/*
 * signature   kind of the operation's wefti_signature: its name, and its type
 * peer        rank of the job that is waited for; -1: none in particular
 * number      of the operation; SIGNAL: the slot
 * count       elements; SIGNAL: the value; GATE, WRITABLE, STREAM: the chunk
 * epoch       GATE, WRITABLE, STREAM: which the chunk is to reach; 0: at no
 * gate name        of the communicator
 */
typedef struct wefti_wait_record {
    wefti_wait_kind kind;
    uint64_t signature;
    int peer;
    uint64_t number, count, epoch;
    char name[32];
    int64_t since_ns;
} wefti_wait_record;

/* A record says something for so long after its rank has last renewed it. */
static inline int64_t wefti_waits_fresh_ns(int64_t limit_ns)
{
    const int64_t half_ns = limit_ns / 2, least_ns = 300000000;
    const int64_t most_ns = 1000000000;
    return half_ns < least_ns  ? least_ns
           : half_ns > most_ns ? most_ns
                               : half_ns;
}

/*
 * wefti_waits_note - show this wait in all communicators of this rank, unless
 * one that says more was shown just now. Lock held.
 *
 * wait    whose it is: only compared with that of other calls
 * found   name and since_ns are filled in, from comm and since_ns
 * remote     other hosts are to know as well
 */
void wefti_waits_note(weft_comm *comm, const void *wait,
                      wefti_wait_record *found, wefti_wait_weight weight,
                      int64_t since_ns, int64_t now_ns, bool remote);

/* This rank's stream has not come to an operation of comm: noted now and then.
 * found: kind, signature, number. Lock held. */
void wefti_waits_note_stream(weft_comm *comm, weft_device *device,
                             weft_stream *stream, wefti_wait_record *found);

/* What rank waits in; false: it does not, or nothing is known. Threads: any. */
bool wefti_waits_get(weft_comm *comm, int rank, int64_t fresh_ns,
                     wefti_wait_record *found_out);

/* The same of any rank of the job that shares a communicator with this one.
 * Lock held. */
bool wefti_waits_find(weft_comm *comm, int world_rank, int64_t fresh_ns,
                      wefti_wait_record *found_out);

/* The member of comm that is world_rank of the job; -1: none is. */
int wefti_waits_member(const weft_comm *comm, int world_rank);

/* After so long without a step other hosts are spoken to. */
int64_t wefti_waits_patience(const weft_comm *comm, int64_t limit_ns);

/*
 * wefti_waits_text - "in recv #3 from rank 1 of 8 f32", "in gather #2 for rank
 * 3", "in all_reduce #1 on "tp" for rank 1", "for chunk 3 of the ready gate of
 * all_reduce #2 to reach epoch 7", as ranks of comm see it.
 */
void wefti_waits_text(const weft_comm *comm, const wefti_wait_record *record,
                      char *text_out, size_t text_bytes);

#endif
