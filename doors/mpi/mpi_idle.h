/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_idle.h - what MPI has to do while a thread waits in weft.
 *
 * MPI promises that a message goes on while its sender is in any blocking call.
 * A collective of weft is one, so whoever waits there lets MPI move.
 */
#ifndef DOORS_MPI_MPI_IDLE_H
#define DOORS_MPI_MPI_IDLE_H

/* Only by a thread that may call MPI. */
void wefti_mpi_idle(void *unused);

#endif
