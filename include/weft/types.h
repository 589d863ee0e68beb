/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/types.h - element types, reductions and collectives, each once.
 */
#ifndef WEFT_TYPES_H
#define WEFT_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * Element types. The values are those of NCCL's ncclDataType_t.
 *
 *   f16, bf16   IEEE binary16, and the upper half of an f32
 *   f8e4m3      OCP FP8 E4M3: up to 448, no infinity, one NaN of each sign
 *   f8e5m2      OCP FP8 E5M2: up to 57344, infinity and NaN as in f16
 *
 * kind: SIGNED (two's complement), UNSIGNED or FLOAT.
 */
/* X(name, bytes, text, kind) */
#define WEFT_DTYPE_LIST(X)                                                     \
    X(I8, 1, "i8", SIGNED)                                                     \
    X(U8, 1, "u8", UNSIGNED)                                                   \
    X(I32, 4, "i32", SIGNED)                                                   \
    X(U32, 4, "u32", UNSIGNED)                                                 \
    X(I64, 8, "i64", SIGNED)                                                   \
    X(U64, 8, "u64", UNSIGNED)                                                 \
    X(F16, 2, "f16", FLOAT)                                                    \
    X(F32, 4, "f32", FLOAT)                                                    \
    X(F64, 8, "f64", FLOAT)                                                    \
    X(BF16, 2, "bf16", FLOAT)                                                  \
    X(F8E4M3, 1, "f8e4m3", FLOAT)                                              \
    X(F8E5M2, 1, "f8e5m2", FLOAT)

typedef enum weft_dtype {
#define WEFT_DTYPE_ENUM(name, bytes, text, kind) WEFT_DTYPE_##name,
    WEFT_DTYPE_LIST(WEFT_DTYPE_ENUM)
#undef WEFT_DTYPE_ENUM
        WEFT_DTYPE_COUNT
} weft_dtype;

/* What an element type is made of. */
typedef enum weft_kind {
    WEFT_KIND_SIGNED,
    WEFT_KIND_UNSIGNED,
    WEFT_KIND_FLOAT
} weft_kind;

/*
 * Reductions over the ranks. The first five values are those of NCCL's
 * ncclRedOp_t.
 *
 * "Wide" is f32 for floats narrower than that, else the type itself. Whatever
 * the reduction, a float is narrowed once, after the last step of each level
 * (weft/op.h), to nearest with ties to even; and a NaN result is always the
 * canonical one (positive, quiet, no payload), so that results have the same
 * bits everywhere.
 *
 *   sum       added in the wide type, down one tree over the ranks, or one for
 *             each host and one over the hosts (weft/op.h). Integers wrap round
 *             modulo 2^bits, signed ones as well.
 *   prod      multiplied likewise.
 *   min, max  one of the inputs. NaN where any input is NaN. -0 counts as less
 *             than +0, so the order of the ranks does not matter.
 *   avg       the sum, divided by the number of ranks. Floats: the wide sum,
 *             one division in the wide type (f32, or f64 for f64), narrowed;
 *             with two levels that of each host, and then their sum.
 *             Integers: the sum as it stands in the type, so wrapped round if
 *             it did not fit, divided with truncation towards zero; unsigned
 *             types divide as unsigned ones.
 *   premulsum the sum of products: each rank gives a scalar of its own
 *             (weft_op.scale), every element is multiplied by it and the
 *             product rounded to the type (integers wrap), and these are
 *             summed as above.
 *   band, bor, bxor
 *             bit by bit; integers only, floats are refused with ERR_INVALID.
 *
 * weft/redop.h adds a program's own.
 *
 * What is too large for a float becomes infinity; in f8e4m3, which has none,
 * it becomes NaN (the non-saturating conversion of the OCP specification): an
 * overflow stays visible. The limits, after the wide result has been rounded:
 * beyond 65504 in f16, 57344 in f8e5m2, 448 in f8e4m3.
 *
 * Source: IEEE 754-2019; OCP 8-bit Floating Point Specification 1.0.
 */
/* X(name, text) */
#define WEFT_REDOP_LIST(X)                                                     \
    X(SUM, "sum")                                                              \
    X(PROD, "prod")                                                            \
    X(MAX, "max")                                                              \
    X(MIN, "min")                                                              \
    X(AVG, "avg")                                                              \
    X(PREMULSUM, "premulsum")                                                  \
    X(BAND, "band")                                                            \
    X(BOR, "bor")                                                              \
    X(BXOR, "bxor")

typedef enum weft_redop {
#define WEFT_REDOP_ENUM(name, text) WEFT_REDOP_##name,
    WEFT_REDOP_LIST(WEFT_REDOP_ENUM)
#undef WEFT_REDOP_ENUM
        WEFT_REDOP_COUNT,
    /* A program's own (weft/redop.h) are from USER to below USER_END. */
    WEFT_REDOP_USER = 64,
    WEFT_REDOP_USER_END = 128
} weft_redop;

/*
 * What an operation does; weft/op.h says it for each.
 */
/* X(name, text) */
#define WEFT_COLLECTIVE_LIST(X)                                                \
    X(BARRIER, "barrier")                                                      \
    X(ALLREDUCE, "all_reduce")                                                 \
    X(REDUCE, "reduce")                                                        \
    X(ALLGATHER, "all_gather")                                                 \
    X(REDUCESCATTER, "reduce_scatter")                                         \
    X(BROADCAST, "broadcast")                                                  \
    X(ALLTOALL, "alltoall")                                                    \
    X(ALLTOALLV, "alltoallv")                                                  \
    X(GATHER, "gather")                                                        \
    X(GATHERV, "gatherv")                                                      \
    X(SCATTER, "scatter")                                                      \
    X(SCATTERV, "scatterv")                                                    \
    X(ALLGATHERV, "all_gatherv")                                               \
    X(REDUCESCATTERV, "reduce_scatterv")                                       \
    X(SEND, "send")                                                            \
    X(RECV, "recv")

typedef enum weft_collective {
#define WEFT_COLLECTIVE_ENUM(name, text) WEFT_COLLECTIVE_##name,
    WEFT_COLLECTIVE_LIST(WEFT_COLLECTIVE_ENUM)
#undef WEFT_COLLECTIVE_ENUM
        WEFT_COLLECTIVE_COUNT
} weft_collective;

/*
 * Ledger classes: what a span of work or an operation is for. COMPUTE is only
 * for spans; operations carry one of the others.
 */
/* X(name, text) */
#define WEFT_CLASS_LIST(X)                                                     \
    X(COMPUTE, "compute")                                                      \
    X(TP, "tp")                                                                \
    X(CP, "cp")                                                                \
    X(EP, "ep")                                                                \
    X(PP, "pp")                                                                \
    X(DP, "dp")                                                                \
    X(MEM, "mem")

typedef enum weft_class {
#define WEFT_CLASS_ENUM(name, text) WEFT_CLASS_##name,
    WEFT_CLASS_LIST(WEFT_CLASS_ENUM)
#undef WEFT_CLASS_ENUM
        WEFT_CLASS_COUNT
} weft_class;

/*
 * weft_dtype_bytes     how large one element is.
 * weft_dtype_kind      SIGNED, UNSIGNED or FLOAT.
 * weft_redop_applies   1 where the reduction is defined for the type, else 0,
 *                      as it is for a program's own.
 * weft_dtype_text, weft_redop_text, weft_collective_text, weft_class_text
 *                      the short name, as in the lists above.
 *
 * Returns     0, FLOAT or "?" for a value outside its enum.
 * Threads     any.  Blocks: no.  Allocates: no.
 */
size_t weft_dtype_bytes(weft_dtype dtype);
weft_kind weft_dtype_kind(weft_dtype dtype);
int weft_redop_applies(weft_redop redop, weft_dtype dtype);
const char *weft_dtype_text(weft_dtype dtype);
const char *weft_redop_text(weft_redop redop);
const char *weft_collective_text(weft_collective collective);
const char *weft_class_text(weft_class class_id);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
