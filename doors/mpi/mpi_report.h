/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_report.h - what a program's collectives cost: a table when MPI
 * ends, if WEFT_MPI_REPORT asks for it.
 *
 * Of each collective: calls, bytes, time in blocking calls (of non-blocking
 * ones the time to begin and to wait), the mean of the ranks; waiting, the part
 * of it that the rank with the least time did not need, the mean again; that
 * rank is the slowest: others waited for it. And what was left to MPI, and why.
 */
#ifndef DOORS_MPI_MPI_REPORT_H
#define DOORS_MPI_MPI_REPORT_H

#include "doors/mpi/mpi_comm.h"
#include "weft/types.h"

/* Reads the setting, once, before all others. */
void wefti_mpi_report_open(void);

/* The time; 0 where there will be no report. */
int64_t wefti_mpi_report_now(void);

/* A call of weft's, of so many bytes, begun at from_ns; one left to MPI. */
void wefti_mpi_report_call(weft_collective what, size_t bytes, int64_t from_ns);
void wefti_mpi_report_left(weft_collective what, wefti_mpi_left left,
                           int64_t from_ns);

/* More time of a call that has been counted. */
void wefti_mpi_report_wait(weft_collective what, int64_t from_ns);

/* Gathers and prints it, on rank 0 of MPI_COMM_WORLD; collective. */
void wefti_mpi_report_close(void);

#endif
