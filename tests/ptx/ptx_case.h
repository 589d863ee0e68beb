/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_case.h - one instruction or a few, run in one thread.
 *
 * The text reads its inputs, up to three, in %h1 to %h3 (16 bits), %r1 to %r3
 * (32), %d1 to %d3 (64) and %p1 to %p3 (whether they are odd), and leaves its
 * result in %h0, %r0, %d0 or %p0. %h4, %r4 .. %r9, %d4 .. %d9 and %p4 are free.
 */
#ifndef TESTS_PTX_PTX_CASE_H
#define TESTS_PTX_PTX_CASE_H

#include <stddef.h>
#include <stdint.h>

typedef struct ptx_case {
    const char *text;
    unsigned bits; /* of the result: 1, 16, 32, 64 */
    uint64_t in[3], expected;
} ptx_case;

/* Runs them all; fails the test at the end if some gave something else. */
void ptx_case_check(const ptx_case *cases, size_t count);

/* The result of one; fails the test if it does not run. */
uint64_t ptx_case_run(const char *text, unsigned bits, const uint64_t *in);

/* Runs one that must stop, with all of these words in the fault. */
void ptx_case_stops(const char *text, const char *first, const char *second);

#endif
