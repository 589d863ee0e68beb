/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/trainer/child.h - jobs in child processes, which may be killed.
 */
#ifndef TESTS_TRAINER_CHILD_H
#define TESTS_TRAINER_CHILD_H

#include "tests/trainer/job.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What an undisturbed run ends with. */
typedef struct ending {
    weft_status status;
    double loss, val_loss;
    uint64_t parameters; /* a hash of their bits */
    size_t steps;        /* run after resuming */
    char error[512];
} ending;

typedef struct child {
    pid_t pid;
    int pipe; /* where its ending comes from */
} child;

/* A job in a child: it may die, and this process must have no threads. */
child child_start(scratch *own, const job *what);

/* Waits for it; false if it was killed before its end. */
bool child_finish(child *process, ending *end_out);

/* A whole job, which must not be killed. */
ending child_run(scratch *own, const job *what);

/* Kills the job after ns, if it has not ended. */
void child_kill_after(scratch *own, const job *what, int64_t ns);

#endif
