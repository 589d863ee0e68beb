/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/kernels/reduce_reference.c - slow on purpose: floats narrower than f32
 * are decoded by their formula and encoded by search among all of them.
 *
 * Operations on floats are done in double and rounded to float: for one
 * addition, product or quotient of floats that gives what float arithmetic
 * must (53 >= 2 * 24 + 2).
 */
#include "tests/kernels/reduce_reference.h"

#include "base/check.h"
#include "tests/seed.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

__extension__ typedef __int128 whole;
__extension__ typedef unsigned __int128 bits128;

/* One element in whatever its type is reduced in. */
typedef struct number {
    whole whole;
    double real;
} number;

/* A float narrower than f32. */
typedef struct format {
    int exponent, mantissa; /* bits */
    bool infinite;
} format;

static bool is_float(weft_dtype dtype)
{
    return weft_dtype_kind(dtype) == WEFT_KIND_FLOAT;
}

static const format *format_of(weft_dtype dtype)
{
    static const format f16 = {5, 10, true}, bf16 = {8, 7, true};
    static const format e4m3 = {4, 3, false}, e5m2 = {5, 2, true};
    return dtype == WEFT_DTYPE_F16      ? &f16
           : dtype == WEFT_DTYPE_BF16   ? &bf16
           : dtype == WEFT_DTYPE_F8E4M3 ? &e4m3
           : dtype == WEFT_DTYPE_F8E5M2 ? &e5m2
                                        : NULL;
}

/* The first code that is no finite number. */
static unsigned codes_end(const format *of)
{
    unsigned all = 1u << (of->exponent + of->mantissa);
    return of->infinite ? all - (1u << of->mantissa) : all - 1;
}

/* The value of a positive code that is finite. */
static double decode_finite(const format *of, unsigned code)
{
    int bias = (1 << (of->exponent - 1)) - 1;
    int power = (int)(code >> of->mantissa);
    unsigned rest = code & ((1u << of->mantissa) - 1);
    if (power == 0) {
        return ldexp(rest, 1 - bias - of->mantissa);
    }
    return ldexp((1u << of->mantissa) + rest, power - bias - of->mantissa);
}

static double decode(const format *of, unsigned code)
{
    unsigned sign = 1u << (of->exponent + of->mantissa);
    unsigned size = code & (sign - 1);
    double value = size < codes_end(of) ? decode_finite(of, size)
                   : of->infinite && size == codes_end(of) ? (double)INFINITY
                                                           : (double)NAN;
    return code & sign ? -value : value;
}

static unsigned encode(const format *of, double value)
{
    unsigned end = codes_end(of);
    unsigned nan = of->infinite ? end | 1u << (of->mantissa - 1) : end;
    if (isnan(value)) {
        return nan;
    }
    double size = fabs(value);
    unsigned low = 0, high = end; /* the largest code not above size */
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        *(decode_finite(of, middle) <= size ? &low : &high) = middle;
    }
    double here = decode_finite(of, low);
    double next = low + 1 < end ? decode_finite(of, low + 1)
                                : 2 * here - decode_finite(of, low - 1);
    double tie = (here + next) / 2;
    unsigned code = low + (size > tie || (size == tie && low % 2 != 0));
    if (code == end && !of->infinite) {
        return nan;
    }
    unsigned sign = 1u << (of->exponent + of->mantissa);
    return code | (signbit(value) ? sign : 0);
}

/* Cut to the type's bits. */
static whole wrap(bits128 value, weft_dtype dtype)
{
    unsigned width = 8 * (unsigned)weft_dtype_bytes(dtype);
    whole cut = (whole)(value & (((bits128)1 << width) - 1));
    bool is_signed = weft_dtype_kind(dtype) == WEFT_KIND_SIGNED;
    return is_signed && cut >> (width - 1) ? cut - ((whole)1 << width) : cut;
}

/* To the precision that partial results have. */
static double wide(double value, weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_F64 ? value : (double)(float)value;
}

static number load(const unsigned char *at, weft_dtype dtype)
{
    number value = {0};
    uint64_t code = 0;
    float single;
    memcpy(&code, at, weft_dtype_bytes(dtype));
    if (dtype == WEFT_DTYPE_F64) {
        memcpy(&value.real, at, 8);
    } else if (dtype == WEFT_DTYPE_F32) {
        memcpy(&single, at, 4);
        value.real = (double)single;
    } else if (format_of(dtype)) {
        value.real = decode(format_of(dtype), (unsigned)code);
    } else {
        value.whole = wrap(code, dtype);
    }
    return value;
}

