/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/simt/math_run.h - the CUDA kernels of kernels/math on the emulated
 * machine, beside the host's: arrays of a kernel's type, launches of any shape.
 *
 * A test is built twice, as those of the host's kernels are: over float it
 * compares the kernels of f32 and bf16, over double those of f64. Of bf16 the
 * host computes with the rounded inputs, so that only the result's rounding is
 * new.
 */
#ifndef TESTS_SIMT_MATH_RUN_H
#define TESTS_SIMT_MATH_RUN_H

#include "kernels/math/math_launch.h"
#include "tests/kernels/math_check.h"

typedef enum math_kind { MATH_F32, MATH_BF16, MATH_F64 } math_kind;

#ifdef WEFT_REAL_F64
#define FIRST_KIND MATH_F64
#define LAST_KIND  MATH_F64
#elif defined(__SANITIZE_THREAD__)
/* What it looks for is in the kernels of any type alike. */
#define FIRST_KIND MATH_F32
#define LAST_KIND  MATH_F32
#else
#define FIRST_KIND MATH_F32
#define LAST_KIND  MATH_BF16
#endif
#define FOR_EACH_KIND(kind)                                                    \
    for (math_kind kind = FIRST_KIND; kind <= LAST_KIND; kind++)

/* The type of sums of this build: that of host arrays too. */
#define MATH_WIDE FIRST_KIND

/* An array as long as its memory, so that the address sanitizer sees more. */
typedef struct math_array {
    math_kind kind;
    size_t elems;
    void *at;
} math_array;

/* Poisoned: all bits are ones, a NaN. */
math_array math_new(math_kind kind, size_t elems);
math_array math_of(math_kind kind, const real *values, size_t elems);
math_array math_copy(const math_array *from);
/* Each in [-size, size]. */
math_array math_random(check_random *random, math_kind kind, size_t elems,
                       double size);
/* A part of an array, which is not to be freed. */
math_array math_part(const math_array *of, size_t first, size_t elems);
void math_free(math_array *array);

size_t math_bytes(math_kind kind); /* of an element */

double math_value(const math_array *array, size_t i);
/* All of them, exactly, for the host; freed by the caller. */
real *math_values(const math_array *array);

/*
 * Every element within absolute + relative |want| of what the host gave, and
 * half a step of bf16, where that was stored.
 */
void math_all_near(const math_array *got, const real *want, double absolute,
                   double relative, const char *what);
void math_same_bits(const math_array *a, const math_array *b);

/* Runs wefti_math_<op>_<kind> in a shape and an order that are drawn. What the
 * kernel does wrong fails the test. */
void math_launch(const char *op, math_kind kind, const void *args,
                 check_random *random);

/* The same with whole blocks and dynamic shared memory. */
void math_launch_tiled(const char *op, math_kind kind, const void *args,
                       size_t shared_bytes, check_random *random);

#endif
