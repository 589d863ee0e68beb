/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_format.c - see the header. Sources: IEEE 754-2019; Micikevicius
 * and others, "FP8 formats for deep learning", 2022, for e4m3 and e5m2.
 */
#include "tests/ptx/ptx_format.h"

#include <string.h>

/* Bits of exponent and fraction; zeros below the fraction (tf32). */
static const struct {
    unsigned exponent, fraction, below;
    uint64_t nan;
} formats[] = {
    [PTX_FORMAT_F64] = {11, 52, 0, UINT64_C(0xfff8000000000000)},
    [PTX_FORMAT_F32] = {8, 23, 0, 0x7fffffff},
    [PTX_FORMAT_F16] = {5, 10, 0, 0x7fff},
    [PTX_FORMAT_BF16] = {8, 7, 0, 0x7fff},
    [PTX_FORMAT_TF32] = {8, 10, 13, 0x7fffffff},
    [PTX_FORMAT_E4M3] = {4, 3, 0, 0x7f},
    [PTX_FORMAT_E5M2] = {5, 2, 0, 0x7f},
};

ptx_format ptx_format_of(ptx_type type)
{
    switch (type) {
    case PTX_F16:
    case PTX_F16X2:
        return PTX_FORMAT_F16;
    case PTX_BF16:
    case PTX_BF16X2:
        return PTX_FORMAT_BF16;
    case PTX_E4M3X2:
        return PTX_FORMAT_E4M3;
    case PTX_E5M2X2:
        return PTX_FORMAT_E5M2;
    case PTX_TF32:
        return PTX_FORMAT_TF32;
    case PTX_F64:
        return PTX_FORMAT_F64;
    default:
        return PTX_FORMAT_F32;
    }
}

unsigned ptx_format_bits(ptx_format format)
{
    return 1 + formats[format].exponent + formats[format].fraction +
           formats[format].below;
}

static int bias(ptx_format format)
{
    return (1 << (formats[format].exponent - 1)) - 1;
}

uint64_t ptx_format_nan(ptx_format format)
{
    return formats[format].nan;
}

ptx_number ptx_format_read(ptx_format format, uint64_t bits)
{
    unsigned width = formats[format].fraction;
    uint64_t code = bits >> formats[format].below;
    uint64_t fraction = code & ((UINT64_C(1) << width) - 1);
    int top = (1 << formats[format].exponent) - 1;
    int exponent = (int)(code >> width & (uint64_t)top);
    ptx_number number = {.negative =
                             code >> (width + formats[format].exponent) & 1};
    if (format == PTX_FORMAT_E4M3 ? exponent == top && fraction == 7
                                  : exponent == top) {
        number.kind = fraction != 0 ? PTX_NOT_A_NUMBER : PTX_INFINITE;
        return number;
    }
    number.whole = exponent == 0 ? fraction : fraction | UINT64_C(1) << width;
    number.exponent =
        (exponent == 0 ? 1 : exponent) - bias(format) - (int)width;
    return number;
}

/* Whether a number with this rest goes up to the next: half: the rest's
 * highest bit, more: whether another one is set. */
static bool goes_up(ptx_round round, bool negative, bool odd, bool half,
                    bool more)
{
    switch (round) {
    case PTX_NEAREST:
        return half && (more || odd);
    case PTX_AWAY:
        return half;
    case PTX_DOWN:
        return negative && (half || more);
    case PTX_UP:
        return !negative && (half || more);
    default:
        return false;
    }
}

/* number's whole times 2^-by, rounded; by may be negative if it has room. */
static uint64_t shift_rounded(const ptx_number *number, int by, ptx_round round)
{
    if (by <= 0) {
        return number->whole << -by;
    }
    uint64_t kept = by >= 64 ? 0 : number->whole >> by;
    bool half = by <= 64 && (number->whole >> (by - 1) & 1);
    uint64_t below = by > 64 ? number->whole
                             : number->whole & ((UINT64_C(1) << (by - 1)) - 1);
    return kept + goes_up(round, number->negative, kept & 1, half, below != 0);
}

static uint64_t largest(ptx_format format)
{
    unsigned width = formats[format].fraction;
    uint64_t infinite = ((UINT64_C(1) << formats[format].exponent) - 1)
                        << width;
    return format == PTX_FORMAT_E4M3 ? 0x7e : infinite - 1;
}

/* What is too large, or infinite, without its sign. */
static uint64_t overflow(ptx_format format, const ptx_number *number,
                         ptx_round round, bool saturate)
{
    bool stays =
        number->kind == PTX_FINITE &&
        (round == PTX_TO_ZERO || (round == PTX_DOWN && !number->negative) ||
         (round == PTX_UP && number->negative));
    if (stays || saturate) {
        return largest(format);
    }
    return largest(format) + 1;
}

uint64_t ptx_format_write(ptx_format format, ptx_number number, ptx_round round,
                          bool saturate)
{
    unsigned width = formats[format].fraction;
    uint64_t sign = (uint64_t)number.negative
                    << (width + formats[format].exponent);
    if (number.kind == PTX_NOT_A_NUMBER) {
        return formats[format].nan;
    }
    uint64_t code;
    if (number.kind == PTX_INFINITE) {
        code = overflow(format, &number, round, saturate);
    } else if (number.whole == 0) {
        code = 0;
    } else {
        /* The place of the lowest bit that is kept. */
        int highest = 63 - __builtin_clzll(number.whole) + number.exponent;
        int least = 1 - bias(format);
        int unit = (highest < least ? least : highest) - (int)width;
        uint64_t kept = shift_rounded(&number, unit - number.exponent, round);
        int exponent = unit + (int)width + bias(format);
        code = kept + ((uint64_t)(exponent - 1) << width);
        if (highest >= least + (1 << formats[format].exponent) ||
            code > largest(format)) {
            code = overflow(format, &number, round, saturate);
        }
    }
    return (sign | code) << formats[format].below;
}

uint64_t ptx_format_whole(ptx_number number, ptx_round round, bool *over)
{
    if (number.whole == 0) {
        *over = false;
        return 0;
    }
    int highest = 63 - __builtin_clzll(number.whole) + number.exponent;
    *over = highest > 63;
    if (*over) {
        return UINT64_MAX;
    }
    return shift_rounded(
        &number, number.exponent < -200 ? 200 : -number.exponent, round);
}

bool ptx_format_is_nan(ptx_format format, uint64_t bits)
{
    return ptx_format_read(format, bits).kind == PTX_NOT_A_NUMBER;
}

bool ptx_format_is_subnormal(ptx_format format, uint64_t bits)
{
    ptx_number number = ptx_format_read(format, bits);
    return number.kind == PTX_FINITE && number.whole != 0 &&
           number.whole >> formats[format].fraction == 0;
}

uint64_t ptx_double_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

double ptx_bits_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

double ptx_to_double(ptx_format format, uint64_t bits)
{
    return ptx_bits_double(ptx_format_write(
        PTX_FORMAT_F64, ptx_format_read(format, bits), PTX_NEAREST, false));
}
