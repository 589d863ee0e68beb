/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_integer.c - integers and bits. Values come with zeros above
 * their size, and leave so.
 */
#include "tests/ptx/ptx_machine.h"

#include "base/check.h"

/* The high half of a product of 64 bits each, from four products of halves. */
static uint64_t high_unsigned(uint64_t a, uint64_t b)
{
    uint64_t low = (a & UINT32_MAX) * (b & UINT32_MAX);
    uint64_t one = (a >> 32) * (b & UINT32_MAX) + (low >> 32);
    uint64_t two = (a & UINT32_MAX) * (b >> 32) + (one & UINT32_MAX);
    return (a >> 32) * (b >> 32) + (one >> 32) + (two >> 32);
}

static uint64_t high(uint64_t a, uint64_t b, unsigned bits, bool is_signed)
{
    if (bits == 64) {
        return high_unsigned(a, b) - (is_signed && a >> 63 ? b : 0) -
               (is_signed && b >> 63 ? a : 0);
    }
    if (is_signed) {
        return (uint64_t)(ptx_signed(a, bits) * ptx_signed(b, bits)) >> bits;
    }
    return a * b >> bits;
}

/* The product at twice the size. */
static uint64_t wide(uint64_t a, uint64_t b, unsigned bits, bool is_signed)
{
    uint64_t product =
        is_signed ? (uint64_t)(ptx_signed(a, bits) * ptx_signed(b, bits))
                  : a * b;
    return ptx_cut(product, 2 * bits);
}

static uint64_t divide(ptx_operation operation, uint64_t a, uint64_t b,
                       unsigned bits, bool is_signed)
{
    if (!is_signed) {
        return operation == PTX_DIV ? a / b : a % b;
    }
    int64_t left = ptx_signed(a, bits), right = ptx_signed(b, bits);
    return (uint64_t)(operation == PTX_DIV ? left / right : left % right);
}

static bool less(uint64_t a, uint64_t b, unsigned bits, bool is_signed)
{
    return is_signed ? ptx_signed(a, bits) < ptx_signed(b, bits) : a < b;
}

static uint64_t integer(ptx_operation operation, ptx_type type, uint64_t a,
                        uint64_t b)
{
    unsigned bits = ptx_type_bits(type);
    bool is_signed = ptx_type_is_signed(type);
    switch (operation) {
    case PTX_ADD:
        return a + b;
    case PTX_SUB:
        return a - b;
    case PTX_MUL:
        return a * b;
    case PTX_MUL_HI:
        return high(a, b, bits, is_signed);
    case PTX_DIV:
    case PTX_REM:
        return divide(operation, a, b, bits, is_signed);
    case PTX_MIN:
        return less(a, b, bits, is_signed) ? a : b;
    case PTX_MAX:
        return less(a, b, bits, is_signed) ? b : a;
    case PTX_ABS:
        return a >> (bits - 1) ? 0 - a : a;
    case PTX_NEG:
        return 0 - a;
    case PTX_AND:
        return a & b;
    case PTX_OR:
        return a | b;
    case PTX_XOR:
        return a ^ b;
    case PTX_NOT:
        return ~a;
    case PTX_INC:
        return a >= b ? 0 : a + 1;
    case PTX_DEC:
        return a == 0 || a > b ? b : a - 1;
    case PTX_EXCH:
        return b;
    default:
        WEFTI_ASSERT(0);
        return 0;
    }
}

uint64_t ptx_alu_integer(const ptx_instruction *now, const uint64_t *s)
{
    ptx_type type = (ptx_type)now->type;
    ptx_operation operation = (ptx_operation)now->row->operation;
    unsigned bits = ptx_type_bits(type);
    uint64_t second = now->sources > 1 ? s[1] : 0;
    if (operation == PTX_MUL_WIDE) {
        return wide(s[0], second, bits, ptx_type_is_signed(type));
    }
    return ptx_cut(integer(operation, type, s[0], second), bits);
}

uint64_t ptx_alu_saturated(const ptx_instruction *now, const uint64_t *s)
{
    int64_t a = ptx_signed(s[0], 32), b = ptx_signed(s[1], 32);
    int64_t sum = now->row->operation == PTX_ADD ? a + b : a - b;
    sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
    return ptx_cut((uint64_t)sum, 32);
}

uint64_t ptx_alu_mad(const ptx_instruction *now, const uint64_t *s)
{
    unsigned bits = ptx_type_bits((ptx_type)now->type);
    uint64_t product = ptx_alu_integer(now, s);
    return ptx_cut(product + s[2],
                   now->row->operation == PTX_MUL_WIDE ? 2 * bits : bits);
}

uint64_t ptx_alu_bits(const ptx_instruction *now, const uint64_t *s)
{
    return ptx_alu_integer(now, s);
}

uint64_t ptx_combine(ptx_operation operation, ptx_type type, uint64_t old,
                     uint64_t value)
{
    if (ptx_type_is_real(type)) {
        ptx_row row = {.operation = operation};
        ptx_instruction one = {.row = &row, .type = (uint8_t)type};
        one.sources = 2;
        return ptx_alu_real(&one, (uint64_t[]){old, value});
    }
    return ptx_cut(integer(operation, type, old, value), ptx_type_bits(type));
}

