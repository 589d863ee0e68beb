/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/pack.h - several ranges of memory to one and back, as a bucket
 * of gradients needs. On the device: launch.h.
 *
 * Threads     any.  Blocks: no.  Allocates: no.
 */
#ifndef KERNELS_WIRE_PACK_H
#define KERNELS_WIRE_PACK_H

#include <stddef.h>

/* One range, and where it begins in the packed one. */
typedef struct wefti_piece {
    void *at;
    size_t packed_offset;
    size_t bytes; /* may be 0 */
} wefti_piece;

/*
 * wefti_pack, _unpack - packed[piece.packed_offset ..] = piece.at[0 ..
 * piece.bytes) for each piece, and the other way.
 *
 * pieces       in the order of their offsets, which need not touch; what lies
 *              between is not written. They do not overlap in packed, nor in
 *              memory, nor with packed.
 * piece_count  0 is legal.
 */
void wefti_pack(void *packed, const wefti_piece *pieces, size_t piece_count);
void wefti_unpack(const void *packed, const wefti_piece *pieces,
                  size_t piece_count);

#endif
