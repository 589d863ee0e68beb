/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/types.c - sizes and names of the public enums, from their lists.
 */
#include "weft/types.h"
#include "weft/version.h"

#include <stdbool.h>

#define TEXT_OF(x)            #x
#define VERSION_TEXT(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

/* What the list of types says of each. */
static const struct {
    size_t bytes;
    weft_kind kind;
} dtypes[WEFT_DTYPE_COUNT] = {
#define DTYPE_ROW(name, bytes, text, kind) {bytes, WEFT_KIND_##kind},
    WEFT_DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};

size_t weft_dtype_bytes(weft_dtype dtype)
{
    return (unsigned)dtype < WEFT_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

weft_kind weft_dtype_kind(weft_dtype dtype)
{
    return (unsigned)dtype < WEFT_DTYPE_COUNT ? dtypes[dtype].kind
                                              : WEFT_KIND_FLOAT;
}

const char *weft_dtype_text(weft_dtype dtype)
{
    switch (dtype) {
#define DTYPE_CASE(name, bytes, text, kind)                                    \
    case WEFT_DTYPE_##name:                                                    \
        return text;
        WEFT_DTYPE_LIST(DTYPE_CASE)
#undef DTYPE_CASE
    default:
        return "?";
    }
}

int weft_redop_applies(weft_redop redop, weft_dtype dtype)
{
    if ((unsigned)redop >= WEFT_REDOP_COUNT ||
        (unsigned)dtype >= WEFT_DTYPE_COUNT) {
        return 0;
    }
    bool bitwise = redop == WEFT_REDOP_BAND || redop == WEFT_REDOP_BOR ||
                   redop == WEFT_REDOP_BXOR;
    return !bitwise || weft_dtype_kind(dtype) != WEFT_KIND_FLOAT;
}

const char *weft_redop_text(weft_redop redop)
{
    switch (redop) {
#define REDOP_CASE(name, text)                                                 \
    case WEFT_REDOP_##name:                                                    \
        return text;
        WEFT_REDOP_LIST(REDOP_CASE)
#undef REDOP_CASE
    default:
        return "?";
    }
}

const char *weft_collective_text(weft_collective collective)
{
    switch (collective) {
#define COLLECTIVE_CASE(name, text)                                            \
    case WEFT_COLLECTIVE_##name:                                               \
        return text;
        WEFT_COLLECTIVE_LIST(COLLECTIVE_CASE)
#undef COLLECTIVE_CASE
    default:
        return "?";
    }
}

const char *weft_class_text(weft_class class_id)
{
    switch (class_id) {
#define CLASS_CASE(name, text)                                                 \
    case WEFT_CLASS_##name:                                                    \
        return text;
        WEFT_CLASS_LIST(CLASS_CASE)
#undef CLASS_CASE
    default:
        return "?";
    }
}

const char *weft_version_text(void)
{
    return VERSION_TEXT(WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR,
                        WEFT_VERSION_PATCH);
}