uint64_t ptx_alu_lop3(const ptx_instruction *now, const uint64_t *s)
{
    uint64_t result = 0;
    (void)now;
    for (unsigned row = 0; row < 8; row++) {
        if (s[3] >> row & 1) {
            result |= (row & 4 ? s[0] : ~s[0]) & (row & 2 ? s[1] : ~s[1]) &
                      (row & 1 ? s[2] : ~s[2]);
        }
    }
    return ptx_cut(result, 32);
}

/* Shifts by more than there are bits are by all of them. */
uint64_t ptx_alu_shl(const ptx_instruction *now, const uint64_t *s)
{
    unsigned bits = ptx_type_bits((ptx_type)now->type);
    return s[1] >= bits ? 0 : ptx_cut(s[0] << s[1], bits);
}

uint64_t ptx_alu_shr(const ptx_instruction *now, const uint64_t *s)
{
    unsigned bits = ptx_type_bits((ptx_type)now->type);
    if (ptx_type_is_signed((ptx_type)now->type)) {
        unsigned by = s[1] >= bits ? bits - 1 : (unsigned)s[1];
        return ptx_cut((uint64_t)(ptx_signed(s[0], bits) >> by), bits);
    }
    return s[1] >= bits ? 0 : s[0] >> s[1];
}

/* Of b:a, the high word after a shift to the left, the low one to the right. */
uint64_t ptx_alu_shf(const ptx_instruction *now, const uint64_t *s)
{
    uint64_t both = s[1] << 32 | s[0];
    uint64_t by = s[2];
    by = now->fields[PTX_FLAGS] & PTX_CLAMP ? (by > 32 ? 32 : by) : by & 31;
    return ptx_cut(now->row->operation == 0 ? (both << by) >> 32 : both >> by,
                   32);
}

/* Bytes of b:a by the selector's four; bit 3 of one: its sign eight times. */
uint64_t ptx_alu_prmt(const ptx_instruction *now, const uint64_t *s)
{
    uint64_t both = s[1] << 32 | s[0], result = 0;
    (void)now;
    for (unsigned i = 0; i < 4; i++) {
        unsigned pick = s[2] >> 4 * i & 15;
        uint64_t byte = both >> 8 * (pick & 7) & 255;
        if (pick & 8) {
            byte = byte & 128 ? 255 : 0;
        }
        result |= byte << 8 * i;
    }
    return result;
}

uint64_t ptx_alu_bfe(const ptx_instruction *now, const uint64_t *s)
{
    unsigned bits = ptx_type_bits((ptx_type)now->type);
    unsigned at = s[1] & 255, count = s[2] & 255;
    bool is_signed = ptx_type_is_signed((ptx_type)now->type);
    uint64_t result = at >= bits ? 0 : s[0] >> at;
    if (count == 0) {
        return 0;
    }
    unsigned last = at + count - 1 < bits ? at + count - 1 : bits - 1;
    bool sign = is_signed && (s[0] >> last & 1);
    unsigned have = at > last ? 0 : last - at + 1;
    result = have < 64 ? ptx_cut(result, have) : result;
    if (sign && have < 64) {
        result |= UINT64_MAX << have;
    }
    return ptx_cut(result, bits);
}

/* bfi d, a, b: the low bits of a into b. */
uint64_t ptx_alu_bfi(const ptx_instruction *now, const uint64_t *s)
{
    unsigned bits = ptx_type_bits((ptx_type)now->type);
    unsigned at = s[2] & 255, count = s[3] & 255;
    if (at >= bits || count == 0) {
        return s[1];
    }
    uint64_t mask = count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
    mask = ptx_cut(mask << at, bits);
    return (s[1] & ~mask) | (s[0] << at & mask);
}

uint64_t ptx_alu_popc(const ptx_instruction *now, const uint64_t *s)
{
    (void)now;
    return (uint64_t)__builtin_popcountll(s[0]);
}

uint64_t ptx_alu_clz(const ptx_instruction *now, const uint64_t *s)
{
    unsigned bits = ptx_type_bits((ptx_type)now->type);
    return s[0] == 0 ? bits : (uint64_t)__builtin_clzll(s[0]) - (64 - bits);
}

/* The highest bit that differs from the sign; none: all ones. */
uint64_t ptx_alu_bfind(const ptx_instruction *now, const uint64_t *s)
{
    unsigned bits = ptx_type_bits((ptx_type)now->type);
    uint64_t value = s[0];
    if (ptx_type_is_signed((ptx_type)now->type) && value >> (bits - 1)) {
        value = ptx_cut(~value, bits);
    }
    if (value == 0) {
        return UINT32_MAX;
    }
    unsigned at = 63 - (unsigned)__builtin_clzll(value);
    return now->row->operation == 1 ? bits - 1 - at : at;
}

uint64_t ptx_alu_brev(const ptx_instruction *now, const uint64_t *s)
{
    unsigned bits = ptx_type_bits((ptx_type)now->type);
    uint64_t result = 0;
    for (unsigned i = 0; i < bits; i++) {
        result |= (s[0] >> i & 1) << (bits - 1 - i);
    }
    return result;
}

/* The first where the third is not negative; a NaN is, and -0 is not. */
uint64_t ptx_alu_slct(const ptx_instruction *now, const uint64_t *s)
{
    bool first =
        now->from == PTX_F32
            ? ptx_compare_values(PTX_GE, PTX_F32,
                                 now->fields[PTX_FLAGS] & PTX_FTZ, s[2], 0)
            : ptx_signed(s[2], 32) >= 0;
    return first ? s[0] : s[1];
}
