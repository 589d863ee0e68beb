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

/* X(name, bytes, text) */
#define WEFT_DTYPE_LIST(X)                                                     \
    X(U8, 1, "u8")                                                             \
    X(I32, 4, "i32")                                                           \
    X(I64, 8, "i64")                                                           \
    X(BF16, 2, "bf16")                                                         \
    X(F32, 4, "f32")                                                           \
    X(F64, 8, "f64")

typedef enum weft_dtype {
#define WEFT_DTYPE_ENUM(name, bytes, text) WEFT_DTYPE_##name,
    WEFT_DTYPE_LIST(WEFT_DTYPE_ENUM)
#undef WEFT_DTYPE_ENUM
        WEFT_DTYPE_COUNT
} weft_dtype;

/*
 * Reductions. Integers wrap round. MAX of a float is NaN where any input is.
 * AVG is the sum divided by the number of ranks, once, after the last
 * addition: floats round to nearest, integers truncate towards zero.
 */
/* X(name, text) */
#define WEFT_REDOP_LIST(X)                                                     \
    X(SUM, "sum")                                                              \
    X(MAX, "max")                                                              \
    X(AVG, "avg")

typedef enum weft_redop {
#define WEFT_REDOP_ENUM(name, text) WEFT_REDOP_##name,
    WEFT_REDOP_LIST(WEFT_REDOP_ENUM)
#undef WEFT_REDOP_ENUM
        WEFT_REDOP_COUNT
} weft_redop;

/* X(name, text) */
#define WEFT_COLLECTIVE_LIST(X)                                                \
    X(BARRIER, "barrier")                                                      \
    X(ALLREDUCE, "all_reduce")                                                 \
    X(REDUCE, "reduce")                                                        \
    X(ALLGATHER, "all_gather")                                                 \
    X(REDUCESCATTER, "reduce_scatter")                                         \
    X(BROADCAST, "broadcast")                                                  \
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
 * weft_dtype_bytes, _text - size of one element, and the short names.
 *
 * Returns     0 or "?" for a value outside its enum.
 * Threads     any.  Blocks: no.  Allocates: no.
 */
size_t weft_dtype_bytes(weft_dtype dtype);
const char *weft_dtype_text(weft_dtype dtype);
const char *weft_redop_text(weft_redop redop);
const char *weft_collective_text(weft_collective collective);
const char *weft_class_text(weft_class class_id);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