static void store(unsigned char *at, number value, weft_dtype dtype)
{
    static const uint64_t quiet = UINT64_C(0x7ff8000000000000);
    static const uint32_t quiet_single = 0x7fc00000;
    float single = (float)value.real;
    uint64_t code = (uint64_t)value.whole;
    if (format_of(dtype)) {
        code = encode(format_of(dtype), value.real);
    } else if (is_float(dtype)) {
        bool wider = dtype == WEFT_DTYPE_F64;
        const void *from = wider ? (void *)&value.real : (void *)&single;
        if (isnan(value.real)) {
            from = wider ? (const void *)&quiet : (const void *)&quiet_single;
        }
        memcpy(at, from, weft_dtype_bytes(dtype));
        return;
    }
    memcpy(at, &code, weft_dtype_bytes(dtype));
}

double reference_value(const unsigned char *at, weft_dtype dtype)
{
    number value = load(at, dtype);
    return is_float(dtype) ? value.real : (double)value.whole;
}

void reference_store(unsigned char *at, double value, weft_dtype dtype)
{
    number element = {.real = value};
    if (!is_float(dtype)) {
        element.whole = wrap((bits128)(whole)value, dtype);
    }
    store(at, element, dtype);
}

/* Whether a is to be kept, of two numbers, by MAX or MIN. */
static bool wins(double a, double b, bool max)
{
    if (isnan(a) || isnan(b)) {
        return isnan(a);
    }
    if (a == b) {
        return max ? signbit(b) : signbit(a);
    }
    return max ? a > b : a < b;
}

static number join_reals(number a, number b, weft_dtype dtype, weft_redop redop)
{
    switch (redop) {
    case WEFT_REDOP_MAX:
    case WEFT_REDOP_MIN:
        return wins(a.real, b.real, redop == WEFT_REDOP_MAX) ? a : b;
    case WEFT_REDOP_PROD:
        return (number){.real = wide(a.real * b.real, dtype)};
    default:
        return (number){.real = wide(a.real + b.real, dtype)};
    }
}

static number join_wholes(number a, number b, weft_dtype dtype,
                          weft_redop redop)
{
    bits128 x = (bits128)a.whole, y = (bits128)b.whole;
    switch (redop) {
    case WEFT_REDOP_MAX:
        return a.whole > b.whole ? a : b;
    case WEFT_REDOP_MIN:
        return a.whole < b.whole ? a : b;
    case WEFT_REDOP_PROD:
        return (number){.whole = wrap(x * y, dtype)};
    case WEFT_REDOP_BAND:
        return (number){.whole = wrap(x & y, dtype)};
    case WEFT_REDOP_BOR:
        return (number){.whole = wrap(x | y, dtype)};
    case WEFT_REDOP_BXOR:
        return (number){.whole = wrap(x ^ y, dtype)};
    default:
        return (number){.whole = wrap(x + y, dtype)};
    }
}

/* The tree splits at the largest power of two below count, found by counting.
 */
static number tree(const unsigned char *const *sources, size_t count,
                   size_t offset, weft_dtype dtype, weft_redop redop)
{
    if (count == 1) {
        return load(sources[0] + offset, dtype);
    }
    size_t low = 1;
    while (low * 2 < count) {
        low *= 2;
    }
    number a = tree(sources, low, offset, dtype, redop);
    number b = tree(sources + low, count - low, offset, dtype, redop);
    return is_float(dtype) ? join_reals(a, b, dtype, redop)
                           : join_wholes(a, b, dtype, redop);
}

void reference_reduce(unsigned char *dst, const unsigned char *const *sources,
                      size_t count, size_t elems, weft_dtype dtype,
                      weft_redop redop)
{
    size_t bytes = weft_dtype_bytes(dtype);
    for (size_t i = 0; i < elems; i++) {
        number result = tree(sources, count, i * bytes, dtype, redop);
        if (redop == WEFT_REDOP_AVG) {
            result.real = wide(result.real / (double)count, dtype);
            result.whole /= (whole)count;
        }
        store(dst + i * bytes, result, dtype);
    }
}

/* One host's sum of an element, as it crosses the network. */
static void end_level(unsigned char *dst, const unsigned char *const *sources,
                      size_t count, size_t total, size_t offset,
                      weft_dtype dtype, weft_redop redop)
{
    number sum = tree(sources, count, offset, dtype, redop);
    if (redop == WEFT_REDOP_AVG && is_float(dtype)) {
        sum.real = wide(sum.real / (double)total, dtype);
    }
    store(dst, sum, dtype);
}

