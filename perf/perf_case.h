/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_case.h - the operations that weft-perf knows: their sizes, their
 * bus factors, what comes in and what must come out. Arithmetic only, so that
 * the peers' bench shares it.
 *
 * bytes means what it means in nccl-tests: the buffer of all-reduce, broadcast,
 * reduce and send/recv; the receive buffer of all-gather and of a ring; the
 * send buffer of reduce-scatter and alltoall; the root's receive buffer of
 * gather, and its send buffer of scatter; v forms as those without v, as near
 * as their parts allow. Of alltoallv it is the mean send buffer; of a put, what
 * one rank puts.
 *
 * The uneven matrix of alltoallv is the same in every run: what rank a sends to
 * rank b is the mean part times w/4, with w drawn from 0 .. 8 for the pair, so
 * that one pair in nine has nothing and one has twice the mean. In the other v
 * forms a rank's part has its w whoever the other is. Or the parts are those of
 * a matrix, in whole elements; then there is one size.
 */
#ifndef PERF_PERF_CASE_H
#define PERF_PERF_CASE_H

#include "perf/tile.h"
#include "weft/types.h"

#include <stdbool.h>

typedef enum wefti_perf_kind {
    WEFTI_PERF_ALLREDUCE,
    WEFTI_PERF_ALLGATHER,
    WEFTI_PERF_REDUCESCATTER,
    WEFTI_PERF_BROADCAST,
    WEFTI_PERF_REDUCE,
    WEFTI_PERF_ALLTOALL,
    WEFTI_PERF_ALLTOALLV,
    WEFTI_PERF_GATHER,
    WEFTI_PERF_SCATTER,
    WEFTI_PERF_SENDRECV,
    WEFTI_PERF_BARRIER,
    WEFTI_PERF_GATHERV,
    WEFTI_PERF_SCATTERV,
    WEFTI_PERF_ALLGATHERV,
    WEFTI_PERF_REDUCESCATTERV,
    WEFTI_PERF_SENDRECV_LIST,
    WEFTI_PERF_PUT,
    WEFTI_PERF_PUT_ROUND,
    WEFTI_PERF_RING,
    WEFTI_PERF_RING_BOTH,
    WEFTI_PERF_MOE_DISPATCH,
    WEFTI_PERF_MOE_COMBINE
} wefti_perf_kind;

typedef struct wefti_perf_op {
    const char *name;
    wefti_perf_kind kind;
    weft_collective collective;
    bool reduces;
    bool rooted;
    const char *meaning; /* for --help */
} wefti_perf_op;

/* NULL if there is none of that name. */
const wefti_perf_op *wefti_perf_op_get(const char *name);

/* The table itself, ended by a NULL name. */
extern const wefti_perf_op wefti_perf_ops[];

/* Whether parts have lengths of their own; whether ranks write into peers'
 * memory, and signal; whether blocks come round (weft/ring.h); whether rows go
 * to experts (weft/moe.h): perf/perf_moe.h. */
bool wefti_perf_op_is_uneven(const wefti_perf_op *op);
bool wefti_perf_op_puts(const wefti_perf_op *op);
bool wefti_perf_op_rings(const wefti_perf_op *op);
bool wefti_perf_op_is_moe(const wefti_perf_op *op);

/* Whether send and receive may lie in one buffer. */
bool wefti_perf_op_has_inplace(const wefti_perf_op *op);

/* The names of all, separated by spaces. */
void wefti_perf_op_list(char *text_out, size_t text_bytes);

/* Bus bandwidth = algorithm bandwidth * factor (nccl-tests, PERFORMANCE.md). */
double wefti_perf_op_bus_factor(const wefti_perf_op *op, int nranks);

/* One size of one operation as seen by one rank. Counts are elements. */
typedef struct wefti_perf_case {
    const wefti_perf_op *op;
    weft_dtype dtype;
    weft_redop redop;
    int root, rank, nranks;
    const int *hosts; /* as wefti_tile_make_reduced takes them */
    bool inplace;
    bool registered;        /* the buffers are of a weft_mem */
    unsigned char scale[8]; /* PREMULSUM: this rank's scalar */
    size_t bytes; /* really moved: asked for, rounded to whole elements */
    size_t count; /* what the call takes; v forms: the mean part */
    size_t send_elems, recv_elems;
    const size_t *send_counts, *recv_counts; /* v forms, [nranks] */
    const size_t *matrix; /* alltoallv: bytes from rank to rank,
                             [nranks][nranks]; NULL: drawn */
} wefti_perf_case;

/*
 * wefti_perf_case_size - fills bytes, count and elems. A size too small for
 * one element a rank becomes one element a rank; 0 stays 0.
 */
void wefti_perf_case_size(wefti_perf_case *subject, size_t bytes);

/* What the call takes as its count; v forms: this rank's own. */
size_t wefti_perf_case_own_count(const wefti_perf_case *subject);

/* Elements that go from one rank to another, where the collective has parts. */
size_t wefti_perf_case_part(const wefti_perf_case *subject, int from, int to);

/*
 * wefti_perf_case_buffers - where this rank's send and recv lie in a buffer
 * for each; in place both point into recv's (or the other way round).
 */
typedef struct wefti_perf_buffers {
    unsigned char *send, *recv;
} wefti_perf_buffers;

size_t wefti_perf_case_room(const wefti_perf_case *subject);
wefti_perf_buffers wefti_perf_case_place(const wefti_perf_case *subject,
                                         wefti_perf_buffers rooms);

/* Whether this rank sends anything of its own. */
bool wefti_perf_case_sends(const wefti_perf_case *subject);

/* sendrecv and puts: whom this rank receives from, whom it sends to. */
int wefti_perf_case_before(const wefti_perf_case *subject);
int wefti_perf_case_after(const wefti_perf_case *subject);

/*
 * wefti_perf_case_count_wrong - compares host memory recv with what this
 * rank must have got in call shift. scratch is a tile to work in.
 */
size_t wefti_perf_case_count_wrong(const wefti_perf_case *subject,
                                   const void *recv, size_t shift,
                                   wefti_tile *scratch);

#endif
