/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_program.h - a module, read and checked: functions, variables,
 * and one array of decoded instructions, in which a place is a number.
 *
 * Each register has a slot. Those of functions that are called come first, then
 * those of a kernel, which starts anew: only one kernel runs at a time, and a
 * function that is under way can not be called again.
 */
#ifndef TESTS_PTX_PTX_PROGRAM_H
#define TESTS_PTX_PTX_PROGRAM_H

#include "tests/ptx/ptx.h"

/* X(enumerator, text, bits, values in it) */
#define PTX_TYPES(X)                                                           \
    X(NO_TYPE, "", 0, 0)                                                       \
    X(PRED, "pred", 1, 1)                                                      \
    X(B8, "b8", 8, 1)                                                          \
    X(B16, "b16", 16, 1)                                                       \
    X(B32, "b32", 32, 1)                                                       \
    X(B64, "b64", 64, 1)                                                       \
    X(U8, "u8", 8, 1)                                                          \
    X(U16, "u16", 16, 1)                                                       \
    X(U32, "u32", 32, 1)                                                       \
    X(U64, "u64", 64, 1)                                                       \
    X(S8, "s8", 8, 1)                                                          \
    X(S16, "s16", 16, 1)                                                       \
    X(S32, "s32", 32, 1)                                                       \
    X(S64, "s64", 64, 1)                                                       \
    X(F16, "f16", 16, 1)                                                       \
    X(BF16, "bf16", 16, 1)                                                     \
    X(F16X2, "f16x2", 32, 2)                                                   \
    X(BF16X2, "bf16x2", 32, 2)                                                 \
    X(E4M3X2, "e4m3x2", 16, 2)                                                 \
    X(E5M2X2, "e5m2x2", 16, 2)                                                 \
    X(TF32, "tf32", 32, 1)                                                     \
    X(F32, "f32", 32, 1)                                                       \
    X(F64, "f64", 64, 1)

typedef enum ptx_type {
#define PTX_ENUM(name, text, bits, values) PTX_##name,
    PTX_TYPES(PTX_ENUM)
#undef PTX_ENUM
        PTX_TYPE_COUNT
} ptx_type;

unsigned ptx_type_bits(ptx_type type);
unsigned ptx_type_values(ptx_type type);
bool ptx_type_is_signed(ptx_type type);
bool ptx_type_is_real(ptx_type type);
/* NO_TYPE where there is none of that name. */
ptx_type ptx_type_find(const char *text, size_t bytes);

typedef enum ptx_space {
    PTX_GENERIC,
    PTX_GLOBAL,
    PTX_SHARED,
    PTX_LOCAL,
    PTX_PARAM,
    PTX_CONST
} ptx_space;

/* Where things lie in their spaces. A generic address that is not one of the
 * host's has the space in its highest bits. */
enum {
    PTX_SHARED_BEGIN = 0x400, /* nothing is at 0 */
    PTX_SHARED_DYNAMIC = 0x1000000,
    PTX_PARAM_BEGIN = 0x100,       /* a kernel's arguments */
    PTX_PRIVATE_BEGIN = 0x2000000, /* .local, and .param in functions */
    PTX_CONST_BEGIN = 0x100,
    PTX_SPACE_SHIFT = 60,
    PTX_GAP_BYTES = 32 /* between two variables */
};

typedef enum ptx_operand_kind {
    PTX_SINK, /* _ */
    PTX_REGISTER,
    PTX_VALUE,
    PTX_SPECIAL
} ptx_operand_kind;

typedef enum ptx_special {
    PTX_TID, /* x, y, z, as the next three */
    PTX_NTID = PTX_TID + 3,
    PTX_CTAID = PTX_NTID + 3,
    PTX_NCTAID = PTX_CTAID + 3,
    PTX_LANEID = PTX_NCTAID + 3,
    PTX_WARPID,
    PTX_NWARPID,
    PTX_LANEMASK_EQ,
    PTX_LANEMASK_LE,
    PTX_LANEMASK_LT,
    PTX_LANEMASK_GE,
    PTX_LANEMASK_GT,
    PTX_SMID,
    PTX_NSMID,
    PTX_CLOCK, /* steps so far */
    PTX_DYNAMIC_SMEM_SIZE
} ptx_special;

