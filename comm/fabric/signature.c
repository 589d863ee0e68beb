/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/signature.c - pack what ranks must agree on, and name it.
 */
#include "comm/fabric/signature.h"

#include "comm/pattern/shape.h"

#include <assert.h>

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
        /* Counts agree pair by pair. */
        return (wefti_signature){0, kind,
                                 op->deferred_counts ? WEFTI_CUT_DEFERRED : 0};
    }
    uint64_t cut = op->gate_elems < op->count ? op->gate_elems : 0;
    if (cut && op->chunk_order == WEFT_CHUNK_ORDER_DESCENDING) {
        cut |= WEFTI_CUT_DOWN;
    }
    return (wefti_signature){op->count, kind, cut};
}

static const char *const purpose_names[WEFTI_PURPOSE_COUNT] = {
    [WEFTI_PURPOSE_CREATE] = "weft_comm_create",
    [WEFTI_PURPOSE_SPLIT] = "weft_comm_split",
    [WEFTI_PURPOSE_MEM_CREATE] = "weft_mem_create",
    [WEFTI_PURPOSE_MEM_REGISTER] = "weft_mem_register",
    [WEFTI_PURPOSE_REDOP] = "weft_redop_create_user",
    [WEFTI_PURPOSE_ROUTE] = "agreement on a route",
    [WEFTI_PURPOSE_PUT] = "put on memory",
    [WEFTI_PURPOSE_SIGNAL] = "signal on memory",
    [WEFTI_PURPOSE_WAIT] = "wait on memory",
};

const char *wefti_signature_purpose(uint64_t kind)
{
    uint64_t purpose = kind >> 56;
    return purpose < WEFTI_PURPOSE_COUNT ? purpose_names[purpose] : NULL;
}

const char *wefti_signature_name(uint64_t kind)
{
    const char *purpose = wefti_signature_purpose(kind);
    return purpose ? purpose
                   : weft_collective_text((weft_collective)(kind & 0xff));
}
