/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/launcher.h - what weft-run reports to the bootstrap: which ranks
 * have ended. A rank that ends before it has joined has no connection whose end
 * the others could see.
 *
 * weft-run writes one record for each process into a pipe that rank 0's process
 * inherits (WEFT_LAUNCHER_FD); records are much shorter than what a pipe writes
 * atomically. Once that process has ended weft-run reads it itself
 * (perf/run_stand_in.h).
 */
#ifndef COMM_OOB_LAUNCHER_H
#define COMM_OOB_LAUNCHER_H

#include <stdbool.h>

/* Ranks first .. first + count - 1; wait_status as from waitpid. */
typedef struct wefti_ended {
    int first, count;
    int wait_status;
} wefti_ended;

/* The pipe that this process has inherited; -1: none. Borrowed. */
int wefti_launcher_find(void);

/* The next record; false: there is none now, and *fd is -1 if none will be. */
bool wefti_launcher_next(int *fd, wefti_ended *ended_out);

/* Whether all of it could be written; fd does not block. */
bool wefti_launcher_write(int fd, const wefti_ended *ended);

#endif
