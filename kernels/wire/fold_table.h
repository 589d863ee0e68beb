/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/fold_table.h - all loops of one instruction set and their table;
 * included by one source file per level, which defines FOLD_LEVEL (the table),
 * FOLD_LEVEL_NAME and FOLD_LEVEL_RUNS (whether this processor has it).
 *
 * A NaN result is always the one canonical quiet NaN: which operand's payload
 * an addition keeps is the processor's and the compiler's choice, and results
 * must have the same bits everywhere.
 */
#include "kernels/wire/fold_level.h"

#include <string.h>

/* Element i depends on element i of the sources only, though dst may be one
 * of them: without this the in-place case runs scalar. */
#ifdef __clang__
#define FOLD_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define FOLD_INDEPENDENT _Pragma("GCC ivdep")
#endif

enum {
    FOLD_STRAIGHT_MOST = 4,
    FOLD_BLOCK_BYTES = 4096 /* some of them fit the first-level cache */
};

/* Where the tree over count >= 2 sources splits: largest power of two below. */
static inline size_t split(size_t count)
{
    return (size_t)1 << (63 - __builtin_clzll(count - 1));
}

/* Buffers have any alignment. */
typedef uint8_t u8_memory __attribute__((aligned(1), may_alias));
typedef int32_t i32_memory __attribute__((aligned(1), may_alias));
typedef int64_t i64_memory __attribute__((aligned(1), may_alias));
typedef uint16_t bf16_memory __attribute__((aligned(1), may_alias));
typedef float f32_memory __attribute__((aligned(1), may_alias));
typedef double f64_memory __attribute__((aligned(1), may_alias));

static inline uint8_t u8_sum(uint8_t a, uint8_t b)
{
    return (uint8_t)(a + b);
}

static inline int32_t i32_sum(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b); /* wraps, as promised */
}

