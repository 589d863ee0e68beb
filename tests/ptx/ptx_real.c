/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_real.c - arithmetic on floats, each result rounded once.
 *
 * f32 and f64 are the host's, in the rounding mode asked for. Smaller ones are
 * computed in double, rounded to odd, which keeps what decides the rounding to
 * a format that has at least two bits fewer (Boldo, Melquiond, "Emulation of
 * FMA and correctly rounded sums", 2008). What PTX calls approximate is rounded
 * from a double. NaNs are the ones that PTX promises; f64 keeps its operand's.
 */
#include "tests/ptx/ptx_format.h"
#include "tests/ptx/ptx_machine.h"

#include "base/check.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

static int host_mode(ptx_round round)
{
    return round == PTX_TO_ZERO ? FE_TOWARDZERO
           : round == PTX_DOWN  ? FE_DOWNWARD
           : round == PTX_UP    ? FE_UPWARD
                                : FE_TONEAREST;
}

static float bits_float(uint64_t bits)
{
    uint32_t code = (uint32_t)bits;
    float value;
    memcpy(&value, &code, sizeof(value));
    return value;
}

static uint64_t float_bits(float value)
{
    uint32_t code;
    memcpy(&code, &value, sizeof(code));
    return code;
}

/* In the mode of the moment; this file is compiled with -frounding-math. */
static float compute_float(ptx_operation operation, float a, float b, float c)
{
    switch (operation) {
    case PTX_ADD:
        return a + b;
    case PTX_SUB:
        return a - b;
    case PTX_MUL:
        return a * b;
    case PTX_FMA:
        return fmaf(a, b, c);
    case PTX_DIV:
        return a / b;
    case PTX_RCP:
        return 1 / a;
    default:
        return sqrtf(a);
    }
}

static double compute_double(ptx_operation operation, double a, double b,
                             double c)
{
    switch (operation) {
    case PTX_ADD:
        return a + b;
    case PTX_SUB:
        return a - b;
    case PTX_MUL:
        return a * b;
    case PTX_FMA:
        return fma(a, b, c);
    case PTX_DIV:
        return a / b;
    case PTX_RCP:
        return 1 / a;
    default:
        return sqrt(a);
    }
}

/* Through pointers, so that nothing is computed before its mode is set. */
static float (*volatile in_float)(ptx_operation, float, float,
                                  float) = compute_float;
static double (*volatile in_double)(ptx_operation, double, double,
                                    double) = compute_double;

static uint64_t exact_float(ptx_operation operation, ptx_round round,
                            const uint64_t *s)
{
    int before = fegetround();
    fesetround(host_mode(round));
    float value = in_float(operation, bits_float(s[0]), bits_float(s[1]),
                           bits_float(s[2]));
    fesetround(before);
    return isnan(value) ? ptx_format_nan(PTX_FORMAT_F32) : float_bits(value);
}

static uint64_t quiet(uint64_t nan)
{
    return nan | UINT64_C(1) << 51;
}

static uint64_t exact_double(ptx_operation operation, ptx_round round,
                             const uint64_t *s, unsigned sources)
{
    for (unsigned i = 0; i < sources; i++) {
        if (ptx_format_is_nan(PTX_FORMAT_F64, s[i])) {
            return quiet(s[i]);
        }
    }
    int before = fegetround();
    fesetround(host_mode(round));
    double value = in_double(operation, ptx_bits_double(s[0]),
                             ptx_bits_double(s[1]), ptx_bits_double(s[2]));
    fesetround(before);
    return isnan(value) ? ptx_format_nan(PTX_FORMAT_F64)
                        : ptx_double_bits(value);
}

/* To odd: what is not exact has its lowest bit set. */
static double odd_double(ptx_operation operation, const double *s)
{
    int before = fegetround();
    fesetround(FE_TOWARDZERO);
    feclearexcept(FE_INEXACT);
    double value = in_double(operation, s[0], s[1], s[2]);
    bool inexact = fetestexcept(FE_INEXACT) != 0;
    fesetround(before);
    return inexact ? ptx_bits_double(ptx_double_bits(value) | 1) : value;
}

static uint64_t small(ptx_operation operation, ptx_format format,
                      ptx_round round, const uint64_t *s)
{
    double wide[3];
    for (unsigned i = 0; i < 3; i++) {
        wide[i] = ptx_to_double(format, s[i]);
    }
    double value = odd_double(operation, wide);
    ptx_number number = ptx_format_read(PTX_FORMAT_F64, ptx_double_bits(value));
    return ptx_format_write(format, number, round, false);
}

static double approximate(ptx_operation operation, double value)
{
    switch (operation) {
    case PTX_RSQRT:
        return 1 / sqrt(value);
    case PTX_EX2:
        return exp2(value);
    case PTX_LG2:
        return log2(value);
    case PTX_SIN:
        return sin(value);
    case PTX_COS:
        return cos(value);
    default:
        return tanh(value);
    }
}

/* Of two the smaller or larger, -0 below +0; a NaN loses, or wins. */
static uint64_t choose(ptx_operation operation, ptx_format format, uint64_t a,
                       uint64_t b, bool nan_wins)
{
    bool nan_a = ptx_format_is_nan(format, a);
    bool nan_b = ptx_format_is_nan(format, b);
    if (nan_a || nan_b) {
        return nan_wins || (nan_a && nan_b) ? ptx_format_nan(format)
               : nan_a                      ? b
                                            : a;
    }
    double left = ptx_to_double(format, a), right = ptx_to_double(format, b);
    bool a_below = left < right || (left == right && signbit(left));
    return a_below == (operation == PTX_MIN) ? a : b;
}

static uint64_t flush(ptx_format format, uint64_t bits)
{
    if (!ptx_format_is_subnormal(format, bits)) {
        return bits;
    }
    return bits & UINT64_C(1) << (ptx_format_bits(format) - 1);
}

/* To 0 .. 1, NaN to 0; or, for relu, from 0 up, and NaN stays. */
static uint64_t clamp(ptx_format format, uint64_t bits, unsigned flags)
{
    bool nan = ptx_format_is_nan(format, bits);
    double value = nan ? 0 : ptx_to_double(format, bits);
    if (flags & PTX_SAT && (nan || value <= 0)) {
        return 0;
    }
    if (flags & PTX_SAT && value > 1) {
        ptx_number one = {.whole = 1};
        return ptx_format_write(format, one, PTX_NEAREST, false);
    }
    return flags & PTX_RELU && !nan && value <= 0 ? 0 : bits;
}

/* Sign and size as they are, whatever the number. */
static uint64_t sign_only(ptx_operation operation, ptx_format format,
                          uint64_t a, uint64_t b)
{
    uint64_t sign = UINT64_C(1) << (ptx_format_bits(format) - 1);
    if (operation == PTX_COPYSIGN) { /* copysign d, a, b: b with a's sign */
        return (b & ~sign) | (a & sign);
    }
    if (ptx_format_is_nan(format, a) && format != PTX_FORMAT_F64) {
        return ptx_format_nan(format);
    }
    return operation == PTX_ABS ? a & ~sign : a ^ sign;
}

static uint64_t one_real(const ptx_instruction *now, ptx_format format,
                         const uint64_t *s)
{
    ptx_operation operation = (ptx_operation)now->row->operation;
    ptx_round round = (ptx_round)now->fields[PTX_ROUND];
    unsigned flags = now->fields[PTX_FLAGS];
    switch (operation) {
    case PTX_MIN:
    case PTX_MAX:
        return choose(operation, format, s[0], s[1], flags & PTX_NAN);
    case PTX_ABS:
    case PTX_NEG:
    case PTX_COPYSIGN:
        return sign_only(operation, format, s[0], s[1]);
    case PTX_EXCH:
        return s[1];
    case PTX_RSQRT:
    case PTX_EX2:
    case PTX_LG2:
    case PTX_SIN:
    case PTX_COS:
    case PTX_TANH:
        return ptx_format_write(
            format,
            ptx_format_read(PTX_FORMAT_F64,
                            ptx_double_bits(approximate(
                                operation, ptx_to_double(format, s[0])))),
            PTX_NEAREST, false);
    default:
        return format == PTX_FORMAT_F32 ? exact_float(operation, round, s)
               : format == PTX_FORMAT_F64
                   ? exact_double(operation, round, s, now->sources)
                   : small(operation, format, round, s);
    }
}

uint64_t ptx_alu_real(const ptx_instruction *now, const uint64_t *s)
{
    ptx_type type = (ptx_type)now->type;
    ptx_format format = ptx_format_of(type);
    unsigned values = ptx_type_values(type), flags = now->fields[PTX_FLAGS];
    unsigned bits = ptx_type_bits(type) / values;
    uint64_t result = 0;
    for (unsigned i = 0; i < values; i++) {
        uint64_t part[3] = {0, 0, 0};
        for (unsigned k = 0; k < now->sources; k++) {
            part[k] = ptx_cut(s[k] >> i * bits, bits);
            part[k] = flags & PTX_FTZ ? flush(format, part[k]) : part[k];
        }
        uint64_t one = one_real(now, format, part);
        one = flags & PTX_FTZ ? flush(format, one) : one;
        result |= clamp(format, one, flags) << i * bits;
    }
    return result;
}

uint64_t ptx_alu_testp(const ptx_instruction *now, const uint64_t *s)
{
    ptx_format format = ptx_format_of((ptx_type)now->type);
    ptx_number number = ptx_format_read(format, s[0]);
    bool subnormal = ptx_format_is_subnormal(format, s[0]);
    switch ((int)now->fields[PTX_OPERATION]) {
    case 0:
        return number.kind == PTX_FINITE;
    case 1:
        return number.kind == PTX_INFINITE;
    case 2:
        return number.kind != PTX_NOT_A_NUMBER;
    case 3:
        return number.kind == PTX_NOT_A_NUMBER;
    case 4:
        return number.kind == PTX_FINITE && number.whole != 0 && !subnormal;
    default:
        return subnormal;
    }
}

static bool ordered(ptx_compare how, int order)
{
    switch (how) {
    case PTX_EQ:
    case PTX_EQU:
        return order == 0;
    case PTX_NE:
    case PTX_NEU:
        return order != 0;
    case PTX_LT:
    case PTX_LTU:
    case PTX_LO:
        return order < 0;
    case PTX_LE:
    case PTX_LEU:
    case PTX_LS:
        return order <= 0;
    case PTX_GT:
    case PTX_GTU:
    case PTX_HI:
        return order > 0;
    case PTX_GE:
    case PTX_GEU:
    case PTX_HS:
        return order >= 0;
    default:
        return how == PTX_NUM;
    }
}

bool ptx_compare_values(ptx_compare how, ptx_type type, bool flushed,
                        uint64_t a, uint64_t b)
{
    unsigned bits = ptx_type_bits(type);
    if (ptx_type_is_signed(type) && how < PTX_LO) {
        int64_t left = ptx_signed(a, bits), right = ptx_signed(b, bits);
        return ordered(how, (left > right) - (left < right));
    }
    if (!ptx_type_is_real(type)) {
        return ordered(how, (a > b) - (a < b));
    }
    ptx_format format = ptx_format_of(type);
    if (ptx_format_is_nan(format, a) || ptx_format_is_nan(format, b)) {
        return how >= PTX_EQU && how <= PTX_IS_NAN && how != PTX_NUM;
    }
    double left = ptx_to_double(format, flushed ? flush(format, a) : a);
    double right = ptx_to_double(format, flushed ? flush(format, b) : b);
    return ordered(how, (left > right) - (left < right));
}
