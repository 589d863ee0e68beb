/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/signature.c - pack, compare and print what ranks must agree on.
 */
#include "comm/signature.h"

#include "comm/pattern/shape.h"
#include "comm/reduction.h"

#include <assert.h>
#include <stdio.h>

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

weft_collective wefti_signature_collective(wefti_signature signature)
{
    return (weft_collective)(signature.kind & 0xff);
}

void wefti_signature_text(const weft_comm *comm, wefti_signature signature,
                          char *text_out, size_t text_bytes)
{
    weft_collective collective = wefti_signature_collective(signature);
    weft_dtype dtype = (weft_dtype)(signature.kind >> 8 & 0xff);
    weft_redop redop = (weft_redop)(signature.kind >> 16 & 0xff);
    unsigned choice = (unsigned)(signature.kind >> 24 & 0xff);
    int root = (int)(signature.kind >> 32);
    if ((unsigned)collective >= WEFT_COLLECTIVE_COUNT) {
        snprintf(text_out, text_bytes, "collective %d", (int)collective);
        return;
    }
    const wefti_shape *shape = wefti_shape_get(collective);
    int used = collective == WEFT_COLLECTIVE_BARRIER
                   ? snprintf(text_out, text_bytes, "barrier")
               : shape->varied ? snprintf(text_out, text_bytes, "%s of %s",
                                          weft_collective_text(collective),
                                          weft_dtype_text(dtype))
                               : snprintf(text_out, text_bytes, "%s of %llu %s",
                                          weft_collective_text(collective),
                                          (unsigned long long)signature.count,
                                          weft_dtype_text(dtype));
    if (shape->reduces && used >= 0 && (size_t)used < text_bytes) {
        char name[48];
        wefti_reduction_text(comm, redop, name, sizeof(name));
        used +=
            snprintf(text_out + used, text_bytes - (size_t)used, ", %s", name);
    }
    if (shape->rooted && used >= 0 && (size_t)used < text_bytes) {
        used += snprintf(text_out + used, text_bytes - (size_t)used,
                         ", root %d", root);
    }
    if (signature.cut && used >= 0 && (size_t)used < text_bytes) {
        used +=
            snprintf(text_out + used, text_bytes - (size_t)used,
                     ", gate_elems %llu", (unsigned long long)signature.cut);
    }
    if (choice && used >= 0 && (size_t)used < text_bytes) {
        snprintf(text_out + used, text_bytes - (size_t)used, ", choice %u",
                 choice);
    }
}
