/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_execute.c - a warp's lanes through the code: those go first
 * whose place in it is lowest, and all that are at it go together.
 */
#include "tests/ptx/ptx_machine.h"

#include "base/check.h"
#include "tests/ptx/ptx_fault.h"

#include <string.h>

enum { TURN_STEPS = 4096 };

bool ptx_stop(const ptx_warp *warp, const ptx_instruction *now, unsigned lane,
              const char *format, ...)
{
    const ptx_block *block = warp->block;
    const unsigned *size = block->config->block, *at = block->index;
    unsigned thread = warp->number * PTX_LANES + lane;
    va_list values;
    ptx_fault_set("%s, block (%u, %u, %u), thread (%u, %u, %u), %s:%d: "
                  "%.*s: ",
                  block->kernel->name, at[0], at[1], at[2], thread % size[0],
                  thread / size[0] % size[1], thread / size[0] / size[1],
                  block->program->name, now->line, now->text_bytes, now->text);
    va_start(values, format);
    ptx_fault_add(format, values);
    va_end(values);
    return false;
}

bool ptx_need_known(const ptx_warp *warp, const ptx_instruction *now,
                    const ptx_operand *operand, uint32_t lanes,
                    const char *what)
{
    uint32_t unknown = lanes & ~ptx_known(warp, operand);
    return unknown == 0 || ptx_stop(warp, now, (unsigned)__builtin_ctz(unknown),
                                    "%s rests on what nothing has set", what);
}

uint64_t ptx_special_value(const ptx_warp *warp, uint32_t number, unsigned lane)
{
    const ptx_block *block = warp->block;
    const unsigned *size = block->config->block;
    unsigned thread = warp->number * PTX_LANES + lane;
    uint32_t bit = UINT32_C(1) << lane;
    switch (number) {
    case PTX_TID:
        return thread % size[0];
    case PTX_TID + 1:
        return thread / size[0] % size[1];
    case PTX_TID + 2:
        return thread / size[0] / size[1];
    case PTX_NTID:
    case PTX_NTID + 1:
    case PTX_NTID + 2:
        return size[number - PTX_NTID];
    case PTX_CTAID:
    case PTX_CTAID + 1:
    case PTX_CTAID + 2:
        return block->index[number - PTX_CTAID];
    case PTX_NCTAID:
    case PTX_NCTAID + 1:
    case PTX_NCTAID + 2:
        return block->config->grid[number - PTX_NCTAID];
    case PTX_LANEID:
        return lane;
    case PTX_WARPID:
        return warp->number;
    case PTX_NWARPID:
        return block->warp_count;
    case PTX_LANEMASK_EQ:
        return bit;
    case PTX_LANEMASK_LE:
        return bit | (bit - 1);
    case PTX_LANEMASK_LT:
        return bit - 1;
    case PTX_LANEMASK_GE:
        return (uint32_t) ~(bit - 1);
    case PTX_LANEMASK_GT:
        return (uint32_t) ~(bit | (bit - 1));
    case PTX_SMID:
        return 0;
    case PTX_NSMID:
        return 1;
    case PTX_DYNAMIC_SMEM_SIZE:
        return block->config->shared_bytes;
    default:
        return block->steps;
    }
}

/* Lanes in which one known operand alone decides: 0 an and, ones an or. */
static uint32_t decided(const ptx_warp *warp, const ptx_operand *operand,
                        ptx_operation how, unsigned bits, uint32_t lanes)
{
    uint64_t deciding = how == PTX_AND ? 0 : ptx_cut(UINT64_MAX, bits);
    uint32_t found = 0;
    if (how != PTX_AND && how != PTX_OR) {
        return 0;
    }
    PTX_EACH_LANE(lane, lanes & ptx_known(warp, operand))
    {
        uint64_t value = ptx_read(warp, operand, lane);
        found |= (uint32_t)(value == deciding) << lane;
    }
    return found;
}

