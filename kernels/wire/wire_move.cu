/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/wire_move.cu - wefti_copy_bytes, wefti_pack_bytes and
 * wefti_unpack_bytes (launch.h).
 *
 * To pack, each block takes pieces in turn, and its threads copy them
 * together; a piece that is long is shared by all blocks, in parts.
 */
#include "kernels/wire/launch.h"
#include "kernels/wire/pack.h"
#include "kernels/wire/run.cuh"

/* A contiguous share of a copy, as `workers` workers divide it. */
struct copy_span {
    unsigned char *dst;
    const unsigned char *src;
    size_t bytes;
};

/* Copies by all threads of a team, of which this is number `me`. */
template <class Memory>
static __device__ inline void copy_units(const copy_span &span, size_t head,
                                         size_t me, size_t team)
{
    size_t count = (span.bytes - head) / sizeof(Memory);
    Memory *dst = reinterpret_cast<Memory *>(span.dst + head);
    const Memory *src = reinterpret_cast<const Memory *>(span.src + head);
    for (size_t i = me; i < count; i += team) {
        dst[i] = src[i];
    }
    size_t tail = head + count * sizeof(Memory);
    for (size_t i = me; i < head; i += team) {
        span.dst[i] = span.src[i];
    }
    for (size_t i = tail + me; i < span.bytes; i += team) {
        span.dst[i] = span.src[i];
    }
}

/* By the largest access at which both are aligned, sooner or later. */
static __device__ inline void copy_by(const copy_span &span, size_t me,
                                      size_t team)
{
    uintptr_t to = (uintptr_t)span.dst;
    uintptr_t apart = to ^ (uintptr_t)span.src;
    size_t head = (0 - to) % 16;
    head = head < span.bytes ? head : span.bytes;
    if (apart % 16 == 0) {
        copy_units<uint4>(span, head, me, team);
    } else if (apart % 8 == 0) {
        copy_units<uint2>(span, head, me, team);
    } else if (apart % 4 == 0) {
        copy_units<unsigned>(span, head, me, team);
    } else {
        copy_units<unsigned char>(span, head, me, team);
    }
}

extern "C" __global__ void __launch_bounds__(WEFTI_LAUNCH_THREADS, 1)
    wefti_copy_bytes(const __grid_constant__ wefti_copy_args args)
{
    copy_span span = {static_cast<unsigned char *>(args.dst),
                      static_cast<const unsigned char *>(args.src), args.bytes};
    copy_by(span, thread_first(), thread_count());
}

/*
 * Each piece in parts of PART_BYTES. Block b takes the parts b, b + grid, ...
 * of all parts of all pieces; the first thread looks up where the pieces of
 * this round lie, the others read it from shared memory.
 */
static const size_t PART_BYTES = 32 * 1024;
static const unsigned ROUND_PIECES = 64;

struct piece_round {
    wefti_piece pieces[ROUND_PIECES];
    size_t parts_before[ROUND_PIECES + 1]; /* counted over all pieces */
};

static __device__ inline size_t part_count(size_t bytes)
{
    return (bytes + PART_BYTES - 1) / PART_BYTES;
}

/* Copies this block's parts of one piece; number: of its first part. */
static __device__ inline void move_piece(const wefti_pack_args &args, bool pack,
                                         const wefti_piece &piece,
                                         size_t number)
{
    unsigned char *packed =
        static_cast<unsigned char *>(args.packed) + piece.packed_offset;
    unsigned char *apart = static_cast<unsigned char *>(piece.at);
    size_t parts = part_count(piece.bytes);
    size_t first = (blockIdx.x + gridDim.x - number % gridDim.x) % gridDim.x;
    for (size_t part = first; part < parts; part += gridDim.x) {
        size_t at = part * PART_BYTES;
        size_t left = piece.bytes - at;
        copy_span span = {pack ? packed + at : apart + at,
                          pack ? apart + at : packed + at,
                          left < PART_BYTES ? left : PART_BYTES};
        copy_by(span, threadIdx.x, blockDim.x);
    }
}

static __device__ inline void move_pieces(const wefti_pack_args &args,
                                          bool pack, piece_round *round)
{
    size_t before = 0;
    for (size_t from = 0; from < args.piece_count; from += ROUND_PIECES) {
        size_t left = args.piece_count - from;
        unsigned count = left < ROUND_PIECES ? (unsigned)left : ROUND_PIECES;
        for (unsigned i = threadIdx.x; i < count; i += blockDim.x) {
            round->pieces[i] = args.pieces[from + i];
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            round->parts_before[0] = before;
            for (unsigned i = 0; i < count; i++) {
                round->parts_before[i + 1] =
                    round->parts_before[i] + part_count(round->pieces[i].bytes);
            }
        }
        __syncthreads();
        for (unsigned i = 0; i < count; i++) {
            move_piece(args, pack, round->pieces[i], round->parts_before[i]);
        }
        before = round->parts_before[count];
        __syncthreads(); /* before the round is written again */
    }
}

extern "C" __global__ void __launch_bounds__(WEFTI_LAUNCH_THREADS, 1)
    wefti_pack_bytes(const __grid_constant__ wefti_pack_args args)
{
    __shared__ piece_round round;
    move_pieces(args, true, &round);
}

extern "C" __global__ void __launch_bounds__(WEFTI_LAUNCH_THREADS, 1)
    wefti_unpack_bytes(const __grid_constant__ wefti_pack_args args)
{
    __shared__ piece_round round;
    move_pieces(args, false, &round);
}
