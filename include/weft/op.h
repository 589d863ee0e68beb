/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/op.h - operations on a communicator.
 *
 * All ranks of a communicator post the same operations in the same order,
 * whatever their streams; the n-th post is operation number n. Point-to-point
 * operations are numbered per ordered pair of ranks instead, and match in the
 * order of posting.
 *
 * Sums are the same bits on every rank, in every run, for every size, chunk
 * and algorithm: additions follow a balanced tree over the rank index (split
 * at the largest power of two), floats narrower than f32 add in f32 and are
 * rounded once. weft/types.h says what each reduction gives for each type.
 *
 * Where some ranks share memory and others do not, sums have two levels: such a
 * tree over the ranks of each host, rounded to the type (an average of floats
 * is divided before that), and one over the hosts, ordered by their lowest
 * ranks, rounded again. So a host's sum crosses the network once, in the type
 * itself. WEFT_SUM_FLAT=on, or WEFT_COMM_SUM_FLAT of weft_comm_config, keeps
 * the one tree over all ranks, the same bits on any layout of hosts. Integers,
 * minima and maxima are the same either way; a program's own reductions
 * (weft/redop.h) always follow the one tree.
 *
 * None of this holds for sums of floats that WEFT_ROUTE=nccl hands to NCCL
 * (docs/gpu.md): it promises no order. A post may then wait for the peers'
 * where NCCL uses a path for the first time.
 *
 * What WEFT_ROUTE=streams has a stream carry out gives the same bits; a stream
 * may come past an operation of which another rank wanted something else before
 * that is found, and the communicator's next call then says so.
 */
#ifndef WEFT_OP_H
#define WEFT_OP_H

#include "weft/comm.h"
#include "weft/types.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * weft_op - one operation in full. The short forms below fill it in.
 *
 * size_bytes     sizeof(weft_op) of the caller; must be set. What it lacks, up
 *                from ready, counts as 0; what it has more must be 0.
 * send, recv     as in the short form of the collective; borrowed until done.
 * count          elements, as in the short form; ALLTOALLV: not used.
 * send_counts    v forms: [nranks] elements of send that go to each rank
 *                (ALLTOALLV, REDUCESCATTERV everywhere, SCATTERV at root).
 * send_displs    [nranks] the element of send where each begins; NULL: one
 *                after another.
 * recv_counts    v forms: [nranks] elements that come from each rank
 *                (ALLTOALLV, ALLGATHERV everywhere, GATHERV at root).
 * recv_displs    [nranks] the element of recv where each begins; NULL: one
 *                after another. What comes from two ranks may not overlap.
 *                All four are copied by the post, and read nowhere else.
 * deferred_counts
 *                v forms, on all ranks or none: elements that really go,
 *                known only later: [nranks], to each rank, or one number where
 *                send goes out whole (GATHERV, ALLGATHERV); not read where a
 *                rank sends nothing (SCATTERV, not the root). To each sum of a
 *                REDUCESCATTERV all ranks have the same, or the communicator
 *                fails with ERR_MISMATCH and a text that names two who do not.
 *                count, send_counts and recv_counts are capacities then: the
 *                most that may go and come, equal pair by pair, and what displs
 *                of NULL count by. Host memory,
 *                borrowed until done. Each is read once, when its ready chunk
 *                is reached (without a ready gate, when the operation starts);
 *                where the capacity is 0 it is 0 from the post on. One above
 *                its capacity fails the communicator with ERR_MISMATCH on all
 *                ranks; the text names both ranks, the count and the capacity.
 *                NULL: send_counts are what goes.
 * arrived_counts with deferred_counts: host memory, borrowed until done: how
 *                many elements have come from each rank, [nranks], or one
 *                number where recv has no parts (SCATTERV, REDUCESCATTERV),
 *                written before the arrived chunk is raised, and at the end at
 *                the latest; recv is not written beyond them. NULL: not wanted.
 * root           rank for rooted collectives, peer for send and recv; else 0.
 * ready          chunks of the send buffer become sendable when this gate
 *                says so; NULL: all are.
 * arrived        chunks of the receive buffer are announced here; NULL: none.
 *                They may be read then, but not be written before the
 *                operation is done: what is passed on is read there.
 * writable       chunks of the receive buffer are overwritten only once this
 *                gate says so; NULL: all may be. Peers' data are held in
 *                staging until then, so a chunk that stays shut holds up what
 *                comes behind it, on peers too. In place this rank's own part
 *                is not written where it stands already, and waits for nothing.
 * gate_elems     elements of the buffer per gate chunk, counted from its
 *                start; 0: the whole buffer is one chunk. Messages end there,
 *                so it is the same on all ranks, also on those without gates.
 *                v forms: 0, or WEFT_GATE_PER_RANK: chunk p is the part that
 *                goes to rank p, or comes from it (an empty one need not be
 *                ready and arrives at once); where a buffer has no parts it is
 *                one chunk. Each rank decides that for itself. What is to be
 *                sent goes out in the order rank + 1, rank + 2, .. all the
 *                same, so a chunk waits for those before it.
 *                A rank that receives nothing of a GATHER raises one chunk of
 *                its arrived gate at the end.
 *                weft_op_ready_order says in which order to make chunks.
 *                A small operation by "oneshot" (weft-info --routes) moves as
 *                one: all chunks must be ready, and writable, before any moves.
 * ready_chunk    the gate's chunk that belongs to element 0 of send.
 * arrived_chunk  the gate's chunk that belongs to element 0 of recv.
 * writable_chunk likewise, of writable.
 * class_id       for the ledger; 0 counts as WEFT_CLASS_DP. TP, CP, EP and PP
 *                move before DP and MEM.
 * label          for messages and the ledger; borrowed until done; NULL: none.
 * scale          PREMULSUM: one element of dtype in host memory, any alignment,
 *                read before weft_op_post returns: what this rank's data are
 *                multiplied by. Each rank has its own. Else NULL.
 * timeout_ms     after so long without a step the communicator fails, on all
 *                ranks, as after its own timeout_ms; 0: that one. Where ranks
 *                differ the shortest counts. UINT64_MAX: never.
 * chunk_order    which way the operation goes through what gate_elems cuts it
 *                into; the same on all ranks, also on those without gates.
 *                Without a cut it means nothing; v forms: ASCENDING.
 */
