/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/failing_calls.h - let one call of the C library or the kernel
 * fail: the next one of a rank that no earlier run has failed. Repeated until a
 * run reaches nothing new, each call fails once.
 *
 * The linker puts these calls of weft and of the test in place of the real ones
 * (--wrap, tests/comm/CMakeLists.txt). They fail only in threads that are armed
 * and in those that these start. What has failed is kept in memory that forked
 * processes share.
 */
#ifndef TESTS_COMM_FAILING_CALLS_H
#define TESTS_COMM_FAILING_CALLS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * EACH_SITE   a call is known by the place in the code that makes it
 * EACH_CALL   and by how often that place has been passed in this run
 */
typedef enum failing_calls_mode {
    FAILING_EACH_SITE,
    FAILING_EACH_CALL
} failing_calls_mode;

/* Forgets what has failed. Before processes are forked. */
void failing_calls_open(failing_calls_mode mode);

/* From here on, at most one call fails. */
void failing_calls_begin_run(void);

/* This thread is of the rank whose calls fail, or no longer. */
void failing_calls_arm(bool on);

/* What has failed in this run, such as "eventfd"; NULL: nothing. */
const char *failing_calls_get_name(void);

/* Where: for addr2line, relative to where the program is loaded. */
size_t failing_calls_get_place(void);

/* How many calls have been failed in all runs since open. */
int failing_calls_count(void);

#endif
