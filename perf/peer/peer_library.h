/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/peer/peer_library.h - what a library must provide to be measured
 * beside weft: one function for each operation that it has.
 *
 * bin/peers-NAME is one file that defines wefti_peer_library_used, linked with
 * peer_measure.c, which owns everything else: arguments, buffers, data, clock,
 * verification. C and C++; nothing of weft is included.
 *
 * Every call is blocking: it returns when recv holds the result and send may
 * be written again. Elements are of type f32, reductions are sums. No function
 * returns a failure: it calls wefti_peer_fail, which ends the process, and the
 * launcher ends the other ranks.
 */
#ifndef PERF_PEER_PEER_LIBRARY_H
#define PERF_PEER_PEER_LIBRARY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * One call as one rank makes it.
 *
 * send         what this rank sends; unchanged by the call.
 * recv         where the result goes; never overlaps send. broadcast has recv
 *              alone, full at the root.
 * count        elements; where a buffer has one part for each rank (all_gather,
 *              reduce_scatter, alltoall, gather, scatter), elements of a part.
 * send_counts  alltoallv: elements for each rank, parts one after another in
 *              send; recv_counts: from each rank. NULL otherwise.
 * to, from     sendrecv: where send goes, where recv comes from.
 */
typedef struct wefti_peer_call {
    float *send, *recv;
    size_t count;
    const size_t *send_counts, *recv_counts; /* [nranks] */
    int root, to, from;
    int rank, nranks;
} wefti_peer_call;

enum { WEFTI_PEER_RANKS_MOST = 256 };

typedef void wefti_peer_function(const wefti_peer_call *call);

typedef struct wefti_peer_library {
    /* Name and version, as the library itself has them; before start too. */
    const char *(*version)(void);

    /*
     * Starts the library. rank and nranks are set where weft-run has started
     * the process, and -1 where the library's own launcher has: then this
     * function sets them. NULL: nothing to start, and no launcher of its own.
     */
    void (*start)(int *rank, int *nranks);

    /* After start, when wefti_peer_gather works. NULL: nothing to connect. */
    void (*connect)(int rank, int nranks, const char *folder);
    void (*finish)(void); /* NULL: nothing to end */

    /* NULL where the library has no such operation. */
    wefti_peer_function *all_reduce, *all_gather, *reduce_scatter, *broadcast,
        *reduce, *alltoall, *alltoallv, *gather, *scatter, *sendrecv, *barrier;

    /* Not 0: buffers are memory that every rank maps, see wefti_peer_remote. */
    int shares_buffers;
} wefti_peer_library;

/* Defined by each library's file. */
extern const wefti_peer_library wefti_peer_library_used;

/* What peer_measure.c offers to it. */

/* One line on stderr, and the end of this process with status 1. */
#ifdef __GNUC__
__attribute__((noreturn))
#endif
void wefti_peer_fail(const char *why);

/*
 * wefti_peer_gather - all ranks exchange bytes without the library: all_out,
 * [nranks][bytes], holds every rank's mine. Every rank must call it.
 */
void wefti_peer_gather(const void *mine, size_t bytes, void *all_out);

/*
 * wefti_peer_wait   - a barrier without the library.
 * wefti_peer_remote - where rank has what mine, a place in this rank's buffers
 *                     of the call, is here; for libraries that share buffers.
 */
void wefti_peer_wait(void);
float *wefti_peer_remote(const float *mine, int rank);

#ifdef __cplusplus
}

#include <exception>

/* What work throws becomes the one line. */
template <typename Work> void wefti_peer_guard(Work work)
{
    try {
        work();
    } catch (const std::exception &error) {
        wefti_peer_fail(error.what());
    }
}
#endif
#endif
