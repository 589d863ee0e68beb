/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_row.h - what an instruction may look like, and what runs it.
 *
 * pattern   its words: ".x?" may be left out; GROUP stands for one word of a
 *           group (ptx_words.c), lower case for itself. The first type that
 *           stands there is the instruction's type, the second one is `from`.
 * operands  a letter each:
 *             d D r w   register written: of the type's size, twice that, 32
 *                       bits, at least the type's size
 *             p q       predicate written; q: perhaps a second one, its inverse
 *             e         d, and perhaps a predicate
 *             a A C     read: of the type, of `from`, of twice the type's size
 *             u U       read: 32 bits, 64 bits
 *             s         read: `from`, in a register as large or larger
 *             P         predicate read
 *             W X       written, read: as many as the vector has, in registers
 *                       as large or larger
 *             m         address
 *             n         both operands of mov
 *             l t f     label, table of labels, function with its arguments
 *             B         a barrier and perhaps a number of threads
 * alu       one lane's result out of its sources; NULL: run.
 * run       all lanes; false after a fault.
 */
#ifndef TESTS_PTX_PTX_ROW_H
#define TESTS_PTX_PTX_ROW_H

#include "tests/ptx/ptx_program.h"

typedef struct ptx_warp ptx_warp;

typedef uint64_t (*ptx_alu)(const ptx_instruction *now, const uint64_t *s);
typedef bool (*ptx_run)(ptx_warp *warp, const ptx_instruction *now,
                        uint32_t lanes);

typedef struct ptx_row {
    const char *pattern, *operands;
    ptx_alu alu;
    ptx_run run;
    int operation; /* what alu and run tell rows apart by */
    bool moves;    /* sets where its lanes go on, or that they wait */
} ptx_row;

extern const ptx_row ptx_rows[];

/* What a word chooses. A group: its name; a flag: the word itself. */
typedef struct ptx_word {
    const char *group, *text;
    ptx_field field;
    uint8_t value;
} ptx_word;

/* The word of that group, or NULL. */
const ptx_word *ptx_word_find(const char *group, size_t group_bytes,
                              const char *text, size_t bytes);

/* The types of a group, one bit each; 0: no such group. */
uint32_t ptx_word_types(const char *group, size_t group_bytes);

typedef enum ptx_compare {
    PTX_EQ,
    PTX_NE,
    PTX_LT,
    PTX_LE,
    PTX_GT,
    PTX_GE,
    PTX_EQU, /* or not a number, as those behind it */
    PTX_NEU,
    PTX_LTU,
    PTX_LEU,
    PTX_GTU,
    PTX_GEU,
    PTX_NUM,
    PTX_IS_NAN,
    PTX_LO, /* unsigned, as those behind it */
    PTX_LS,
    PTX_HI,
    PTX_HS
} ptx_compare;

/* Integers, bits and reals that several files know. */
typedef enum ptx_operation {
    PTX_ADD,
    PTX_SUB,
    PTX_MUL,
    PTX_MUL_HI,
    PTX_MUL_WIDE,
    PTX_FMA,
    PTX_DIV,
    PTX_REM,
    PTX_MIN,
    PTX_MAX,
    PTX_ABS,
    PTX_NEG,
    PTX_AND,
    PTX_OR,
    PTX_XOR,
    PTX_NOT,
    PTX_INC,
    PTX_DEC,
    PTX_EXCH,
    PTX_CAS,
    PTX_RCP,
    PTX_SQRT,
    PTX_RSQRT,
    PTX_EX2,
    PTX_LG2,
    PTX_SIN,
    PTX_COS,
    PTX_TANH,
    PTX_COPYSIGN,
    PTX_POPC,
    PTX_ANY,
    PTX_ALL,
    PTX_UNI,
    PTX_BALLOT,
    PTX_INDEX,
    PTX_LANE_UP,
    PTX_LANE_DOWN,
    PTX_BUTTERFLY,
    PTX_WAIT,
    PTX_ARRIVE
} ptx_operation;

/* Operations on values of a type; the bits above it are zero. */
uint64_t ptx_alu_integer(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_saturated(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_mad(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_bits(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_lop3(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_shl(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_shr(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_shf(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_prmt(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_bfe(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_bfi(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_popc(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_clz(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_bfind(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_brev(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_slct(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_real(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_testp(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_convert(const ptx_instruction *now, const uint64_t *s);
uint64_t ptx_alu_convert_two(const ptx_instruction *now, const uint64_t *s);

bool ptx_compare_values(ptx_compare how, ptx_type type, bool flush, uint64_t a,
                        uint64_t b);
/* One of PTX_ADD .. PTX_XOR, PTX_INC .. on integers or reals, as atomics do. */
uint64_t ptx_combine(ptx_operation operation, ptx_type type, uint64_t old,
                     uint64_t value);

bool ptx_run_setp(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes);
bool ptx_run_selp(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes);
bool ptx_run_mov(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes);
bool ptx_run_divide(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes);
bool ptx_run_load(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes);
bool ptx_run_store(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes);
bool ptx_run_atomic(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes);
bool ptx_run_fence(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes);
bool ptx_run_cvta(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes);
bool ptx_run_isspacep(ptx_warp *warp, const ptx_instruction *now,
                      uint32_t lanes);
bool ptx_run_branch(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes);
bool ptx_run_branch_table(ptx_warp *warp, const ptx_instruction *now,
                          uint32_t lanes);
bool ptx_run_call(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes);
bool ptx_run_return(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes);
bool ptx_run_exit(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes);
bool ptx_run_trap(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes);
bool ptx_run_members(ptx_warp *warp, const ptx_instruction *now,
                     uint32_t lanes);
bool ptx_run_activemask(ptx_warp *warp, const ptx_instruction *now,
                        uint32_t lanes);
bool ptx_run_barrier(ptx_warp *warp, const ptx_instruction *now,
                     uint32_t lanes);

#endif
