/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/world.h - run one function on every rank of a world, as threads
 * of this process or as processes of their own, sharing memory as
 * tests/comm/spread.h says.
 */
#ifndef TESTS_COMM_WORLD_H
#define TESTS_COMM_WORLD_H

#include "weft/weft.h"

/*
 * One rank's work; returns how many checks failed (up to 63). In a process of
 * its own that is the exit status; a world that could not be created exits
 * with 77.
 */
typedef int (*world_rank_call)(weft_comm *comm, void *context);

/*
 * config's id, rank and nranks are set by the world.
 *
 * before    called on each rank before it creates its communicator; NULL: not.
 * configure may change the rank's config, after before; NULL: not.
 * refused   called instead of call where that failed, with weft_error_text()
 *           saying why; returns failed checks. NULL: counts as a failure.
 */
struct world {
    int nranks;
    weft_comm_config config;
    world_rank_call call;
    void *context;
    int deadline_s; /* 0: 60 */
    void (*before)(int rank, void *context);
    void (*configure)(int rank, weft_comm_config *config, void *context);
    int (*refused)(int rank, weft_status status, void *context);
    int (*after)(int rank, void *context);
};

/* The sum of all ranks' failures; a rank that could not start counts one. */
int world_run_threads(const struct world *world);

/* The same with processes; the caller must not have threads. */
int world_run_processes(const struct world *world);

/* The same, but a signal ends rank killed while it runs; -1: none. */
int world_run_killed(const struct world *world, int killed);

/* "threads", "processes", or threads on a device of that kind, which is the
 * config's and which context then points to (a weft_device *; else NULL). */
int world_run_as(const char *mode, int nranks, world_rank_call call);

/* Another job of comm's ranks, whose calls match; NULL: it failed. The caller
 * destroys it. */
weft_comm *world_create_another(weft_comm *comm, const char *name);

/*
 * For tests that do things to ranks: starts the processes and returns; finish
 * waits for them until the deadline and kills what is left (each one counts).
 * exit_status[rank] as from waitpid.
 */
typedef struct world_processes {
    int nranks;
    int pids[64];
    int exit_status[64];
} world_processes;

void world_start_processes(const struct world *world, world_processes *started);
int world_finish_processes(world_processes *started, int deadline_s);

/* Waits likewise for the ranks whose pid is not 0; counts only the late. */
int world_finish_survivors(world_processes *started, int deadline_s);

#endif
