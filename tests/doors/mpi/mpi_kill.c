/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_kill.c - an MPI program for test_mpi_door.sh: the last rank kills itself
 * between two collectives; the others must get an error of MPI whose text names
 * it, by their communicator's error handler. It goes to a file, as MPICH's
 * launcher carries no more output then.
 *
 * Usage: mpi_kill FILE, with two ranks
 */
#include <mpi.h>

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, nranks, bytes, sum = 0;
    char text[MPI_MAX_ERROR_STRING] = "no error";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    signal(SIGTERM, SIG_IGN); /* what launchers send to the survivors */
    signal(SIGUSR1, SIG_IGN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == nranks - 1) {
        kill(getpid(), SIGKILL);
    }
    const int code =
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (code != MPI_SUCCESS) {
        MPI_Error_string(code, text, &bytes);
    }
    FILE *out = argc > 1 ? fopen(argv[1], "w") : stdout;
    if (out) {
        fprintf(out, "rank %d: %s\n", rank, text);
        fflush(out);
    }
    _exit(code == MPI_SUCCESS);
}