bool ptx_run_setp(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    bool flush = now->fields[PTX_FLAGS] & PTX_FTZ;
    bool joined = now->row->operation == 1;
    uint32_t known = ptx_known(warp, ptx_source(now, 0)) &
                     ptx_known(warp, ptx_source(now, 1));
    if (joined) {
        const ptx_operand *with = ptx_source(now, 2);
        known &= ptx_known(warp, with);
        known |= decided(warp, with, (ptx_operation)now->fields[PTX_OPERATION],
                         1, lanes);
    }
    PTX_EACH_LANE(lane, lanes)
    {
        uint64_t is = ptx_compare_values(
            (ptx_compare)now->fields[PTX_COMPARE], (ptx_type)now->type, flush,
            ptx_read(warp, ptx_source(now, 0), lane),
            ptx_read(warp, ptx_source(now, 1), lane));
        uint64_t not = !is;
        if (joined) {
            ptx_operation how = (ptx_operation)now->fields[PTX_OPERATION];
            uint64_t with = ptx_read(warp, ptx_source(now, 2), lane);
            is = ptx_combine(how, PTX_PRED, is, with);
            not = ptx_combine(how, PTX_PRED, not, with);
        }
        ptx_write(warp, &now->operands[0], lane, is);
        ptx_write(warp, &now->operands[1], lane, not );
    }
    ptx_set_known(warp, &now->operands[0], lanes, known);
    ptx_set_known(warp, &now->operands[1], lanes, known);
    return true;
}

/* What is not chosen need not be known. */
bool ptx_run_selp(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    uint32_t known = 0, chosen[2];
    chosen[0] = ptx_known(warp, ptx_source(now, 0));
    chosen[1] = ptx_known(warp, ptx_source(now, 1));
    PTX_EACH_LANE(lane, lanes)
    {
        unsigned which = !ptx_read(warp, ptx_source(now, 2), lane);
        ptx_write(warp, &now->operands[0], lane,
                  ptx_read(warp, ptx_source(now, which), lane));
        known |= chosen[which] & UINT32_C(1) << lane;
    }
    ptx_set_known(warp, &now->operands[0], lanes,
                  known & ptx_known(warp, ptx_source(now, 2)));
    return true;
}

/* The parts of a value lie one after the other, the first one lowest. */
bool ptx_run_mov(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    unsigned bits = ptx_type_bits((ptx_type)now->type);
    unsigned to = bits / now->results, from = bits / now->sources;
    uint32_t known = UINT32_MAX;
    for (unsigned i = 0; i < now->sources; i++) {
        known &= ptx_known(warp, ptx_source(now, i));
    }
    PTX_EACH_LANE(lane, lanes)
    {
        uint64_t whole = 0;
        for (unsigned i = 0; i < now->sources; i++) {
            whole |= ptx_read(warp, ptx_source(now, i), lane) << i * from;
        }
        for (unsigned i = 0; i < now->results; i++) {
            ptx_write(warp, &now->operands[i], lane,
                      ptx_cut(whole >> i * to, to));
        }
    }
    for (unsigned i = 0; i < now->results; i++) {
        ptx_set_known(warp, &now->operands[i], lanes, known);
    }
    return true;
}

static bool run_alu(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    uint32_t known = UINT32_MAX;
    for (unsigned i = 0; i < now->sources; i++) {
        known &= ptx_known(warp, ptx_source(now, i));
    }
    if (now->row->alu == ptx_alu_bits && (lanes & ~known) != 0) {
        for (unsigned i = 0; i < now->sources; i++) {
            known |= decided(warp, ptx_source(now, i),
                             (ptx_operation)now->row->operation,
                             ptx_type_bits((ptx_type)now->type), lanes);
        }
    }
    PTX_EACH_LANE(lane, lanes)
    {
        uint64_t sources[PTX_OPERANDS];
        for (unsigned i = 0; i < now->sources; i++) {
            sources[i] = ptx_read(warp, ptx_source(now, i), lane);
        }
        ptx_write(warp, &now->operands[0], lane, now->row->alu(now, sources));
    }
    ptx_set_known(warp, &now->operands[0], lanes, known);
    return true;
}

