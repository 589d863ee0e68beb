/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/perf/started_run.h - weft-run as a process of its own, and what it
 * writes. Every run has a deadline. Asserts that it starts and is read.
 */
#ifndef TESTS_PERF_STARTED_RUN_H
#define TESTS_PERF_STARTED_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { RUN_OUTPUT_BYTES = 65536 };

typedef struct run {
    pid_t pid;
    int fds[2]; /* stdout, stderr */
    char out[RUN_OUTPUT_BYTES], err[RUN_OUTPUT_BYTES];
    size_t out_bytes, err_bytes;
    int status; /* of waitpid */
} run;

#define RUN_ARGS(...) ((const char *[]){__VA_ARGS__, NULL})

/* Arguments after weft-run's own name, NULL at the end. */
void run_start(run *r, const char *const *args);

/* Reads both streams until text has come often enough, or they end. */
bool run_read_until(run *r, const char *text, int times);

/* Its exit status, or 1000 + the signal that ended it. */
int run_end(run *r);

int run_all(run *r, const char *const *args); /* start and end */

void assert_last_line(const run *r, const char *expected);

#endif
