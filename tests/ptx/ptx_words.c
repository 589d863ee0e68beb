/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_words.c - types, groups of modifiers, and words that are a flag
 * by themselves.
 */
#include "base/check.h"
#include "tests/ptx/ptx_row.h"

#include <string.h>

static const struct {
    const char *text;
    uint8_t bits, values;
} types[PTX_TYPE_COUNT] = {
#define TYPE(name, text, bits, values) {text, bits, values},
    PTX_TYPES(TYPE)
#undef TYPE
};

unsigned ptx_type_bits(ptx_type type)
{
    return types[type].bits;
}

unsigned ptx_type_values(ptx_type type)
{
    return types[type].values;
}

bool ptx_type_is_signed(ptx_type type)
{
    return type >= PTX_S8 && type <= PTX_S64;
}

bool ptx_type_is_real(ptx_type type)
{
    return type >= PTX_F16;
}

static bool is_text(const char *want, const char *text, size_t bytes)
{
    return strlen(want) == bytes && memcmp(want, text, bytes) == 0;
}

ptx_type ptx_type_find(const char *text, size_t bytes)
{
    for (unsigned i = 1; i < PTX_TYPE_COUNT; i++) {
        if (is_text(types[i].text, text, bytes)) {
            return (ptx_type)i;
        }
    }
    return PTX_NO_TYPE;
}

/* Types that an instruction takes one of, by the names that patterns use. */
#define BIT(type) (UINT32_C(1) << PTX_##type)
#define I16       (BIT(U16) | BIT(S16))
#define I32       (BIT(U32) | BIT(S32))
#define I64       (BIT(U64) | BIT(S64))
#define B16_64    (BIT(B16) | BIT(B32) | BIT(B64))
#define SMALL     (BIT(F16) | BIT(F16X2) | BIT(BF16) | BIT(BF16X2))

static const struct {
    const char *name;
    uint32_t types;
} type_groups[] = {
    {"INT", I16 | I32 | I64},
    {"I16_32", I16 | I32},
    {"I32_64", I32 | I64},
    {"INT32", I32},
    {"SINT", BIT(S16) | BIT(S32) | BIT(S64)},
    {"INT8", BIT(U8) | BIT(S8) | I16 | I32 | I64},
    {"BITS", B16_64},
    {"B32_64", BIT(B32) | BIT(B64)},
    {"SHIFTED", B16_64 | I16 | I32 | I64},
    {"CHOSEN", B16_64 | I16 | I32 | I64 | BIT(F32) | BIT(F64)},
    {"MOVED", B16_64 | I16 | I32 | I64 | BIT(F32) | BIT(F64) | BIT(PRED)},
    {"STORED", BIT(B8) | BIT(U8) | BIT(S8) | B16_64 | I16 | I32 | I64 |
                   BIT(F32) | BIT(F64)},
    {"REAL", BIT(F16) | BIT(BF16) | BIT(F32) | BIT(F64)},
    {"HALF", BIT(F16) | BIT(F16X2)},
    {"BRAIN", BIT(BF16) | BIT(BF16X2)},
    {"F32_64", BIT(F32) | BIT(F64)},
    {"F16_64", BIT(F16) | BIT(F32) | BIT(F64)},
    {"PAIR", BIT(F16X2) | BIT(BF16X2)},
    {"FP8X2", BIT(E4M3X2) | BIT(E5M2X2)},
    {"ADDED", I32 | BIT(U64) | BIT(F32) | BIT(F64) | SMALL},
};

uint32_t ptx_word_types(const char *group, size_t bytes)
{
    for (size_t i = 0; i < WEFTI_COUNT_OF(type_groups); i++) {
        if (is_text(type_groups[i].name, group, bytes)) {
            return type_groups[i].types;
        }
    }
    return 0;
}