#define WEFT_GATE_PER_RANK ((size_t)-2)

/*
 * weft_chunk_order - ASCENDING: from the first gate chunk of each part (or of
 * the whole buffer, where it has none) to the last. DESCENDING: from the last
 * to the first, as gradients come out of a backward pass.
 */
typedef enum weft_chunk_order {
    WEFT_CHUNK_ORDER_ASCENDING,
    WEFT_CHUNK_ORDER_DESCENDING,
    WEFT_CHUNK_ORDER_COUNT
} weft_chunk_order;

typedef struct weft_op {
    size_t size_bytes;
    weft_collective collective;
    const void *send;
    void *recv;
    size_t count;
    const size_t *send_counts, *send_displs;
    const size_t *recv_counts, *recv_displs;
    weft_dtype dtype;
    weft_redop redop;
    int root;
    weft_gate *ready;
    weft_gate *arrived;
    size_t gate_elems;
    size_t ready_chunk;
    size_t arrived_chunk;
    weft_class class_id;
    const char *label;
    const void *scale;
    uint64_t timeout_ms;
    weft_chunk_order chunk_order;
    weft_gate *writable;
    size_t writable_chunk;
    const size_t *deferred_counts;
    size_t *arrived_counts;
} weft_op;

/*
 * weft_op_post - queue an operation.
 *
 * epoch    what its gates wait for and are raised to; 0 only without gates.
 * stream   the operation starts when the stream reaches it, and later work on
 *          the stream runs when it is done; NULL: done on return.
 *
 * Returns     OK | ERR_INVALID (the text names the argument; nothing was
 *             queued, no number taken) | with a NULL stream ERR_MISMATCH,
 *             ERR_PEER, ERR_TIMEOUT, ERR_ABORTED | one of these if the
 *             communicator has already failed | on a stream ERR_NO_MEMORY |
 *             ERR_UNSUPPORTED (by NCCL, gates it cannot serve; on a stream that
 *             is being captured, what no graph can repeat: docs/gpu.md).
 * Threads     one caller per comm at a time.
 * Blocks      if stream is NULL; never for room: any number may be pending.
 * Allocates   on a stream, what it keeps of the operation until it is done.
 */
WEFT_NODISCARD weft_status weft_op_post(const weft_op *op, uint64_t epoch,
                                        weft_comm *comm, weft_stream *stream);

