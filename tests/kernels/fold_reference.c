/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/kernels/fold_reference.h"

#include "base/check.h"
#include "tests/seed.h"

#include <stdbool.h>
#include <string.h>

/* Largest power of two below count, by counting. */
static size_t reference_split(size_t count)
{
    size_t power = 1;
    while (power * 2 < count) {
        power *= 2;
    }
    return power;
}

float reference_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* One element in whatever type it is reduced. */
typedef union number {
    uint64_t whole;
    float single_;
    double double_;
} number;

static number reference_load(const unsigned char *at, weft_dtype dtype)
{
    number value = {0};
    uint16_t half;
    int32_t word;
    switch (dtype) {
    case WEFT_DTYPE_U8:
        value.whole = *at;
        break;
    case WEFT_DTYPE_I32:
        memcpy(&word, at, 4);
        value.whole = (uint64_t)(int64_t)word;
        break;
    case WEFT_DTYPE_BF16:
        memcpy(&half, at, 2);
        value.single_ = reference_float((uint32_t)half << 16);
        break;
    default:
        memcpy(&value, at, weft_dtype_bytes(dtype));
        break;
    }
    return value;
}

static number reference_join(number a, number b, weft_dtype dtype, bool max)
{
    number out = {0};
    switch (dtype) {
    case WEFT_DTYPE_BF16:
    case WEFT_DTYPE_F32:
        out.single_ = a.single_ + b.single_;
        if (max) {
            out.single_ = a.single_ != a.single_ || b.single_ != b.single_
                              ? reference_float(0x7fc00000)
                          : a.single_ > b.single_ ? a.single_
                                                  : b.single_;
        }
        break;
    case WEFT_DTYPE_F64:
        out.double_ = a.double_ + b.double_;
        if (max) {
            out.double_ = a.double_ != a.double_  ? a.double_
                          : a.double_ > b.double_ ? a.double_
                                                  : b.double_;
        }
        break;
    default:
        out.whole = a.whole + b.whole; /* cut to the type at the end */
        if (max) {
            out.whole = (int64_t)a.whole > (int64_t)b.whole ? a.whole : b.whole;
        }
        break;
    }
    return out;
}

uint16_t reference_round(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t rest = bits & 0xffffU;
    uint16_t down = (uint16_t)(bits >> 16);
    if (value != value) {
        return 0x7fc0;
    }
    if (rest > 0x8000U || (rest == 0x8000U && (down & 1U) != 0)) {
        return (uint16_t)(down + 1);
    }
    return down;
}

static void reference_store(unsigned char *at, number value, size_t count,
                            weft_dtype dtype, bool avg)
{
    int64_t divisor = avg ? (int64_t)count : 1;
    uint8_t byte = (uint8_t)((uint8_t)value.whole / divisor);
    int32_t word = (int32_t)((int32_t)value.whole / divisor);
    int64_t whole = (int64_t)value.whole / divisor;
    uint16_t half;
    uint64_t quiet = UINT64_C(0x7ff8000000000000);

    switch (dtype) {
    case WEFT_DTYPE_U8:
        *at = byte;
        break;
    case WEFT_DTYPE_I32:
        memcpy(at, &word, 4);
        break;
    case WEFT_DTYPE_I64:
        memcpy(at, &whole, 8);
        break;
    case WEFT_DTYPE_BF16:
        half =
            reference_round(avg ? value.single_ / (float)count : value.single_);
        memcpy(at, &half, 2);
        break;
    case WEFT_DTYPE_F32:
        value.single_ = avg ? value.single_ / (float)count : value.single_;
        if (value.single_ != value.single_) {
            value.single_ = reference_float(0x7fc00000);
        }
        memcpy(at, &value, 4);
        break;
    default:
        value.double_ = avg ? value.double_ / (double)count : value.double_;
        if (value.double_ != value.double_) {
            memcpy(&value, &quiet, 8);
        }
        memcpy(at, &value, 8);
        break;
    }
}

static number reference_tree(const unsigned char *const *sources, size_t count,
                             size_t offset, weft_dtype dtype, bool max)
{
    if (count == 1) {
        return reference_load(sources[0] + offset, dtype);
    }
    size_t low = reference_split(count);
    return reference_join(
        reference_tree(sources, low, offset, dtype, max),
        reference_tree(sources + low, count - low, offset, dtype, max), dtype,
        max);
}

void reference_fold(unsigned char *dst, const unsigned char *const *sources,
                    size_t count, size_t elems, weft_dtype dtype,
                    weft_redop redop)
{
    size_t bytes = weft_dtype_bytes(dtype);
    for (size_t i = 0; i < elems; i++) {
        number sum = reference_tree(sources, count, i * bytes, dtype,
                                    redop == WEFT_REDOP_MAX);
        reference_store(dst + i * bytes, sum, count, dtype,
                        redop == WEFT_REDOP_AVG);
    }
}

void reference_fill(unsigned char *at, size_t elems, weft_dtype dtype,
                    uint64_t *seed)
{
    static const uint32_t special[] = {
        0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc01234, 0xff812345,
        0x00000001, 0x007fffff, 0x3f808000, 0x3f818000, 0x7f7fffff, 0xff7fffff};
    for (size_t i = 0; i < elems; i++) {
        uint64_t raw = random_next(seed);
        uint32_t pick = special[(raw >> 8) % WEFTI_COUNT_OF(special)];
        bool odd = raw % 8 == 0;
        /* Signs and magnitudes mixed, so that the order of sums matters. */
        uint32_t word =
            odd ? pick : (uint32_t)(raw >> 32 & 0x83ffffff) | 0x3c000000;
        uint64_t wide = odd ? (uint64_t)pick << 32
                            : (raw & UINT64_C(0x803fffffffffffff)) |
                                  UINT64_C(0x3f80000000000000);
        uint16_t half = (uint16_t)(word >> 16);
        switch (dtype) {
        case WEFT_DTYPE_BF16:
            memcpy(at + 2 * i, &half, 2);
            break;
        case WEFT_DTYPE_F32:
            memcpy(at + 4 * i, &word, 4);
            break;
        case WEFT_DTYPE_F64:
            memcpy(at + 8 * i, &wide, 8);
            break;
        default:
            memcpy(at + weft_dtype_bytes(dtype) * i, &raw,
                   weft_dtype_bytes(dtype));
            break;
        }
    }
}