static const ptx_word words[] = {
    {"RND", "rn", PTX_ROUND, PTX_NEAREST},
    {"RND", "rz", PTX_ROUND, PTX_TO_ZERO},
    {"RND", "rm", PTX_ROUND, PTX_DOWN},
    {"RND", "rp", PTX_ROUND, PTX_UP},
    {"RNDZ", "rn", PTX_ROUND, PTX_NEAREST},
    {"RNDZ", "rz", PTX_ROUND, PTX_TO_ZERO},
    {"RNDA", "rna", PTX_ROUND, PTX_AWAY},
    {"RNDA", "rn", PTX_ROUND, PTX_NEAREST},
    {"RNDA", "rz", PTX_ROUND, PTX_TO_ZERO},
    {"RNDI", "rni", PTX_ROUND, PTX_NEAREST},
    {"RNDI", "rzi", PTX_ROUND, PTX_TO_ZERO},
    {"RNDI", "rmi", PTX_ROUND, PTX_DOWN},
    {"RNDI", "rpi", PTX_ROUND, PTX_UP},

    {"CMP", "eq", PTX_COMPARE, PTX_EQ},
    {"CMP", "ne", PTX_COMPARE, PTX_NE},
    {"CMP", "lt", PTX_COMPARE, PTX_LT},
    {"CMP", "le", PTX_COMPARE, PTX_LE},
    {"CMP", "gt", PTX_COMPARE, PTX_GT},
    {"CMP", "ge", PTX_COMPARE, PTX_GE},
    {"CMPF", "eq", PTX_COMPARE, PTX_EQ},
    {"CMPF", "ne", PTX_COMPARE, PTX_NE},
    {"CMPF", "lt", PTX_COMPARE, PTX_LT},
    {"CMPF", "le", PTX_COMPARE, PTX_LE},
    {"CMPF", "gt", PTX_COMPARE, PTX_GT},
    {"CMPF", "ge", PTX_COMPARE, PTX_GE},
    {"CMPF", "equ", PTX_COMPARE, PTX_EQU},
    {"CMPF", "neu", PTX_COMPARE, PTX_NEU},
    {"CMPF", "ltu", PTX_COMPARE, PTX_LTU},
    {"CMPF", "leu", PTX_COMPARE, PTX_LEU},
    {"CMPF", "gtu", PTX_COMPARE, PTX_GTU},
    {"CMPF", "geu", PTX_COMPARE, PTX_GEU},
    {"CMPF", "num", PTX_COMPARE, PTX_NUM},
    {"CMPF", "nan", PTX_COMPARE, PTX_IS_NAN},
    {"CMPEQ", "eq", PTX_COMPARE, PTX_EQ},
    {"CMPEQ", "ne", PTX_COMPARE, PTX_NE},
    {"CMPLO", "lo", PTX_COMPARE, PTX_LO},
    {"CMPLO", "ls", PTX_COMPARE, PTX_LS},
    {"CMPLO", "hi", PTX_COMPARE, PTX_HI},
    {"CMPLO", "hs", PTX_COMPARE, PTX_HS},

    {"BOOL", "and", PTX_OPERATION, PTX_AND},
    {"BOOL", "or", PTX_OPERATION, PTX_OR},
    {"BOOL", "xor", PTX_OPERATION, PTX_XOR},
    {"BOTH", "and", PTX_OPERATION, PTX_AND},
    {"BOTH", "or", PTX_OPERATION, PTX_OR},
    {"BITOP", "and", PTX_OPERATION, PTX_AND},
    {"BITOP", "or", PTX_OPERATION, PTX_OR},
    {"BITOP", "xor", PTX_OPERATION, PTX_XOR},
    {"BITOP", "exch", PTX_OPERATION, PTX_EXCH},
    {"MINMAX", "min", PTX_OPERATION, PTX_MIN},
    {"MINMAX", "max", PTX_OPERATION, PTX_MAX},
    {"SUMMED", "add", PTX_OPERATION, PTX_ADD},
    {"SUMMED", "min", PTX_OPERATION, PTX_MIN},
    {"SUMMED", "max", PTX_OPERATION, PTX_MAX},
    {"WRAPPED", "inc", PTX_OPERATION, PTX_INC},
    {"WRAPPED", "dec", PTX_OPERATION, PTX_DEC},
    {"SHUFFLE", "idx", PTX_OPERATION, PTX_INDEX},
    {"SHUFFLE", "up", PTX_OPERATION, PTX_LANE_UP},
    {"SHUFFLE", "down", PTX_OPERATION, PTX_LANE_DOWN},
    {"SHUFFLE", "bfly", PTX_OPERATION, PTX_BUTTERFLY},
    {"VOTE", "all", PTX_OPERATION, PTX_ALL},
    {"VOTE", "any", PTX_OPERATION, PTX_ANY},
    {"VOTE", "uni", PTX_OPERATION, PTX_UNI},
    {"TESTED", "finite", PTX_OPERATION, 0},
    {"TESTED", "infinite", PTX_OPERATION, 1},
    {"TESTED", "number", PTX_OPERATION, 2},
    {"TESTED", "notanumber", PTX_OPERATION, 3},
    {"TESTED", "normal", PTX_OPERATION, 4},
    {"TESTED", "subnormal", PTX_OPERATION, 5},

    {"SPACE", "global", PTX_SPACE, PTX_GLOBAL},
    {"SPACE", "shared", PTX_SPACE, PTX_SHARED},
    {"SPACE", "shared::cta", PTX_SPACE, PTX_SHARED},
    {"SPACE", "local", PTX_SPACE, PTX_LOCAL},
    {"SPACE", "param", PTX_SPACE, PTX_PARAM},
    {"SPACE", "param::entry", PTX_SPACE, PTX_PARAM},
    {"SPACE", "param::func", PTX_SPACE, PTX_PARAM},
    {"SPACE", "const", PTX_SPACE, PTX_CONST},
    {"ASPACE", "global", PTX_SPACE, PTX_GLOBAL},
    {"ASPACE", "shared", PTX_SPACE, PTX_SHARED},
    {"ASPACE", "shared::cta", PTX_SPACE, PTX_SHARED},
    {"VEC", "v2", PTX_VECTOR, 2},
    {"VEC", "v4", PTX_VECTOR, 4},
    {"SHFKIND", "wrap", PTX_FLAGS, 0},
    {"SHFKIND", "clamp", PTX_FLAGS, PTX_CLAMP},

    /* What changes nothing here: one thing happens after the other. */
    {"CACHE", "ca", PTX_FLAGS, 0},
    {"CACHE", "cg", PTX_FLAGS, 0},
    {"CACHE", "cs", PTX_FLAGS, 0},
    {"CACHE", "lu", PTX_FLAGS, 0},
    {"CACHE", "cv", PTX_FLAGS, 0},
    {"WCACHE", "wb", PTX_FLAGS, 0},
    {"WCACHE", "cg", PTX_FLAGS, 0},
    {"WCACHE", "cs", PTX_FLAGS, 0},
    {"WCACHE", "wt", PTX_FLAGS, 0},
    {"EVICT", "L1::evict_normal", PTX_FLAGS, 0},
    {"EVICT", "L1::evict_unchanged", PTX_FLAGS, 0},
    {"EVICT", "L1::evict_first", PTX_FLAGS, 0},
    {"EVICT", "L1::evict_last", PTX_FLAGS, 0},
    {"EVICT", "L1::no_allocate", PTX_FLAGS, 0},
    {"FETCH", "L2::64B", PTX_FLAGS, 0},
    {"FETCH", "L2::128B", PTX_FLAGS, 0},
    {"FETCH", "L2::256B", PTX_FLAGS, 0},
    {"SCOPE", "cta", PTX_FLAGS, 0},
    {"SCOPE", "cluster", PTX_FLAGS, 0},
    {"SCOPE", "gpu", PTX_FLAGS, 0},
    {"SCOPE", "sys", PTX_FLAGS, 0},
    {"BARSCOPE", "cta", PTX_FLAGS, 0},
    {"BARSCOPE", "gl", PTX_FLAGS, 0},
    {"BARSCOPE", "sys", PTX_FLAGS, 0},
    {"FENCED", "sc", PTX_FLAGS, 0},
    {"FENCED", "acq_rel", PTX_FLAGS, 0},
    {"AORDER", "relaxed", PTX_FLAGS, 0},
    {"AORDER", "acquire", PTX_FLAGS, PTX_ORDERS},
    {"AORDER", "release", PTX_FLAGS, PTX_ORDERS},
    {"AORDER", "acq_rel", PTX_FLAGS, PTX_ORDERS},
    {"RORDER", "relaxed", PTX_FLAGS, 0},
    {"RORDER", "release", PTX_FLAGS, PTX_ORDERS},
    {"LORDER", "relaxed", PTX_FLAGS, 0},
    {"LORDER", "acquire", PTX_FLAGS, PTX_ORDERS},
    {"SORDER", "relaxed", PTX_FLAGS, 0},
    {"SORDER", "release", PTX_FLAGS, PTX_ORDERS},

    {NULL, "ftz", PTX_FLAGS, PTX_FTZ},
    {NULL, "sat", PTX_FLAGS, PTX_SAT},
    {NULL, "satfinite", PTX_FLAGS, PTX_SAT},
    {NULL, "volatile", PTX_FLAGS, PTX_ORDERS},
    {NULL, "relu", PTX_FLAGS, PTX_RELU},
    {NULL, "NaN", PTX_FLAGS, PTX_NAN},
};

const ptx_word *ptx_word_find(const char *group, size_t group_bytes,
                              const char *text, size_t bytes)
{
    for (size_t i = 0; i < WEFTI_COUNT_OF(words); i++) {
        if ((group
                 ? words[i].group && is_text(words[i].group, group, group_bytes)
                 : !words[i].group) &&
            is_text(words[i].text, text, bytes)) {
            return &words[i];
        }
    }
    return NULL;
}