/* The machine has no result for a division by 0, nor for the one overflow. */
bool ptx_run_divide(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    unsigned bits = ptx_type_bits((ptx_type)now->type);
    uint32_t known = ptx_known(warp, ptx_source(now, 0)) &
                     ptx_known(warp, ptx_source(now, 1));
    PTX_EACH_LANE(lane, lanes & known)
    {
        uint64_t s[2] = {ptx_read(warp, ptx_source(now, 0), lane),
                         ptx_read(warp, ptx_source(now, 1), lane)};
        if (s[1] == 0) {
            return ptx_stop(warp, now, lane, "a division by zero");
        }
        if (ptx_type_is_signed((ptx_type)now->type) &&
            s[1] == ptx_cut(UINT64_MAX, bits) &&
            s[0] == UINT64_C(1) << (bits - 1)) {
            return ptx_stop(warp, now, lane, "a quotient that has no room");
        }
        ptx_write(warp, &now->operands[0], lane, ptx_alu_integer(now, s));
    }
    ptx_set_known(warp, &now->operands[0], lanes, known);
    return true;
}

/* The lanes of those that run to go next, and how far before others are met. */
static uint32_t choose_lanes(const ptx_warp *warp, uint32_t *pc,
                             uint32_t *limit)
{
    uint32_t lanes = 0;
    *pc = *limit = UINT32_MAX;
    PTX_EACH_LANE(lane, warp->runs)
    {
        uint32_t at = warp->pc[lane];
        if (at < *pc) {
            *limit = *pc;
            *pc = at;
            lanes = 0;
        } else if (at != *pc && at < *limit) {
            *limit = at;
        }
        lanes |= (uint32_t)(at == *pc) << lane;
    }
    return lanes;
}

/* The lanes for which the guard holds. */
static bool apply_guard(const ptx_warp *warp, const ptx_instruction *now,
                        uint32_t lanes, uint32_t *taken)
{
    *taken = lanes;
    if (!now->guarded) {
        return true;
    }
    if (!ptx_need_known(warp, now, &now->guard, lanes, "the guard")) {
        return false;
    }
    *taken = 0;
    PTX_EACH_LANE(lane, lanes)
    {
        *taken |= (uint32_t)(ptx_read(warp, &now->guard, lane) & 1) << lane;
    }
    return true;
}

static void set_places(ptx_warp *warp, uint32_t lanes, uint32_t pc)
{
    PTX_EACH_LANE(lane, lanes)
    {
        warp->pc[lane] = pc;
    }
}

/* Runs `lanes`, which are at pc, up to the limit or to what moves them. */
static bool run_straight(ptx_warp *warp, uint32_t lanes, uint32_t pc,
                         uint32_t limit)
{
    ptx_block *block = warp->block;
    uint64_t most = block->config->step_limit ? block->config->step_limit
                                              : UINT64_C(1) << 30;
    for (; pc < limit; pc++) {
        const ptx_instruction *now = &block->program->code.at[pc];
        uint32_t taken;
        if (block->steps++ == most) {
            return ptx_stop(warp, now, (unsigned)__builtin_ctz(lanes),
                            "still runs after %llu instructions",
                            (unsigned long long)most);
        }
        if (!apply_guard(warp, now, lanes, &taken)) {
            return false;
        }
        if (now->row->moves) {
            set_places(warp, lanes, pc + 1);
            set_places(warp, taken, pc);
            return taken == 0 || now->row->run(warp, now, taken);
        }
        if (taken != 0 &&
            !(now->row->alu ? run_alu : now->row->run)(warp, now, taken)) {
            return false;
        }
    }
    set_places(warp, lanes, pc);
    return true;
}

bool ptx_warp_run(ptx_warp *warp)
{
    for (unsigned turn = 0; turn < TURN_STEPS && warp->runs != 0; turn++) {
        uint32_t pc, limit;
        uint32_t lanes = choose_lanes(warp, &pc, &limit);
        if (!run_straight(warp, lanes, pc, limit)) {
            return false;
        }
    }
    return true;
}