typedef struct ptx_operand {
    uint8_t kind;
    bool negated;  /* a predicate, ! */
    uint8_t bits;  /* of the register */
    uint32_t slot; /* or number of a special register */
    uint64_t value;
} ptx_operand;

enum { PTX_OPERANDS = 8, PTX_FIELDS = 6 };

/* What modifiers choose; each group of words sets one (ptx_words.c). */
typedef enum ptx_field {
    PTX_ROUND,
    PTX_COMPARE,
    PTX_OPERATION,
    PTX_SPACE,
    PTX_VECTOR,
    PTX_FLAGS
} ptx_field;

enum {
    PTX_FTZ = 1,
    PTX_SAT = 2,
    PTX_NAN = 4,
    PTX_RELU = 8,
    PTX_CLAMP = 16,
    PTX_ORDERS = 32 /* acquires, releases or is volatile */
};

typedef enum ptx_round {
    PTX_NEAREST, /* even */
    PTX_TO_ZERO,
    PTX_DOWN,
    PTX_UP,
    PTX_AWAY /* nearest, ties away from zero */
} ptx_round;

typedef struct ptx_instruction {
    const struct ptx_row *row; /* what it is (ptx_row.h) */
    const char *text;          /* as it stands in the module, to the ; */
    int text_bytes, line;
    uint8_t type, from; /* ptx_type; from: the second one */
    uint8_t fields[PTX_FIELDS];
    uint8_t results, sources; /* the results stand first in operands */
    bool guarded;
    ptx_operand guard;
    ptx_operand operands[PTX_OPERANDS];
    int64_t offset;  /* in an address */
    uint32_t target; /* place, function, table of places, by row */
} ptx_instruction;

typedef struct ptx_variable {
    const char *name; /* in the text, not ended */
    size_t name_bytes, bytes;
    ptx_space space;
    uint64_t address; /* in its space; of .global: the host's */
    uint32_t owner;   /* function, or PTX_NOWHERE */
    unsigned depth;   /* of braces around it */
} ptx_variable;

#define PTX_NOWHERE UINT32_MAX

typedef struct ptx_function {
    char *name;
    bool is_kernel, defined;
    uint32_t begin, end;          /* places */
    uint32_t slots;               /* registers of its own */
    uint32_t first_param, params; /* variables: results, then parameters */
    uint32_t results;             /* how many of those are results */
    size_t param_bytes;           /* of a kernel, from PTX_PARAM_BEGIN */
    unsigned threads_max, threads_exact[3];
} ptx_function;

/* A call's arguments: variables of the caller, results first. */
typedef struct ptx_call {
    uint32_t function, count, variables[16];
} ptx_call;

/* The targets of a brx.idx. */
typedef struct ptx_table {
    uint32_t first, count; /* in places */
} ptx_table;

#define PTX_ARRAY(type)                                                        \
    struct {                                                                   \
        type *at;                                                              \
        uint32_t count, room;                                                  \
    }

struct ptx_program {
    char *name, *text;
    PTX_ARRAY(ptx_instruction) code;
    PTX_ARRAY(ptx_function) functions;
    PTX_ARRAY(ptx_variable) variables;
    PTX_ARRAY(ptx_call) calls;
    PTX_ARRAY(ptx_table) tables;
    PTX_ARRAY(uint32_t) places;
    uint32_t called_slots; /* registers of all functions that are called */
    size_t shared_bytes, private_bytes, const_bytes;
    unsigned char *const_data;
    PTX_ARRAY(void *) globals; /* memory of .global variables */
};

/* Adds one to a PTX_ARRAY, zeroed, and gives its address. */
#define PTX_ADD(array)                                                         \
    ((array).at = ptx_array_grow((array).at, (array).count, &(array).room,     \
                                 sizeof(*(array).at)),                         \
     &(array).at[(array).count++])
void *ptx_array_grow(void *at, uint32_t count, uint32_t *room,
                     size_t elem_bytes);

#endif
