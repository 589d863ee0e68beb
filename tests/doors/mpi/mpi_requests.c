/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_requests.c - an MPI program for test_mpi_door.sh: weft's collectives
 * among MPI's messages, which must go on while a rank waits in weft.
 *
 * Each rank prints "rank R of N: ok".
 */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "FAILED: rank %d, line %d: %s\n", world_rank,      \
                    __LINE__, #condition);                                     \
            PMPI_Abort(MPI_COMM_WORLD, 1);                                     \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

static int world_rank;

/* A message that is large enough to need its sender, which waits in a
 * collective of weft; MPI promises that it arrives all the same. */
static void send_behind_a_barrier(void)
{
    enum { WORDS = 1 << 20 };
    int *words = calloc(WORDS, sizeof(int)), nranks;
    MPI_Request request = MPI_REQUEST_NULL;
    CHECK(words);
    PMPI_Comm_size(MPI_COMM_WORLD, &nranks);
    if (world_rank == 0 && nranks > 1) {
        words[WORDS - 1] = 7;
        MPI_Isend(words, WORDS, MPI_INT, 1, 3, MPI_COMM_WORLD, &request);
    }
    if (world_rank == 1) {
        MPI_Recv(words, WORDS, MPI_INT, 0, 3, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        CHECK(words[WORDS - 1] == 7);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    free(words);
}

/* MPI's requests and weft's in one array, and one that is given up. */
static void mix_requests(void)
{
    int sums[3] = {0, 0, 0}, in = -1, out = world_rank, nranks;
    MPI_Request all[4], lost;
    MPI_Status statuses[4];
    PMPI_Comm_size(MPI_COMM_WORLD, &nranks);
    for (int round = 0; round < 20; round++) {
        int left = 4, indices[4];
        MPI_Iallreduce(&(int){1}, &sums[0], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                       &all[0]);
        MPI_Irecv(&in, 1, MPI_INT, (world_rank + 1) % nranks, round,
                  MPI_COMM_WORLD, &all[1]);
        MPI_Isend(&out, 1, MPI_INT, (world_rank + nranks - 1) % nranks, round,
                  MPI_COMM_WORLD, &all[2]);
        MPI_Iallreduce(&(int){2}, &sums[1], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                       &all[3]);
        MPI_Iallreduce(&(int){3}, &sums[2], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                       &lost);
        MPI_Request_free(&lost);
        CHECK(lost == MPI_REQUEST_NULL);
        while (left > 0 && round % 3 == 0) {
            int count;
            MPI_Waitsome(4, all, &count, indices, statuses);
            CHECK(count >= 1);
            left -= count;
        }
        while (left > 0 && round % 3 == 1) {
            MPI_Waitany(4, all, &indices[0], &statuses[0]);
            CHECK(indices[0] >= 0 && indices[0] < 4);
            left--;
        }
        MPI_Waitall(4, all, statuses);
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(sums[0] == nranks && sums[1] == 2 * nranks);
        CHECK(in == (world_rank + 1) % nranks);
        for (int i = 0; i < 4; i++) {
            CHECK(all[i] == MPI_REQUEST_NULL);
        }
    }
}

/* A persistent collective that is MPI's, of a type that weft does not add,
 * behind those of weft's that have ended: their handles' memory must not be
 * what MPI gives it. */
static void start_behind_requests(void)
{
#if MPI_VERSION >= 4
    enum { STARTS = 3, MOST_S = 20 };
    short own[2] = {1, 2}, sums[2];
    int nranks;
    MPI_Request request;
    PMPI_Comm_size(MPI_COMM_WORLD, &nranks);
    MPI_Allreduce_init(own, sums, 2, MPI_SHORT, MPI_SUM, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &request);
    for (int start = 0; start < STARTS; start++) {
        const double until_s = MPI_Wtime() + MOST_S;
        int done = 0;
        MPI_Start(&request);
        while (!done) {
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            CHECK(done || MPI_Wtime() < until_s);
        }
        CHECK(sums[0] == nranks && sums[1] == 2 * nranks);
    }
    MPI_Request_free(&request);
#endif
}

int main(int argc, char **argv)
{
    int nranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    MPI_Barrier(MPI_COMM_WORLD); /* from here on weft has the communicator */
    send_behind_a_barrier();
    mix_requests();
    start_behind_requests();
    printf("rank %d of %d: ok\n", world_rank, nranks);
    MPI_Finalize();
    return 0;
}
