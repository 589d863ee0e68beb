/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/check.h - assertions about weft itself; a caller's misuse is a status.
 */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include <assert.h>

/* A broken invariant of weft: dies in debug and sanitizer builds. */
#define WEFTI_ASSERT(condition) assert(condition)

#define WEFTI_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#endif
