/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/signature_text.c - for the texts of faults and of dumps.
 */
#include "comm/steps/signature_text.h"

#include "comm/pattern/shape.h"
#include "comm/steps/reduction.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
    const char *purpose = wefti_signature_purpose(signature.kind);
    weft_collective collective = (weft_collective)(signature.kind & 0xff);
    weft_dtype dtype = (weft_dtype)(signature.kind >> 8 & 0xff);
    weft_redop redop = (weft_redop)(signature.kind >> 16 & 0xff);
    const int root = (int)wefti_signature_root(signature);
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
    const uint64_t elems =
        signature.cut & ~(WEFTI_CUT_DOWN | WEFTI_CUT_DEFERRED);
    if (elems) {
        append(text_out, text_bytes, ", gate_elems %llu",
               (unsigned long long)elems);
    }
    if (signature.cut & WEFTI_CUT_DEFERRED) {
        append(text_out, text_bytes, ", deferred counts");
    }
    if (signature.cut & WEFTI_CUT_DOWN) {
        append(text_out, text_bytes, ", chunk_order descending");
    }
    if (purpose) {
        append(text_out, text_bytes, ")");
    }
}
