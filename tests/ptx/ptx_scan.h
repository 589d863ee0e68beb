/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_scan.h - the words of a PTX text.
 *
 * A name keeps its dots: "ld.global.v2.u32", "%tid.x", ".reg".
 */
#ifndef TESTS_PTX_PTX_SCAN_H
#define TESTS_PTX_PTX_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ptx_token_kind {
    PTX_TOKEN_END,
    PTX_TOKEN_NAME,
    PTX_TOKEN_NUMBER, /* bits, or a real number */
    PTX_TOKEN_STRING,
    PTX_TOKEN_MARK, /* one character */
    PTX_TOKEN_BAD
} ptx_token_kind;

typedef struct ptx_token {
    ptx_token_kind kind;
    const char *at;
    size_t bytes;
    int line;
    uint64_t number;    /* of 0f..., 0d...: the bits */
    double real;        /* of 1.5 and the like */
    unsigned real_bits; /* 32: 0f, 64: 0d, 1: decimal, 0: an integer */
} ptx_token;

typedef struct ptx_scan {
    const char *next;
    int line;
    ptx_token token; /* the one that has not been taken yet */
} ptx_scan;

void ptx_scan_begin(ptx_scan *scan, const char *text);

/* Goes on to the next token. */
void ptx_scan_next(ptx_scan *scan);

bool ptx_token_is(const ptx_token *token, const char *text);

#endif
