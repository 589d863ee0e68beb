/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_type.h - MPI's datatypes and operations, as weft has them.
 *
 * A collective that only moves data moves bytes, whatever the types: those of
 * two ranks need only have the same signature, so one rank's may be dense and
 * another's full of gaps. A reduction has one type and one operation on all
 * ranks, so whether weft has both is known to all alike.
 */
#ifndef DOORS_MPI_MPI_TYPE_H
#define DOORS_MPI_MPI_TYPE_H

#include "doors/mpi/mpi_abi.h"
#include "weft/types.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * A datatype as memory.
 *
 * bytes    of data in one element
 * extent   bytes from one element to the next
 * dense    elements in a row are their data in a row; else they are packed
 */
typedef struct wefti_mpi_type {
    MPI_Datatype handle;
    size_t bytes;
    ptrdiff_t extent;
    bool dense;
} wefti_mpi_type;

/* A reduction as weft has it: per elements of dtype for one of MPI's. */
typedef struct wefti_mpi_reduction {
    weft_dtype dtype;
    weft_redop redop;
    size_t per;
} wefti_mpi_reduction;

/* The keyval under which derived types keep whether they are dense; once. */
int wefti_mpi_type_open(void);
void wefti_mpi_type_close(void);

/* What comm's error handler takes is only what packing an element may bring.
 * false: no datatype, MPI will say so. */
bool wefti_mpi_type_get(MPI_Datatype handle, MPI_Comm comm,
                        wefti_mpi_type *type_out);

/* false: only MPI can do that. */
bool wefti_mpi_reduction_get(MPI_Datatype type, MPI_Op op,
                             wefti_mpi_reduction *reduction_out);

#endif
