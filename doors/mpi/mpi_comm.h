/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_comm.h - weft's communicator beside each of MPI's.
 *
 * It is made by the first blocking collective that weft can have, which all
 * ranks call, and hangs on MPI's as an attribute: freeing that ends it. A
 * non-blocking collective may not wait for other ranks, so before that they
 * stay with MPI, on all ranks alike, as all have made the same calls.
 */
#ifndef DOORS_MPI_MPI_COMM_H
#define DOORS_MPI_MPI_COMM_H

#include "doors/mpi/mpi_abi.h"
#include "weft/comm.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Why a call is left to MPI: X(name, text). All ranks come to the same one;
 * except ARGUMENT, where MPI ends the call with an error. */
#define WEFTI_MPI_LEFT_LIST(X)                                                 \
    X(NOT, "")                                                                 \
    X(ALONE, "communicator of one rank")                                       \
    X(INTER, "inter-communicator")                                             \
    X(OPERATION, "operation or type that weft lacks")                          \
    X(EARLY, "before the communicator's first blocking collective")            \
    X(HOSTS, "ranks on several hosts, and WEFT_HOST is not set")               \
    X(FAILED, "weft could not connect the ranks")                              \
    X(ARGUMENT, "arguments that are MPI's to refuse")                          \
    X(OFF, "MPI is not initialized, or was so without weft")

typedef enum wefti_mpi_left {
#define WEFTI_MPI_LEFT_ENUM(name, text) WEFTI_MPI_LEFT_##name,
    WEFTI_MPI_LEFT_LIST(WEFTI_MPI_LEFT_ENUM)
#undef WEFTI_MPI_LEFT_ENUM
        WEFTI_MPI_LEFT_COUNT
} wefti_mpi_left;

/*
 * handle   MPI's, as a number; 0: none. Never freed but used again, so a thread
 *          that looks for another communicator may read it at any time.
 * weft     NULL: left says why.
 * users    MPI's communicator, and each request
 */
typedef struct wefti_mpi_comm {
    _Atomic uintptr_t handle;
    MPI_Comm mpi;
    weft_comm *weft;
    wefti_mpi_left left;
    int rank, nranks;
    _Atomic int users;
    struct wefti_mpi_comm *next;        /* of those not used now */
    struct wefti_mpi_comm *made_before; /* of all */
} wefti_mpi_comm;

/* Once MPI is there, and before it ends: then all of weft's are destroyed. */
int wefti_mpi_comm_open(void);
void wefti_mpi_comm_close(void);

/*
 * wefti_mpi_comm_get - that of a communicator, whether weft has it or not.
 *
 * may_wait   all ranks of comm are in a call that may wait for them: weft's
 *            communicator is made if there is none yet
 *
 * Returns    NULL: no communicator, or no memory.
 */
wefti_mpi_comm *wefti_mpi_comm_get(MPI_Comm comm, bool may_wait);

/* A request keeps weft's communicator, also where MPI's is freed meanwhile. */
void wefti_mpi_comm_hold(wefti_mpi_comm *comm);
void wefti_mpi_comm_release(wefti_mpi_comm *comm);

/* weft's error, to comm's error handler as one of MPI's with weft's text.
 * Returns    the code that the call returns. */
int wefti_mpi_comm_raise(const wefti_mpi_comm *comm, weft_status status);

#endif