void reference_reduce_hosts(unsigned char *dst,
                            const unsigned char *const *sources,
                            const int *hosts, size_t count, size_t elems,
                            weft_dtype dtype, weft_redop redop)
{
    enum { MOST = 64 };
    const unsigned char *members[MOST], *ends[MOST];
    unsigned char sums[MOST][8];
    size_t bytes = weft_dtype_bytes(dtype);
    for (size_t i = 0; i < elems; i++) {
        size_t host = 0, left = count;
        for (; left > 0; host++) {
            size_t found = 0;
            for (size_t rank = 0; rank < count; rank++) {
                if (hosts[rank] == (int)host) {
                    members[found++] = sources[rank];
                }
            }
            end_level(sums[host], members, found, count, i * bytes, dtype,
                      redop);
            ends[host] = sums[host];
            left -= found;
        }
        number result = tree(ends, host, 0, dtype, redop);
        if (redop == WEFT_REDOP_AVG) {
            result.whole /= (whole)count;
        }
        store(dst + i * bytes, result, dtype);
    }
}

void reference_scale(unsigned char *dst, const unsigned char *src,
                     const unsigned char *scalar, size_t elems,
                     weft_dtype dtype)
{
    size_t bytes = weft_dtype_bytes(dtype);
    number factor = load(scalar, dtype);
    for (size_t i = 0; i < elems; i++) {
        number value = load(src + i * bytes, dtype);
        value.real = wide(value.real * factor.real, dtype);
        value.whole = wrap((bits128)value.whole * (bits128)factor.whole, dtype);
        store(dst + i * bytes, value, dtype);
    }
}

/* The upper bits of these are odd values of the narrower types too. */
static uint64_t odd_real(uint64_t pick, weft_dtype dtype)
{
    static const uint32_t singles[] = {
        0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc01234, 0xff812345,
        0x00000001, 0x007fffff, 0x3f808000, 0x3f818000, 0x7f7fffff, 0xff7fffff};
    static const uint16_t halves[] = {0x0000, 0x8000, 0x7c00, 0xfc00,
                                      0x7e12, 0xfd01, 0x0001, 0x03ff,
                                      0x83ff, 0x0400, 0x7bff, 0xfbff};
    static const uint8_t e4m3s[] = {0x00, 0x80, 0x7f, 0xff, 0x01, 0x81,
                                    0x07, 0x08, 0x7e, 0xfe, 0x77, 0x38};
    uint32_t single = singles[pick % WEFTI_COUNT_OF(singles)];
    switch (dtype) {
    case WEFT_DTYPE_F64:
        return (uint64_t)single << 32;
    case WEFT_DTYPE_BF16:
        return single >> 16;
    case WEFT_DTYPE_F16:
        return halves[pick % WEFTI_COUNT_OF(halves)];
    case WEFT_DTYPE_F8E5M2:
        return halves[pick % WEFTI_COUNT_OF(halves)] >> 8;
    case WEFT_DTYPE_F8E4M3:
        return e4m3s[pick % WEFTI_COUNT_OF(e4m3s)];
    default:
        return single;
    }
}

/* Signs and magnitudes mixed, so that the order of sums matters. */
static uint64_t plain_real(uint64_t raw, weft_dtype dtype)
{
    uint32_t single = (uint32_t)(raw >> 32 & 0x83ffffff) | 0x3c000000;
    switch (dtype) {
    case WEFT_DTYPE_F64:
        return (raw & UINT64_C(0x803fffffffffffff)) |
               UINT64_C(0x3f80000000000000);
    case WEFT_DTYPE_BF16:
        return single >> 16;
    case WEFT_DTYPE_F16:
        return (raw >> 32 & 0x9fff) | 0x2000;
    case WEFT_DTYPE_F8E4M3:
    case WEFT_DTYPE_F8E5M2:
        return raw >> 32 & 0xbf;
    default:
        return single;
    }
}

static uint64_t whole_bits(uint64_t raw, weft_dtype dtype)
{
    uint64_t top = UINT64_C(1) << (8 * weft_dtype_bytes(dtype) - 1);
    const uint64_t odd[] = {0, 1, UINT64_MAX, top, top - 1, top + 1};
    return raw % 16 == 0 ? odd[(raw >> 8) % WEFTI_COUNT_OF(odd)] : raw >> 4;
}

void reference_fill(unsigned char *at, size_t elems, weft_dtype dtype,
                    uint64_t *seed)
{
    size_t bytes = weft_dtype_bytes(dtype);
    for (size_t i = 0; i < elems; i++) {
        uint64_t raw = random_next(seed);
        uint64_t code = !is_float(dtype) ? whole_bits(raw, dtype)
                        : raw % 16 == 0  ? odd_real(raw >> 8, dtype)
                                         : plain_real(raw, dtype);
        memcpy(at + i * bytes, &code, bytes);
    }
}
