/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/wire_pack.c - pack.h on the host.
 */
#include "kernels/wire/pack.h"

#include "kernels/wire/reduce.h"

void wefti_pack(void *packed, const wefti_piece *pieces, size_t piece_count)
{
    for (size_t i = 0; i < piece_count; i++) {
        const wefti_piece *piece = &pieces[i];
        wefti_copy((unsigned char *)packed + piece->packed_offset, piece->at,
                   piece->bytes);
    }
}

void wefti_unpack(const void *packed, const wefti_piece *pieces,
                  size_t piece_count)
{
    for (size_t i = 0; i < piece_count; i++) {
        const wefti_piece *piece = &pieces[i];
        wefti_copy(piece->at,
                   (const unsigned char *)packed + piece->packed_offset,
                   piece->bytes);
    }
}
