/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/doors/door_ranks.h - ranks that know nothing of weft but the library in
 * NCCL's place.
 */
#ifndef TESTS_DOORS_DOOR_RANKS_H
#define TESTS_DOORS_DOOR_RANKS_H

#include "doors/nccl/door_abi.h"

#include <stdbool.h>

enum { DOOR_RANKS = 8, DOOR_DEADLINE_S = 90 };

/* One rank's work on a communicator that is there; returns failed checks. */
typedef int (*door_rank_call)(struct ncclComm *comm, int rank, int nranks,
                              void *context);

/* Called by each rank before it makes its communicator; NULL: not. */
extern void (*door_before)(int rank);

/* The communicator is destroyed after the call, unless that has called
 * door_keep_out. */
int door_run_threads(int nranks, door_rank_call call, void *context);
int door_run_processes(int nranks, door_rank_call call, void *context);

/* The same, and a signal ends rank killed while it runs. */
int door_run_killed(int nranks, int killed, door_rank_call call, void *context);

/* This thread's rank will not be destroyed by the runner. */
void door_keep_out(void);

/* Counts a failure and prints the first few; what is evaluated once. */
int door_check(bool good, const char *what, const char *file, int line);

/* Fails the caller's "failures" unless condition holds. */
#define EXPECT(condition)                                                      \
    (failures += door_check((condition), #condition, __FILE__, __LINE__))

/* The call gives that result, and where it is an error a text with that word.
 */
#define EXPECT_RESULT(wanted, call)                                            \
    (failures += door_check_result(WEFTI_DOOR_##wanted, (call), #call,         \
                                   __FILE__, __LINE__))
int door_check_result(int wanted, int got, const char *what, const char *file,
                      int line);

/* Whether ncclGetLastError has it. */
bool door_said(const char *words);

/* Until the communicator is not in progress any more; its result then. */
int door_await(struct ncclComm *comm);

/* A config as the header's initializer makes it. */
wefti_door_config door_config(void);

#endif
