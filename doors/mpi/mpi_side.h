/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_side.h - one buffer of a call: blocks of elements of a type, in
 * the program's memory or packed into a copy.
 */
#ifndef DOORS_MPI_MPI_SIDE_H
#define DOORS_MPI_MPI_SIDE_H

#include "doors/mpi/mpi_type.h"
#include "weft/status.h"

/*
 * user     what the program passed; NULL with blocks 0: nothing moves here
 * counts   elements of each block, int or, if large, MPI_Count; NULL: count in
 *          each
 * displs   where each begins, in extents, int or MPI_Aint; NULL: one after
 *          another
 * packed   weft works in a copy
 * data     what weft works in
 * bytes, offsets
 *          of each block there; NULL: all have block_bytes, one after another
 * span_bytes
 *          from data to the end of the last
 */
typedef struct wefti_mpi_side {
    char *user;
    wefti_mpi_type type;
    int blocks;
    bool large;
    MPI_Count count;
    const void *counts, *displs;
    bool packed;
    char *data;
    size_t *bytes, *offsets;
    size_t block_bytes, span_bytes;
} wefti_mpi_side;

/* Whether the program's counts are ones that MPI allows. */
bool wefti_mpi_side_check(const wefti_mpi_side *side);

/* Where weft finds the blocks. room: [2 * blocks] where counts are given; kept.
 * packed is as it was set before, and true where the type has gaps. */
void wefti_mpi_side_place(wefti_mpi_side *side, size_t *room);

/* Whether they share memory that is not empty. */
bool wefti_mpi_side_overlaps(const wefti_mpi_side *a, const wefti_mpi_side *b);

/* The copy, if there is to be one, and its end. Returns OK | ERR_NO_MEMORY. */
weft_status wefti_mpi_side_open(wefti_mpi_side *side);
void wefti_mpi_side_close(wefti_mpi_side *side);

/* All blocks, or one, between the program's memory and the copy. */
void wefti_mpi_side_pack(const wefti_mpi_side *side, MPI_Comm comm);
void wefti_mpi_side_pack_block(const wefti_mpi_side *side, int block,
                               MPI_Comm comm);
void wefti_mpi_side_unpack(const wefti_mpi_side *side, MPI_Comm comm);

/* Where one block is for weft. */
char *wefti_mpi_side_block(const wefti_mpi_side *side, int block);
size_t wefti_mpi_side_block_bytes(const wefti_mpi_side *side, int block);

#endif
