/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/real.h - the number type that the kernels are written over.
 *
 * float for training; double where WEFT_REAL_F64 is defined, for tests that
 * need more digits than float has. The two builds have the same names, so a
 * program links one of them: weft_math or weft_math_f64, never both.
 */
#ifndef KERNELS_MATH_REAL_H
#define KERNELS_MATH_REAL_H

#include "weft/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef WEFT_REAL_F64
typedef double real;
#define WEFTI_REAL_NAME    "f64"
#define WEFTI_REAL_DTYPE   WEFT_DTYPE_F64
#define WEFTI_REAL_EPSILON 2.220446049250313e-16
#else
typedef float real;
#define WEFTI_REAL_NAME    "f32"
#define WEFTI_REAL_DTYPE   WEFT_DTYPE_F32
#define WEFTI_REAL_EPSILON 1.1920929e-7f
#endif

/* A constant of type real. */
#define WEFTI_REAL(value) ((real)(value))

#endif