/*
 * weft_op_ready_order, weft_op_arrived_order - in which order the chunks of a
 * ready gate are best made, and those of an arrived gate come.
 *
 * Both are known before the post, from op, the rank and the algorithm that comm
 * gives op. Chunks that are ready in another order move too, but each waits for
 * those that stand before it where they go the same way. One of more than one
 * message may wait for all of its round.
 *
 * ready     what other ranks wait for first, round by round: the parts of rank
 *           + 1, rank + 2, .. Of a reduction the own part closes each round, as
 *           peers' data are held until it can be added; in ALLTOALL and SCATTER
 *           it stands at the end, as only this rank uses it.
 * arrived   what this rank has itself, then what peers send, round by round.
 *           Chunks on one way arrive in just that order, those of this rank
 *           once they are ready. In that order writable is best raised, too.
 *
 * op          as weft_op_post takes it; what it asks of gates counts whether it
 *             has them or not, and the chunks are as many.
 * chunks_out  [room] each chunk once, counted from ready_chunk or
 *             arrived_chunk; may be NULL with room 0.
 * count_out   how many there are: none in ready of a rank that does not send.
 *
 * Returns     OK | ERR_INVALID (as the post, or room is not 0 and below the
 *             count: count_out is set then) | ERR_NO_MEMORY.
 * Threads     any.  Blocks: no.  Allocates: for the time of the call.
 */
WEFT_NODISCARD weft_status weft_op_ready_order(const weft_op *op,
                                               weft_comm *comm,
                                               size_t *chunks_out, size_t room,
                                               size_t *count_out);
WEFT_NODISCARD weft_status weft_op_arrived_order(const weft_op *op,
                                                 weft_comm *comm,
                                                 size_t *chunks_out,
                                                 size_t room,
                                                 size_t *count_out);

/*
 * The short forms. send and recv are host memory or the communicator's
 * device's, each by itself and on each rank as it likes (another device's is
 * refused), of dtype, any alignment; recv is undefined until completion; a
 * count of 0 is legal and still an operation.
 * Returns, Threads, Blocks, Allocates: weft_op_post.
 *
 * weft_allreduce      recv[0..count) = op over ranks p of send_p[0..count).
 *                     In place: recv == send.
 * weft_reduce         the same at root; recv may be NULL elsewhere. In place
 *                     at root: recv == send.
 * weft_allgather      recv[p * send_elems ..) = send_p[0..send_elems), shape
 *                     [nranks][send_elems]. In place:
 *                     send == &recv[rank][0].
 * weft_reducescatter  rank r gets op over p of send_p[r][0..recv_elems), send
 *                     has shape [nranks][recv_elems]. In place:
 *                     recv == &send[rank][0].
 * weft_broadcast      recv[0..count) = root's send[0..count); send may be NULL
 *                     elsewhere. In place at root: recv == send.
 * weft_alltoall       recv[p][0..count) = send_p[rank][0..count): send and recv
 *                     have shape [nranks][count]. Never in place.
 * weft_gather         at root recv[p * count ..) = send_p[0..count); elsewhere
 *                     recv may be NULL. In place at root:
 *                     send == &recv[root][0].
 * weft_scatter        recv[0..count) = root's send[rank][0..count); send has
 *                     shape [nranks][count] at root, elsewhere it may be NULL.
 *                     In place at root: recv == &send[root][0].
 * weft_barrier        nobody leaves before everybody has entered.
 * weft_send, _recv    count elements to or from one peer, which may be this
 *                     rank itself (on different streams).
 *
 * The v forms take a count for each rank, and where its elements begin
 * (displs, in elements; NULL: one after another). A count may be 0, on any
 * rank. What rank a sends to rank b must be what b expects from a; b compares
 * that before it writes anything. Where it is not so the communicator fails:
 * the operation ends with ERR_MISMATCH and a text that names both ranks and
 * both counts on b, and on all that have not ended it yet. Ranks that need
 * nothing of b may have returned OK before; then their next operation fails so.
 * In place as the form without v, at the displs of the rank (root) itself.
 *
 * weft_alltoallv      recv[recv_displs[p] ..) = recv_counts[p] elements of p.
 * weft_gatherv        root gets send_elems of each; recv_counts and
 *                     recv_displs may be NULL elsewhere.
 * weft_scatterv       everybody gets recv_elems of root; send_counts and
 *                     send_displs may be NULL elsewhere.
 * weft_allgatherv     recv_counts on all ranks; send_elems is what it says
 *                     there for this rank.
 * weft_reducescatterv
 *                     send has recv_counts[p] elements for each rank p, one
 *                     after another; rank r gets those that are its own,
 *                     reduced over all ranks. In weft_op these counts are
 *                     send_counts, and count is this rank's own.
 *
 * Other overlaps of send and recv are refused with ERR_INVALID; for the v
 * forms that is from the first element used to the last. PREMULSUM needs a
 * scalar, so it has no short form.
 *
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective
 * Communication Operations in MPICH", 2005; MPI 4.0, chapter 6; comm/pattern/.
 */
