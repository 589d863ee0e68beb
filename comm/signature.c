/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/signature.c - pack, compare and print what ranks must agree on.
 */
#include "comm/signature.h"

#include "comm/pattern/shape.h"
#include "comm/reduction.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static_assert(WEFT_COLLECTIVE_COUNT <= 256 && WEFT_DTYPE_COUNT <= 256 &&
                  WEFT_REDOP_USER_END <= 256,
              "each has one byte of a signature");

wefti_signature wefti_signature_pack(const weft_op *op, uint8_t choice)
{
    uint64_t kind = (uint64_t)op->collective | (uint64_t)op->dtype << 8 |
                    (uint64_t)choice << 24;
    const wefti_shape *shape = wefti_shape_get(op->collective);
    if (shape->reduces) {
        kind |= (uint64_t)op->redop << 16;
    }
    /* A peer is seen from two sides, so it is no part of what must agree. */
    if (shape->rooted) {
        kind |= (uint64_t)(uint32_t)op->root << 32;
    }
    if (shape->varied) {
        return (wefti_signature){0, kind, 0}; /* counts agree pair by pair */
    }
    size_t cut = op->gate_elems < op->count ? op->gate_elems : 0;
    return (wefti_signature){op->count, kind, cut};
}

static const char *const purpose_names[WEFTI_PURPOSE_COUNT] = {
    [WEFTI_PURPOSE_CREATE] = "weft_comm_create",
    [WEFTI_PURPOSE_SPLIT] = "weft_comm_split",
    [WEFTI_PURPOSE_MEM_CREATE] = "weft_mem_create",
    [WEFTI_PURPOSE_REDOP] = "weft_redop_create_user",
    [WEFTI_PURPOSE_PUT] = "put on memory",
    [WEFTI_PURPOSE_SIGNAL] = "signal on memory",
    [WEFTI_PURPOSE_WAIT] = "wait on memory",
};

/* NULL: the user's own. */
static const char *purpose_name(uint64_t kind)
{
    uint64_t purpose = kind >> 56;
    return purpose < WEFTI_PURPOSE_COUNT ? purpose_names[purpose] : NULL;
}

const char *wefti_signature_name(uint64_t kind)
{
    const char *purpose = purpose_name(kind);
    return purpose ? purpose
                   : weft_collective_text((weft_collective)(kind & 0xff));
}

/* Appends to text, which always ends in a zero byte. */
static void append(char *text, size_t text_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t text_bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, text_bytes - used, format, args);
    va_end(args);
}

void wefti_signature_text(const weft_comm *comm, wefti_signature signature,
                          char *text_out, size_t text_bytes)
{
    const char *purpose = purpose_name(signature.kind);
    weft_collective collective = (weft_collective)(signature.kind & 0xff);
    weft_dtype dtype = (weft_dtype)(signature.kind >> 8 & 0xff);
    weft_redop redop = (weft_redop)(signature.kind >> 16 & 0xff);
    int root = (int)(signature.kind >> 32 & 0xffffff);
    text_out[0] = '\0';
    if ((unsigned)collective >= WEFT_COLLECTIVE_COUNT) {
        append(text_out, text_bytes, "collective %d", (int)collective);
        return;
    }
    const wefti_shape *shape = wefti_shape_get(collective);
    if (purpose) {
        append(text_out, text_bytes, "%s (", purpose);
    }
    append(text_out, text_bytes, "%s", weft_collective_text(collective));
    if (collective != WEFT_COLLECTIVE_BARRIER && !shape->varied) {
        append(text_out, text_bytes, " of %llu",
               (unsigned long long)signature.count);
    }
    if (collective != WEFT_COLLECTIVE_BARRIER) {
        append(text_out, text_bytes, "%s%s", shape->varied ? " of " : " ",
               weft_dtype_text(dtype));
    }
    if (shape->reduces) {
        char name[48];
        wefti_reduction_text(comm, redop, name, sizeof(name));
        append(text_out, text_bytes, ", %s", name);
    }
    if (shape->rooted) {
        append(text_out, text_bytes, ", root %d", root);
    }
    if (signature.cut) {
        append(text_out, text_bytes, ", gate_elems %llu",
               (unsigned long long)signature.cut);
    }
    if (purpose) {
        append(text_out, text_bytes, ")");
    }
}
