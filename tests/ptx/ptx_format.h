/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_format.h - floating-point formats, and rounding to them once
 * from a number of any length.
 */
#ifndef TESTS_PTX_PTX_FORMAT_H
#define TESTS_PTX_PTX_FORMAT_H

#include "tests/ptx/ptx_program.h"

typedef enum ptx_format {
    PTX_FORMAT_F64,
    PTX_FORMAT_F32,
    PTX_FORMAT_F16,
    PTX_FORMAT_BF16,
    PTX_FORMAT_TF32, /* f32 with 10 bits behind the point */
    PTX_FORMAT_E4M3, /* no infinity */
    PTX_FORMAT_E5M2
} ptx_format;

/* The format of a type's value, or of each of its two. */
ptx_format ptx_format_of(ptx_type type);

typedef enum ptx_number_kind {
    PTX_FINITE,
    PTX_INFINITE,
    PTX_NOT_A_NUMBER
} ptx_number_kind;

/* (-1)^negative * whole * 2^exponent. */
typedef struct ptx_number {
    ptx_number_kind kind;
    bool negative;
    uint64_t whole;
    int exponent;
} ptx_number;

ptx_number ptx_format_read(ptx_format format, uint64_t bits);
/* saturate: what is too large becomes the largest finite number. */
uint64_t ptx_format_write(ptx_format format, ptx_number number, ptx_round round,
                          bool saturate);

/* number, rounded to a whole one: its size, at most 2^64 - 1; *over: more. */
uint64_t ptx_format_whole(ptx_number number, ptx_round round, bool *over);

bool ptx_format_is_nan(ptx_format format, uint64_t bits);
bool ptx_format_is_subnormal(ptx_format format, uint64_t bits);
/* The NaN that operations give. */
uint64_t ptx_format_nan(ptx_format format);
unsigned ptx_format_bits(ptx_format format);

double ptx_to_double(ptx_format format, uint64_t bits); /* exact */
uint64_t ptx_double_bits(double value);
double ptx_bits_double(uint64_t bits);

#endif
