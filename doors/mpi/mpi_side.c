/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_side.c - where the blocks of a buffer lie, and copies of them.
 *
 *     program's   . . [ b1 ] . . . [ b0 ] .     displs in any order, gaps
 *     packed      [ b0 ][ b1 ]                  in the order of the ranks
 */
#include "doors/mpi/mpi_side.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static MPI_Count count_of(const wefti_mpi_side *side, int block)
{
    if (!side->counts) {
        return side->count;
    }
    return side->large ? ((const MPI_Count *)side->counts)[block]
                       : ((const int *)side->counts)[block];
}

/* Bytes from the program's buffer to a block; negative is legal. */
static ptrdiff_t displ_of(const wefti_mpi_side *side, int block)
{
    if (!side->displs) {
        return (ptrdiff_t)side->count * block * side->type.extent;
    }
    return (side->large ? ((const MPI_Aint *)side->displs)[block]
                        : ((const int *)side->displs)[block]) *
           side->type.extent;
}

bool wefti_mpi_side_check(const wefti_mpi_side *side)
{
    if (side->blocks == 0 || !side->counts) {
        return side->count >= 0;
    }
    bool legal = side->displs != NULL;
    for (int i = 0; legal && i < side->blocks; i++) {
        legal = count_of(side, i) >= 0;
    }
    return legal;
}

/* Blocks of the program's memory: data is where the lowest begins. */
static void place_as_they_lie(wefti_mpi_side *side)
{
    ptrdiff_t lowest = 0;
    bool any = false;
    for (int i = 0; i < side->blocks; i++) {
        if (side->bytes[i] > 0 && (!any || displ_of(side, i) < lowest)) {
            lowest = displ_of(side, i);
            any = true;
        }
    }
    side->data = any ? side->user + lowest : side->user;
    side->span_bytes = 0;
    for (int i = 0; i < side->blocks; i++) {
        side->offsets[i] =
            side->bytes[i] ? (size_t)(displ_of(side, i) - lowest) : 0;
        const size_t end = side->offsets[i] + side->bytes[i];
        side->span_bytes = end > side->span_bytes ? end : side->span_bytes;
    }
}

static void place_in_a_row(wefti_mpi_side *side)
{
    side->span_bytes = 0;
    for (int i = 0; i < side->blocks; i++) {
        side->offsets[i] = side->span_bytes;
        side->span_bytes += side->bytes[i];
    }
}

void wefti_mpi_side_place(wefti_mpi_side *side, size_t *room)
{
    if (side->blocks == 0) {
        return;
    }
    side->packed |= !side->type.dense;
    side->data = side->user;
    if (!side->counts) {
        side->block_bytes = (size_t)side->count * side->type.bytes;
        side->span_bytes = side->block_bytes * (size_t)side->blocks;
        return;
    }
    side->bytes = room;
    side->offsets = room + side->blocks;
    for (int i = 0; i < side->blocks; i++) {
        side->bytes[i] = (size_t)count_of(side, i) * side->type.bytes;
    }
    if (side->packed) {
        place_in_a_row(side);
    } else {
        place_as_they_lie(side);
    }
}

bool wefti_mpi_side_overlaps(const wefti_mpi_side *a, const wefti_mpi_side *b)
{
    return !a->packed && !b->packed && a->span_bytes && b->span_bytes &&
           (uintptr_t)a->data < (uintptr_t)b->data + b->span_bytes &&
           (uintptr_t)b->data < (uintptr_t)a->data + a->span_bytes;
}

weft_status wefti_mpi_side_open(wefti_mpi_side *side)
{
    if (side->packed) {
        side->data = malloc(side->span_bytes ? side->span_bytes : 1);
    }
    return side->packed && !side->data
               ? wefti_error(WEFT_ERR_NO_MEMORY,
                             "no memory for a packed copy of %zu bytes",
                             side->span_bytes)
               : WEFT_OK;
}

void wefti_mpi_side_close(wefti_mpi_side *side)
{
    if (side->packed) {
        free(side->data);
    }
    side->packed = false;
}

char *wefti_mpi_side_block(const wefti_mpi_side *side, int block)
{
    return side->data + (side->bytes ? side->offsets[block]
                                     : side->block_bytes * (size_t)block);
}

size_t wefti_mpi_side_block_bytes(const wefti_mpi_side *side, int block)
{
    return side->bytes ? side->bytes[block] : side->block_bytes;
}

/* MPI packs at most 2^31 bytes at once. */
static const size_t piece_bytes = (size_t)1 << 30;

/* Elements of one block, in pieces; into: towards the copy. */
static void move_block(const wefti_mpi_side *side, int block, bool into,
                       MPI_Comm comm)
{
    char *user = side->user + displ_of(side, block);
    char *copy = wefti_mpi_side_block(side, block);
    MPI_Count left = count_of(side, block);
    if (side->type.bytes == 0 || left == 0) {
        return;
    }
    if (side->type.dense) {
        memcpy(into ? copy : user, into ? user : copy,
               (size_t)left * side->type.bytes);
        return;
    }
    const MPI_Count most = side->type.bytes < piece_bytes
                               ? (MPI_Count)(piece_bytes / side->type.bytes)
                               : 1;
    while (left > 0) {
        const int piece = (int)(left < most ? left : most);
        const int bytes = (int)((size_t)piece * side->type.bytes);
        int position = 0;
        if (into) {
            PMPI_Pack(user, piece, side->type.handle, copy, bytes, &position,
                      comm);
        } else {
            PMPI_Unpack(copy, bytes, &position, user, piece, side->type.handle,
                        comm);
        }
        user += piece * side->type.extent;
        copy += bytes;
        left -= piece;
    }
}

void wefti_mpi_side_pack_block(const wefti_mpi_side *side, int block,
                               MPI_Comm comm)
{
    if (side->packed) {
        move_block(side, block, true, comm);
    }
}

void wefti_mpi_side_pack(const wefti_mpi_side *side, MPI_Comm comm)
{
    for (int i = 0; side->packed && i < side->blocks; i++) {
        move_block(side, i, true, comm);
    }
}

void wefti_mpi_side_unpack(const wefti_mpi_side *side, MPI_Comm comm)
{
    for (int i = 0; side->packed && i < side->blocks; i++) {
        move_block(side, i, false, comm);
    }
}
