/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/rank_checks.h - checks within ranks, which may be threads or
 * processes: each returns 1 if it has failed, and then says what it has found.
 */
#ifndef TESTS_COMM_RANK_CHECKS_H
#define TESTS_COMM_RANK_CHECKS_H

#include "weft/weft.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static inline int check(bool right, const char *what, int line)
{
    if (!right) {
        fprintf(stderr, "line %d: %s (%s)\n", line, what, weft_error_text());
    }
    return !right;
}
#define CHECK(condition) check(condition, #condition, __LINE__)

/* The status, and of what is refused a text that holds this one; NULL: any. */
static inline int expect(weft_status status, weft_status wanted,
                         const char *text)
{
    const bool right = status == wanted && (status == WEFT_OK || !text ||
                                            strstr(weft_error_text(), text));
    if (!right) {
        fprintf(stderr, "wanted %s \"%s\", got %s: %s\n",
                weft_status_text(wanted), text ? text : "",
                weft_status_text(status), weft_error_text());
    }
    return !right;
}

static inline int refused(weft_status status, const char *text)
{
    return expect(status, WEFT_ERR_INVALID, text);
}

#endif
