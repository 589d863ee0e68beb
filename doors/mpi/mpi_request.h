/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_request.h - calls that go on after they return, behind handles
 * of MPI.
 *
 * The handle that a program gets is one of MPI's: an inactive persistent send
 * to MPI_PROC_NULL. MPI takes it everywhere and never finds anything to do for
 * it; it counts as done. So MPI_Wait and its kin (mpi_wait.c) need only see to
 * weft's part, and hand whole arrays to MPI with nothing taken out. A
 * generalized request would have to be completed by a call into MPI from
 * weft's thread, which MPI_THREAD_SERIALIZED and less forbid.
 */
#ifndef DOORS_MPI_MPI_REQUEST_H
#define DOORS_MPI_MPI_REQUEST_H

#include "doors/mpi/mpi_call.h"

/*
 * flying     weft's part while it is active
 * active     started, and its end not yet reported to the program
 * code       what that will be
 * freed      the program has given up the handle; it goes on
 */
typedef struct wefti_mpi_request {
    MPI_Request token;
    wefti_mpi_job job;
    weft_request *flying;
    bool persistent, active, freed;
    int code;
    struct wefti_mpi_request *next;
} wefti_mpi_request;

/* An empty one, whose job is to be planned; NULL: no memory. */
wefti_mpi_request *wefti_mpi_request_create(void);

/* One whose call MPI has, or that could not be made. */
void wefti_mpi_request_destroy(wefti_mpi_request *request);

/* A planned one gets its handle, and is started unless it is persistent.
 * Returns MPI's code; destroyed after an error. */
int wefti_mpi_request_open(wefti_mpi_request *request, bool persistent,
                           MPI_Request *handle_out);

/* That of a handle; NULL: it is MPI's own, or MPI_REQUEST_NULL. */
wefti_mpi_request *wefti_mpi_request_find(MPI_Request handle);

/* Starts a persistent one. Returns MPI's code. */
int wefti_mpi_request_start(wefti_mpi_request *request);

/* Whether it is active and not done; the wait returns when it is done. */
bool wefti_mpi_request_is_pending(wefti_mpi_request *request);
void wefti_mpi_request_wait(wefti_mpi_request *request);

/* The program learns of the end of one that is done: the handle becomes
 * MPI_REQUEST_NULL, or inactive. Returns MPI's code. */
int wefti_mpi_request_finish(wefti_mpi_request *request, MPI_Request *handle);

/* MPI_Request_free; what is active goes on. */
int wefti_mpi_request_free(wefti_mpi_request *request, MPI_Request *handle);

/* Before MPI ends: what still goes on is waited for. */
void wefti_mpi_request_close(void);

#endif