WEFT_NODISCARD weft_status weft_allreduce(const void *send, void *recv,
                                          size_t count, weft_dtype dtype,
                                          weft_redop redop, weft_comm *comm,
                                          weft_stream *stream);
WEFT_NODISCARD weft_status weft_reduce(const void *send, void *recv,
                                       size_t count, weft_dtype dtype,
                                       weft_redop redop, int root,
                                       weft_comm *comm, weft_stream *stream);
WEFT_NODISCARD weft_status weft_allgather(const void *send, void *recv,
                                          size_t send_elems, weft_dtype dtype,
                                          weft_comm *comm, weft_stream *stream);
WEFT_NODISCARD weft_status weft_reducescatter(const void *send, void *recv,
                                              size_t recv_elems,
                                              weft_dtype dtype,
                                              weft_redop redop, weft_comm *comm,
                                              weft_stream *stream);
WEFT_NODISCARD weft_status weft_broadcast(const void *send, void *recv,
                                          size_t count, weft_dtype dtype,
                                          int root, weft_comm *comm,
                                          weft_stream *stream);
WEFT_NODISCARD weft_status weft_alltoall(const void *send, void *recv,
                                         size_t count, weft_dtype dtype,
                                         weft_comm *comm, weft_stream *stream);
WEFT_NODISCARD weft_status weft_alltoallv(
    const void *send, const size_t *send_counts, const size_t *send_displs,
    void *recv, const size_t *recv_counts, const size_t *recv_displs,
    weft_dtype dtype, weft_comm *comm, weft_stream *stream);
WEFT_NODISCARD weft_status weft_gather(const void *send, void *recv,
                                       size_t count, weft_dtype dtype, int root,
                                       weft_comm *comm, weft_stream *stream);
WEFT_NODISCARD weft_status weft_gatherv(const void *send, size_t send_elems,
                                        void *recv, const size_t *recv_counts,
                                        const size_t *recv_displs,
                                        weft_dtype dtype, int root,
                                        weft_comm *comm, weft_stream *stream);
WEFT_NODISCARD weft_status weft_scatter(const void *send, void *recv,
                                        size_t count, weft_dtype dtype,
                                        int root, weft_comm *comm,
                                        weft_stream *stream);
WEFT_NODISCARD weft_status weft_scatterv(const void *send,
                                         const size_t *send_counts,
                                         const size_t *send_displs, void *recv,
                                         size_t recv_elems, weft_dtype dtype,
                                         int root, weft_comm *comm,
                                         weft_stream *stream);
WEFT_NODISCARD weft_status weft_allgatherv(const void *send, size_t send_elems,
                                           void *recv,
                                           const size_t *recv_counts,
                                           const size_t *recv_displs,
                                           weft_dtype dtype, weft_comm *comm,
                                           weft_stream *stream);
WEFT_NODISCARD weft_status weft_reducescatterv(
    const void *send, void *recv, const size_t *recv_counts, weft_dtype dtype,
    weft_redop redop, weft_comm *comm, weft_stream *stream);
WEFT_NODISCARD weft_status weft_barrier(weft_comm *comm, weft_stream *stream);
WEFT_NODISCARD weft_status weft_send(const void *send, size_t count,
                                     weft_dtype dtype, int peer,
                                     weft_comm *comm, weft_stream *stream);
WEFT_NODISCARD weft_status weft_recv(void *recv, size_t count, weft_dtype dtype,
                                     int peer, weft_comm *comm,
                                     weft_stream *stream);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
