/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/launch_helper.c - what test_mpirun.sh starts under launchers.
 *
 *   launch_helper N        N times: create from the environment, all-reduce,
 *                          destroy
 *   launch_helper id FILE  from a unique id that rank 0 leaves in FILE, at the
 *                          address of WEFT_RENDEZVOUS; WEFT_RANK, WEFT_NRANKS
 *   launch_helper hog      rank 1 takes memory until it is ended for that; the
 *                          others wait for it, and print what they are told
 *   launch_helper_mpi HOW  the same program built with MPI, which weft is used
 *                          beside: HOW is "before" or "after" MPI_Init for a
 *                          communicator from the environment; then one from a
 *                          unique id that MPI_Bcast has carried.
 *
 * Prints "rank R of N: ok" once all was right.
 */
#include "weft/weft.h"

#ifdef WITH_MPI
#include <mpi.h>
#endif
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void must(bool right, const char *what)
{
    if (!right) {
        fprintf(stderr, "%s: %s\n", what, weft_error_text());
        exit(1);
    }
}

static weft_comm *create(const weft_comm_config *config)
{
    weft_comm *comm;
    must(weft_comm_create(config, &comm) == WEFT_OK, "create");
    return comm;
}

static void use(weft_comm *comm)
{
    int32_t mine = weft_comm_get_rank(comm), sum = -1;
    int nranks = weft_comm_get_nranks(comm);
    must(weft_allreduce(&mine, &sum, 1, WEFT_DTYPE_I32, WEFT_REDOP_SUM, comm,
                        NULL) == WEFT_OK,
         "all-reduce");
    must(sum == nranks * (nranks - 1) / 2, "sum");
}

/* Rank 0 leaves the id in the file, whole; the others wait for it there. */
static void exchange(int rank, const char *path, weft_unique_id *id)
{
    char beside[256], host[64];
    const struct timespec pause = {.tv_nsec = 10000000};
    FILE *file = NULL;
    snprintf(beside, sizeof(beside), "%s.new", path);
    if (rank == 0) {
        snprintf(host, sizeof(host), "%s", getenv("WEFT_RENDEZVOUS"));
        *strrchr(host, ':') = 0;
        setenv("WEFT_HOST", host, 1);
        must(weft_unique_id_create(id) == WEFT_OK, "unique id");
        file = fopen(beside, "w");
        must(file && fwrite(id, sizeof(*id), 1, file) == 1, beside);
        must(fclose(file) == 0 && rename(beside, path) == 0, path);
        return;
    }
    for (int i = 0; i < 2000 && !(file = fopen(path, "r")); i++) {
        nanosleep(&pause, NULL);
    }
    must(file && fread(id, sizeof(*id), 1, file) == 1, path);
    fclose(file);
}

static void run_by_id(const char *path)
{
    weft_unique_id id;
    weft_comm_config config = {.size_bytes = sizeof(config),
                               .id = &id,
                               .rank = atoi(getenv("WEFT_RANK")),
                               .nranks = atoi(getenv("WEFT_NRANKS"))};
    exchange(config.rank, path, &id);
    weft_comm *comm = create(&config);
    use(comm);
    weft_comm_destroy(comm);
    printf("rank %d of %d: ok\n", config.rank, config.nranks);
}

static void run_hog(void)
{
    enum { PIECE_BYTES = 1 << 20 };
    weft_comm *comm = create(NULL);
    while (weft_comm_get_rank(comm) == 1) {
        unsigned char *piece = malloc(PIECE_BYTES);
        must(piece != NULL, "malloc");
        for (size_t at = 0; at < PIECE_BYTES; at += 4096) {
            ((_Atomic unsigned char *)piece)[at] = 1;
        }
    }
    must(weft_barrier(comm, NULL) == WEFT_ERR_PEER, "the barrier");
    printf("rank %d: %s\n", weft_comm_get_rank(comm), weft_error_text());
    weft_comm_destroy(comm);
}

#ifdef WITH_MPI
static void run(int *argc, char ***argv)
{
    const bool before = *argc > 1 && strcmp((*argv)[1], "before") == 0;
    int rank, nranks, sum = -1;
    weft_unique_id id;
    weft_comm *own = before ? create(NULL) : NULL;
    MPI_Init(argc, argv);
    own = before ? own : create(NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    must(rank == weft_comm_get_rank(own), "the same rank");
    must(rank != 0 || weft_unique_id_create(&id) == WEFT_OK, "unique id");
    MPI_Bcast(&id, (int)sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
    weft_comm_config config = {.size_bytes = sizeof(config),
                               .id = &id,
                               .rank = rank,
                               .nranks = nranks};
    weft_comm *beside = create(&config);
    for (int round = 0; round < 10; round++) {
        use(own);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        must(sum == nranks * (nranks - 1) / 2, "MPI's sum");
        use(beside);
    }
    weft_comm_destroy(beside);
    MPI_Finalize();
    weft_comm_destroy(own);
    printf("rank %d of %d: ok\n", rank, nranks);
}
#else
static void run(int *argc, char ***argv)
{
    int rank = 0, nranks = 0;
    for (int rounds = *argc > 1 ? atoi((*argv)[1]) : 1; rounds > 0; rounds--) {
        weft_comm *comm = create(NULL);
        rank = weft_comm_get_rank(comm);
        nranks = weft_comm_get_nranks(comm);
        use(comm);
        weft_comm_destroy(comm);
    }
    printf("rank %d of %d: ok\n", rank, nranks);
}
#endif

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "id") == 0) {
        run_by_id(argv[2]);
    } else if (argc == 2 && strcmp(argv[1], "hog") == 0) {
        run_hog();
    } else {
        run(&argc, &argv);
    }
    return 0;
}
