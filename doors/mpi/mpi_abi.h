/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_abi.h - the header of the MPI that this build is for, and its
 * handles as numbers: pointers in Open MPI, integers in MPICH.
 */
#ifndef DOORS_MPI_MPI_ABI_H
#define DOORS_MPI_MPI_ABI_H

/* What it declares is what this library defines for programs. */
#pragma GCC visibility push(default)
#include <mpi.h>
#pragma GCC visibility pop

#include <stdint.h>

#define WEFTI_MPI_KEY(handle) ((uintptr_t)(handle))

/* Collectives with counts of MPI_Count, and persistent ones. */
#if MPI_VERSION >= 4
#define WEFTI_MPI_HAS_LARGE      1
#define WEFTI_MPI_HAS_PERSISTENT 1
#else
#define WEFTI_MPI_HAS_LARGE      0
#define WEFTI_MPI_HAS_PERSISTENT 0
#endif

#endif
