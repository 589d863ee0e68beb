/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/kernels/math_check.h - inputs, poison and comparisons for the tests of
 * kernels/math. Every test runs at every level of the processor.
 */
#ifndef TESTS_KERNELS_MATH_CHECK_H
#define TESTS_KERNELS_MATH_CHECK_H

#include "kernels/math/math_table.h"
#include "tests/seed.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The tolerance of this build, of the two that a test states. */
#ifdef WEFT_REAL_F64
#define TOLERANCE(f32, f64) (f64)
#else
#define TOLERANCE(f32, f64) (f32)
#endif

#define FOR_EACH_LEVEL(math)                                                   \
    for (size_t level_ = 0; ((math) = wefti_math_at(level_)) != NULL; level_++)

typedef struct check_random {
    uint64_t state;
} check_random;

static inline check_random check_seed(void)
{
    return (check_random){random_seed()};
}

static inline uint64_t check_bits(check_random *random)
{
    return random_next(&random->state);
}

static inline double check_uniform(check_random *random, double low,
                                   double high)
{
    return low + (high - low) * ((double)(check_bits(random) >> 11) * 0x1p-53);
}

/* elems reals, all NaN: what a kernel forgets to write stays visible. */
static inline real *check_poison(real *to, size_t elems)
{
    for (size_t i = 0; i < elems; i++)
        to[i] = (real)NAN;
    return to;
}

/* elems reals, one guard after them, freed by the caller; poisoned. */
static inline real *check_alloc(size_t elems)
{
    real *made = malloc((elems + 1) * sizeof(real));

    assert_non_null(made);
    return check_poison(made, elems + 1);
}

static inline real *check_alloc_random(check_random *random, size_t elems,
                                       double size)
{
    real *made = check_alloc(elems);

    for (size_t i = 0; i < elems; i++)
        made[i] = (real)check_uniform(random, -size, size);
    return made;
}

static inline real *check_alloc_copy(const real *from, size_t elems)
{
    real *made = check_alloc(elems);

    memcpy(made, from, elems * sizeof(real));
    return made;
}

/* Fails unless |got - want| <= limit; NaN never passes. */
#define check_near(got, want, limit, what, index)                              \
    do {                                                                       \
        double got_ = (double)(got), want_ = (double)(want);                   \
        double limit_ = (double)(limit);                                       \
                                                                               \
        if (!(fabs(got_ - want_) <= limit_))                                   \
            fail_msg("%s[%zu] = %.17g, want %.17g +- %.3g", what,              \
                     (size_t)(index), got_, want_, limit_);                    \
    } while (0)

/* Every element within absolute + relative |want|. */
static inline void check_all_near(const real *got, const double *want,
                                  size_t elems, double absolute,
                                  double relative, const char *what)
{
    for (size_t i = 0; i < elems; i++)
        check_near(got[i], want[i], absolute + relative * fabs(want[i]), what,
                   i);
}

#define check_same_bits(a, b, elems)                                           \
    assert_memory_equal(a, b, (elems) * sizeof(real))

#endif