static inline int64_t i64_sum(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

/* The larger; NaN if either is; of two zeros the second. */
static inline float f32_max(float a, float b)
{
    return a > b || a != a ? a : b;
}

static inline double f64_max(double a, double b)
{
    return a > b || a != a ? a : b;
}

static inline float f32_done(float x)
{
    return x != x ? __builtin_nanf("") : x;
}

static inline double f64_done(double x)
{
    return x != x ? __builtin_nan("") : x;
}

static inline float bf16_load(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* To nearest, ties to even. */
static inline uint16_t bf16_done(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    uint32_t rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
    return (uint16_t)(x != x ? 0x7fc0U : rounded);
}

#define FOLD_PLUS(a, b)   ((a) + (b))
#define FOLD_LARGER(a, b) ((a) > (b) ? (a) : (b))

#define FOLD_ELEM        u8_memory
#define FOLD_WIDE        uint8_t
#define FOLD_WIDE_MEMORY u8_memory
#define FOLD_LOAD(x)     (x)

#define FOLD_NAME(verb) u8_sum_##verb
#define FOLD_JOIN(a, b) u8_sum(a, b)
#define FOLD_DONE(x, n) (x)
#include "kernels/wire/fold_body.h"

#define FOLD_NAME(verb) u8_max_##verb
#define FOLD_JOIN(a, b) FOLD_LARGER(a, b)
#define FOLD_DONE(x, n) (x)
#include "kernels/wire/fold_body.h"

#define FOLD_NAME(verb) u8_avg_##verb
#define FOLD_JOIN(a, b) u8_sum(a, b)
#define FOLD_DONE(x, n) (uint8_t)((x) / (n))
#include "kernels/wire/fold_body.h"

#undef FOLD_ELEM
#undef FOLD_WIDE
#undef FOLD_WIDE_MEMORY
#define FOLD_ELEM        i32_memory
#define FOLD_WIDE        int32_t
#define FOLD_WIDE_MEMORY i32_memory

#define FOLD_NAME(verb) i32_sum_##verb
#define FOLD_JOIN(a, b) i32_sum(a, b)
#define FOLD_DONE(x, n) (x)
#include "kernels/wire/fold_body.h"

#define FOLD_NAME(verb) i32_max_##verb
#define FOLD_JOIN(a, b) FOLD_LARGER(a, b)
#define FOLD_DONE(x, n) (x)
#include "kernels/wire/fold_body.h"

#define FOLD_NAME(verb) i32_avg_##verb
#define FOLD_JOIN(a, b) i32_sum(a, b)
#define FOLD_DONE(x, n) (int32_t)((x) / (int64_t)(n))
#include "kernels/wire/fold_body.h"

#undef FOLD_ELEM
#undef FOLD_WIDE
#undef FOLD_WIDE_MEMORY
#define FOLD_ELEM        i64_memory
#define FOLD_WIDE        int64_t
#define FOLD_WIDE_MEMORY i64_memory

#define FOLD_NAME(verb) i64_sum_##verb
#define FOLD_JOIN(a, b) i64_sum(a, b)
#define FOLD_DONE(x, n) (x)
#include "kernels/wire/fold_body.h"

#define FOLD_NAME(verb) i64_max_##verb
#define FOLD_JOIN(a, b) FOLD_LARGER(a, b)
#define FOLD_DONE(x, n) (x)
#include "kernels/wire/fold_body.h"

#define FOLD_NAME(verb) i64_avg_##verb
#define FOLD_JOIN(a, b) i64_sum(a, b)
#define FOLD_DONE(x, n) ((x) / (int64_t)(n))
#include "kernels/wire/fold_body.h"

#undef FOLD_ELEM
#undef FOLD_WIDE
#undef FOLD_WIDE_MEMORY
#define FOLD_ELEM        f32_memory
#define FOLD_WIDE        float
#define FOLD_WIDE_MEMORY f32_memory

#define FOLD_NAME(verb) f32_sum_##verb
#define FOLD_JOIN(a, b) FOLD_PLUS(a, b)
#define FOLD_DONE(x, n) f32_done(x)
#include "kernels/wire/fold_body.h"

#define FOLD_NAME(verb) f32_max_##verb
#define FOLD_JOIN(a, b) f32_max(a, b)
#define FOLD_DONE(x, n) f32_done(x)
#include "kernels/wire/fold_body.h"

#define FOLD_NAME(verb) f32_avg_##verb
#define FOLD_JOIN(a, b) FOLD_PLUS(a, b)
#define FOLD_DONE(x, n) f32_done((x) / (float)(n))
#include "kernels/wire/fold_body.h"

#undef FOLD_ELEM
#undef FOLD_WIDE
#undef FOLD_WIDE_MEMORY
#define FOLD_ELEM        f64_memory
#define FOLD_WIDE        double
#define FOLD_WIDE_MEMORY f64_memory

#define FOLD_NAME(verb) f64_sum_##verb
#define FOLD_JOIN(a, b) FOLD_PLUS(a, b)
#define FOLD_DONE(x, n) f64_done(x)
#include "kernels/wire/fold_body.h"

#define FOLD_NAME(verb) f64_max_##verb
#define FOLD_JOIN(a, b) f64_max(a, b)
#define FOLD_DONE(x, n) f64_done(x)
#include "kernels/wire/fold_body.h"

#define FOLD_NAME(verb) f64_avg_##verb
#define FOLD_JOIN(a, b) FOLD_PLUS(a, b)
#define FOLD_DONE(x, n) f64_done((x) / (double)(n))
#include "kernels/wire/fold_body.h"

#undef FOLD_ELEM
#undef FOLD_WIDE
#undef FOLD_WIDE_MEMORY
#undef FOLD_LOAD
#define FOLD_ELEM        bf16_memory
#define FOLD_WIDE        float
#define FOLD_WIDE_MEMORY f32_memory
#define FOLD_LOAD(x)     bf16_load(x)

#define FOLD_NAME(verb) bf16_sum_##verb
#define FOLD_JOIN(a, b) FOLD_PLUS(a, b)
#define FOLD_DONE(x, n) bf16_done(x)
#include "kernels/wire/fold_body.h"

#define FOLD_NAME(verb) bf16_max_##verb
#define FOLD_JOIN(a, b) f32_max(a, b)
#define FOLD_DONE(x, n) bf16_done(x)
#include "kernels/wire/fold_body.h"

#define FOLD_NAME(verb) bf16_avg_##verb
#define FOLD_JOIN(a, b) FOLD_PLUS(a, b)
#define FOLD_DONE(x, n) bf16_done((x) / (float)(n))
#include "kernels/wire/fold_body.h"

/* Where wide is the type itself, widening copies bytes. */
#define FOLD_WIDEN_SAME(type, bytes)                                           \
    static void type##_widen(void *wide_dst, const void *src, size_t elems)    \
    {                                                                          \
        if (wide_dst != src && elems != 0) {                                   \
            memcpy(wide_dst, src, elems *(bytes));                             \
        }                                                                      \
    }
FOLD_WIDEN_SAME(u8, 1)
FOLD_WIDEN_SAME(i32, 4)
FOLD_WIDEN_SAME(i64, 8)
FOLD_WIDEN_SAME(f32, 4)
FOLD_WIDEN_SAME(f64, 8)

static void bf16_widen(void *wide_dst, const void *src, size_t elems)
{
    f32_memory *dst = wide_dst;
    const bf16_memory *from = src;

    FOLD_INDEPENDENT
    for (size_t i = 0; i < elems; i++) {
        dst[i] = bf16_load(from[i]);
    }
}

#define FOLD_ROW(type, verb)                                                   \
    {                                                                          \
        type##_sum_##verb, type##_max_##verb, type##_avg_##verb                \
    }
#define FOLD_ROWS(verb)                                                        \
    {                                                                          \
        FOLD_ROW(u8, verb), FOLD_ROW(i32, verb), FOLD_ROW(i64, verb),          \
            FOLD_ROW(bf16, verb), FOLD_ROW(f32, verb), FOLD_ROW(f64, verb)     \
    }

static bool runs_here(void)
{
    return FOLD_LEVEL_RUNS;
}

const wefti_fold_level FOLD_LEVEL = {.name = FOLD_LEVEL_NAME,
                                     .runs_here = runs_here,
                                     .fold = FOLD_ROWS(fold),
                                     .narrow = FOLD_ROWS(narrow),
                                     .combine = FOLD_ROWS(combine),
                                     .widen = {u8_widen, i32_widen, i64_widen,
                                               bf16_widen, f32_widen,
                                               f64_widen}};
