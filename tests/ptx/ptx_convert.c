/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_convert.c - cvt, all of whose results are rounded once from the
 * exact number.
 */
#include "tests/ptx/ptx_format.h"
#include "tests/ptx/ptx_machine.h"

static ptx_number from_integer(ptx_type type, uint64_t bits)
{
    int64_t value = ptx_signed(bits, ptx_type_bits(type));
    bool negative = ptx_type_is_signed(type) && value < 0;
    return (ptx_number){.negative = negative,
                        .whole = negative ? 0 - (uint64_t)value : bits};
}

/* Out of range: the nearest there is. NaN: 0, or the highest bit alone. */
static uint64_t to_integer(ptx_type type, ptx_type from, ptx_number number,
                           ptx_round round)
{
    unsigned bits = ptx_type_bits(type);
    bool is_signed = ptx_type_is_signed(type);
    if (number.kind == PTX_NOT_A_NUMBER) {
        return from == PTX_F64 || bits == 64 ? UINT64_C(1) << (bits - 1) : 0;
    }
    bool over = number.kind == PTX_INFINITE;
    uint64_t size = over ? 0 : ptx_format_whole(number, round, &over);
    uint64_t most =
        is_signed ? (UINT64_C(1) << (bits - 1)) - 1 : ptx_cut(UINT64_MAX, bits);
    if (number.negative) {
        most = is_signed ? most + 1 : 0;
    }
    size = over || size > most ? most : size;
    return ptx_cut(number.negative ? 0 - size : size, bits);
}

/* An integer in another type: cut off, or with sat the nearest there is. */
static uint64_t recast(const ptx_instruction *now, ptx_type type, ptx_type from,
                       uint64_t value)
{
    unsigned bits = ptx_type_bits(type);
    if (now->fields[PTX_FLAGS] & PTX_SAT) {
        return to_integer(type, from, from_integer(from, value), PTX_TO_ZERO);
    }
    if (ptx_type_is_signed(from)) {
        value = (uint64_t)ptx_signed(value, ptx_type_bits(from));
    }
    return ptx_cut(value, bits);
}

static uint64_t flush_real(ptx_type type, uint64_t bits)
{
    return type == PTX_F32 && ptx_format_is_subnormal(PTX_FORMAT_F32, bits)
               ? bits & UINT64_C(0x80000000)
               : bits;
}

/* sat: 0 to 1, NaN to 0; relu: not below 0. */
static ptx_number clamp(ptx_number number, unsigned flags)
{
    bool nan = number.kind == PTX_NOT_A_NUMBER;
    bool over = number.kind == PTX_INFINITE;
    if (flags & PTX_SAT && (nan || number.negative)) {
        return (ptx_number){.whole = 0};
    }
    if (flags & PTX_SAT) {
        bool one = over || ptx_format_whole(number, PTX_TO_ZERO, &over) != 0;
        return one ? (ptx_number){.whole = 1} : number;
    }
    if (flags & PTX_RELU && !nan && number.negative) {
        return (ptx_number){.whole = 0};
    }
    return number;
}

static uint64_t to_real(const ptx_instruction *now, ptx_type type,
                        ptx_number number)
{
    unsigned flags = now->fields[PTX_FLAGS];
    ptx_format format = ptx_format_of(type);
    ptx_round round = (ptx_round)now->fields[PTX_ROUND];
    if (now->row->operation == 1 && number.kind == PTX_FINITE) {
        bool over; /* to a whole number; what is over is one already */
        uint64_t whole = ptx_format_whole(number, round, &over);
        if (!over) {
            number.whole = whole;
            number.exponent = 0;
        }
    }
    uint64_t bits =
        ptx_format_write(format, clamp(number, flags), round, false);
    return flags & PTX_FTZ ? flush_real(type, bits) : bits;
}

uint64_t ptx_alu_convert(const ptx_instruction *now, const uint64_t *s)
{
    ptx_type type = (ptx_type)now->type, from = (ptx_type)now->from;
    uint64_t value = ptx_cut(s[0], ptx_type_bits(from)), result;
    bool to = ptx_type_is_real(type), of = ptx_type_is_real(from);
    if (now->fields[PTX_FLAGS] & PTX_FTZ) {
        value = flush_real(from, value);
    }
    if (of && to && type == PTX_F64 && from == PTX_F64 &&
        ptx_format_is_nan(PTX_FORMAT_F64, value)) {
        return value | UINT64_C(1) << 51;
    }
    if (!to && !of) {
        result = recast(now, type, from, value);
    } else {
        ptx_number number = of ? ptx_format_read(ptx_format_of(from), value)
                               : from_integer(from, value);
        result = to ? to_real(now, type, number)
                    : to_integer(type, from, number,
                                 (ptx_round)now->fields[PTX_ROUND]);
    }
    if (ptx_type_is_signed(type)) {
        result = ptx_cut((uint64_t)ptx_signed(result, ptx_type_bits(type)),
                         now->operands[0].bits);
    }
    return result;
}

/* Two values: of two sources, the first one above; or each half of one. */
uint64_t ptx_alu_convert_two(const ptx_instruction *now, const uint64_t *s)
{
    ptx_type type = (ptx_type)now->type, from = (ptx_type)now->from;
    unsigned flags = now->fields[PTX_FLAGS];
    unsigned bits = ptx_type_bits(type) / 2, parts = ptx_type_bits(from) / 2;
    uint64_t result = 0;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t value = now->row->operation == 1
                             ? ptx_cut(s[0] >> i * parts, parts)
                             : s[1 - i];
        ptx_number number = ptx_format_read(ptx_format_of(from), value);
        number = clamp(number, flags & PTX_RELU);
        result |=
            ptx_format_write(ptx_format_of(type), number,
                             (ptx_round)now->fields[PTX_ROUND], flags & PTX_SAT)
            << i * bits;
    }
    return result;
}
