/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_nccl.h - what the files of the stand-in for libnccl.so.2
 * share: NCCL's interface, as far as weft uses it, over the fake CUDA driver,
 * for ranks that are threads or processes of one host.
 *
 *   caller            group of calls --> enqueue: on the caller's stream
 *                                        | store start | wait for end |
 *   worker (a thread  start is there, a delay, then: device --> job memory,
 *   per communicator) peers' parts --> result --> device, store end
 *
 * As NCCL does it carries out what a communicator was given in that order,
 * whatever the streams; does not notice that a peer is dead or does something
 * else, but stands still until it is aborted; may say that a call is in
 * progress, and takes no other then; ends only together with the other ranks;
 * and adds in an order of its own, so that only sums that are exact can be
 * compared with weft's.
 *
 * Source: NVIDIA, "NCCL documentation", API, fault tolerance, group calls.
 *
 * WEFT_FAKE_NCCL_VERSION   what ncclGetVersion says (22809)
 * WEFT_FAKE_NCCL_FAULT     KIND[@K][:RANK], of the K-th group of each
 *                          communicator (1), on that rank (all):
 *                          refuse  ncclCommInitRankConfig fails
 *                          stuck   it does not end
 *                          error   ncclCommGetAsyncError tells of an error,
 *                                  and the group does not end
 *                          hang    it does not end
 *                          reject  the call fails
 *                          wrong   the result has a byte that is wrong
 */
#ifndef TESTS_FAKE_FAKE_NCCL_H
#define TESTS_FAKE_FAKE_NCCL_H

#include "comm/nccl/nccl_api.h"
#include "tests/fake/fake_functions.h"
#include "weft/types.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    NCCL_RANKS = 64,
    NCCL_AREA_BYTES = 64 << 20, /* of a rank, sparse */
    NCCL_CALLS = 512,           /* of a group */
    NCCL_WORDS = 1024,          /* groups that may be on streams */
    NCCL_OPS = 64,              /* made by ncclRedOpCreatePreMulSum, alive */
    NCCL_SENDS = 64             /* of one group, to one rank */
};

typedef enum nccl_kind {
    NCCL_ALL_REDUCE,
    NCCL_REDUCE,
    NCCL_BROADCAST,
    NCCL_ALL_GATHER,
    NCCL_REDUCE_SCATTER,
    NCCL_SEND,
    NCCL_RECV
} nccl_kind;

/* One call. peer: root, or the other rank. */
typedef struct nccl_call {
    nccl_kind kind;
    const void *send;
    void *recv;
    size_t count;
    int dtype, op, peer;
    bool scales;
    unsigned char scale[8];
} nccl_call;

/* What goes from one rank to another, in that order: posted is raised by the
 * sender when offset and bytes are there, taken by the receiver. */
typedef struct nccl_box {
    _Atomic uint64_t posted, taken;
    size_t offset[NCCL_SENDS], bytes[NCCL_SENDS];
} nccl_box;

/* What a rank brings to its n-th collective; posted and left count them. */
typedef struct nccl_share {
    _Atomic uint64_t posted, left;
    nccl_call call; /* its pointers mean nothing to others */
    size_t offset;
} nccl_share;

/* In memory that all ranks map; behind it the areas. */
typedef struct nccl_job {
    _Atomic int attached, finished;
    char buses[NCCL_RANKS][32];
    nccl_share shares[NCCL_RANKS];
    nccl_box boxes[NCCL_RANKS][NCCL_RANKS];
} nccl_job;

/* A group that has been queued on a stream. */
typedef struct nccl_group {
    struct nccl_group *next;
    uint64_t number; /* of the communicator, from 1 */
    size_t count;
    nccl_call calls[];
} nccl_group;

/* In pinned memory: of each group on a stream. */
typedef struct nccl_words {
    _Atomic uint64_t start[NCCL_WORDS], end[NCCL_WORDS], passed[NCCL_WORDS];
} nccl_words;

typedef struct nccl_fault {
    char kind[8];
    uint64_t at;
    int rank; /* -1: all */
} nccl_fault;

struct ncclComm {
    uint64_t magic;
    int rank, nranks;
    nccl_job *job;
    size_t job_bytes;
    CUcontext context;
    CUstream copies;
    nccl_words *words;
    nccl_fault fault;
    bool blocking;
    _Atomic int state; /* of init: a result of NCCL's */
    _Atomic int error; /* to be told by ncclCommGetAsyncError */
    _Atomic bool aborting, leaving;
    pthread_t worker;
    uint64_t collectives; /* the worker's */
    unsigned seed;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t queued;
    nccl_group *first, **last;
    uint64_t submitted, done;
    nccl_group *held; /* in progress: queued after a few questions */
    CUstream held_stream;
    int questions;
    bool finalizing;
    bool op_used[NCCL_OPS];
    unsigned char scales[NCCL_OPS][8];
    char id[128];
};

#pragma GCC visibility push(default)
#define NCCL_DECLARE(type, name, arguments) type name arguments;
WEFTI_NCCL_FUNCTIONS(NCCL_DECLARE)
#undef NCCL_DECLARE
#pragma GCC visibility pop

/* fake_nccl_api.c: a result, with its text; what a program must not do ends it;
 * a group goes to its stream and the worker. */
int nccl_fail(int result, const char *text);
void nccl_demand(bool good, const char *what);
void nccl_check_comm(const struct ncclComm *comm);
void nccl_launch(struct ncclComm *comm, nccl_group *group, CUstream stream);

/* fake_nccl_job.c: maps it; false: there is none. The creator of an id keeps
 * its memory until the id's rank 0 has attached. */
bool nccl_job_make_id(wefti_nccl_id *id_out);
bool nccl_job_attach(struct ncclComm *comm, const wefti_nccl_id *id);
void nccl_job_detach(struct ncclComm *comm);
unsigned char *nccl_job_area(const struct ncclComm *comm, int rank);

/* fake_nccl_work.c: carries one group out; false: it was aborted. */
bool nccl_work_run(struct ncclComm *comm, const nccl_group *group);
size_t nccl_elem_bytes(int dtype);
/* Until at holds value, or comm is aborted. */
bool nccl_work_await(struct ncclComm *comm, _Atomic uint64_t *at,
                     uint64_t value);

#endif
