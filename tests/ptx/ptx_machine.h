/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_machine.h - one block that runs: its warps, their lanes'
 * registers, and the memory that they may access.
 *
 * A register has for each lane a value, above the register's size zero, and a
 * bit that says whether it is known, as memory has for each byte: what nothing
 * has written is unknown, and so is what has been computed from it. It may be
 * moved about, but not decide where a thread goes or what memory it accesses,
 * nor reach global memory.
 */
#ifndef TESTS_PTX_PTX_MACHINE_H
#define TESTS_PTX_PTX_MACHINE_H

#include "tests/ptx/ptx_row.h"

enum {
    PTX_LANES = 32,
    PTX_BARRIERS = 16,
    PTX_CALLS = 16, /* under way in a thread */
    PTX_THREADS_MAX = 1024,
    PTX_POISON = 0xa5
};

/* Of a byte: part of no variable, not written, written. */
enum { PTX_OUTSIDE, PTX_UNKNOWN, PTX_KNOWN };

/* Who accessed a byte of shared memory, and in which epoch of the block and of
 * its warp; barriers begin a new epoch. */
typedef struct ptx_touch {
    uint32_t epoch, warp_epoch;
    uint16_t thread;
    bool several, several_warps; /* threads, in this epoch */
} ptx_touch;

typedef struct ptx_touches {
    ptx_touch written, read;
} ptx_touches;

/* Memory of one space from `begin` on. */
typedef struct ptx_segment {
    uint64_t begin;
    size_t bytes;
    unsigned char *data;
    unsigned char *states; /* NULL: all is known */
    ptx_touches *touches;  /* of shared memory */
    bool writable;
} ptx_segment;

typedef struct ptx_barrier {
    uint32_t arrived;  /* threads that do not wait */
    uint32_t expected; /* threads; 0: all that have not ended */
} ptx_barrier;

typedef struct ptx_block {
    ptx_program *program;
    const ptx_config *config;
    const ptx_function *kernel;
    const ptx_range *ranges; /* sorted */
    size_t range_count;
    unsigned index[3], threads, warp_count;
    struct ptx_warp *warps;
    ptx_segment shared, dynamic, params, constants;
    ptx_barrier barriers[PTX_BARRIERS];
    uint32_t epoch;
    uint64_t steps;
} ptx_block;

struct ptx_warp {
    ptx_block *block;
    unsigned number;
    /* Each lane of the block is in one of these: */
    uint32_t runs, at_members, at_barrier, ended;
    uint32_t pc[PTX_LANES];
    uint32_t members[PTX_LANES]; /* that it waits for */
    uint8_t barrier[PTX_LANES];  /* at which it waits */
    uint32_t epoch;
    uint64_t *registers; /* [slot][lane] */
    uint32_t *known;     /* [slot], a bit for each lane */
    unsigned char *private_data, *private_states;
    uint8_t depth[PTX_LANES];
    uint32_t calls[PTX_LANES][PTX_CALLS]; /* places of the call instructions */
};

/* Stops the launch: what `lane` did, by the instruction's line. False. */
bool ptx_stop(const ptx_warp *warp, const ptx_instruction *now, unsigned lane,
              const char *format, ...) __attribute__((format(printf, 4, 5)));

#define PTX_EACH_LANE(lane, mask)                                              \
    for (uint32_t lane##_left = (mask), lane = 0;                              \
         lane##_left != 0 &&                                                   \
         (lane = (uint32_t)__builtin_ctz(lane##_left), true);                  \
         lane##_left &= lane##_left - 1)

uint64_t ptx_special_value(const ptx_warp *warp, uint32_t number,
                           unsigned lane);

static inline uint64_t ptx_read(const ptx_warp *warp,
                                const ptx_operand *operand, unsigned lane)
{
    if (operand->kind == PTX_REGISTER) {
        return warp->registers[(size_t)operand->slot * PTX_LANES + lane] ^
               operand->negated;
    }
    return operand->kind == PTX_VALUE
               ? operand->value ^ operand->negated
               : ptx_special_value(warp, operand->slot, lane);
}

static inline void ptx_write(ptx_warp *warp, const ptx_operand *operand,
                             unsigned lane, uint64_t value)
{
    if (operand->kind == PTX_REGISTER) {
        warp->registers[(size_t)operand->slot * PTX_LANES + lane] = value;
    }
}

/* Lanes of which the operand is known. */
static inline uint32_t ptx_known(const ptx_warp *warp,
                                 const ptx_operand *operand)
{
    return operand->kind == PTX_REGISTER ? warp->known[operand->slot]
                                         : UINT32_MAX;
}

static inline void ptx_set_known(ptx_warp *warp, const ptx_operand *operand,
                                 uint32_t lanes, uint32_t known)
{
    if (operand->kind == PTX_REGISTER) {
        uint32_t *all = &warp->known[operand->slot];
        *all = (*all & ~lanes) | (known & lanes);
    }
}

/* Refuses if the operand of one of the lanes is not known. */
bool ptx_need_known(const ptx_warp *warp, const ptx_instruction *now,
                    const ptx_operand *operand, uint32_t lanes,
                    const char *what);

static inline const ptx_operand *ptx_source(const ptx_instruction *now,
                                            unsigned i)
{
    return &now->operands[now->results + i];
}

static inline int64_t ptx_signed(uint64_t value, unsigned bits)
{
    return (int64_t)(value << (64 - bits)) >> (64 - bits);
}

static inline uint64_t ptx_cut(uint64_t value, unsigned bits)
{
    return bits >= 64 ? value : value & ((UINT64_C(1) << bits) - 1);
}

/* The row's operation, or what its modifiers chose. */
static inline ptx_operation ptx_operation_of(const ptx_instruction *now)
{
    return (ptx_operation)(now->row->operation ? now->row->operation
                                               : now->fields[PTX_OPERATION]);
}

/* Runs lanes until none can go on, or for a while. False after a fault. */
bool ptx_warp_run(ptx_warp *warp);

/* Ends lanes, which may let others pass a barrier. */
bool ptx_warp_end(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes);

/* Says of a block that can not go on who waits for what. False. */
bool ptx_block_stuck(ptx_block *block);

#endif
