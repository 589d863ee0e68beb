/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/moe_row.c - rows as bytes; every access is a copy, so that nothing
 * needs to be aligned.
 */
#include "overlap/moe_row.h"

#include "kernels/wire/reduce.h"

#include <math.h>
#include <string.h>

#define F8_MOST 448.0f

size_t wefti_moe_header_bytes(int slots)
{
    return sizeof(wefti_moe_header) +
           (size_t)slots * (sizeof(int32_t) + sizeof(float));
}

static size_t scale_count(size_t hidden)
{
    return (hidden + WEFTI_MOE_BLOCK - 1) / WEFTI_MOE_BLOCK;
}

size_t wefti_moe_payload_bytes(size_t hidden, weft_dtype dtype, weft_dtype wire)
{
    return wire == dtype ? hidden * weft_dtype_bytes(dtype)
                         : scale_count(hidden) * sizeof(float) + hidden;
}

void wefti_moe_header_pack(void *row, wefti_moe_header header,
                           const int32_t *experts, const float *weights,
                           int slots)
{
    unsigned char *at = row;
    const size_t count = (size_t)slots;
    memcpy(at, &header, sizeof(header));
    at += sizeof(header);
    memcpy(at, experts, count * sizeof(*experts));
    memcpy(at + count * sizeof(*experts), weights, count * sizeof(*weights));
}

wefti_moe_header wefti_moe_header_unpack(const void *row, int32_t *experts_out,
                                         float *weights_out, int slots)
{
    const unsigned char *at = row;
    const size_t count = (size_t)slots;
    wefti_moe_header header;
    memcpy(&header, at, sizeof(header));
    at += sizeof(header);
    if (experts_out) {
        memcpy(experts_out, at, count * sizeof(*experts_out));
    }
    if (weights_out) {
        memcpy(weights_out, at + count * sizeof(*experts_out),
               count * sizeof(*weights_out));
    }
    return header;
}

static size_t block_elems(size_t hidden, size_t block)
{
    const size_t left = hidden - block * WEFTI_MOE_BLOCK;
    return left < WEFTI_MOE_BLOCK ? left : WEFTI_MOE_BLOCK;
}

static float scale_of(const float *elements, size_t count)
{
    float most = 0;
    for (size_t i = 0; i < count; i++) {
        const float magnitude = fabsf(elements[i]);
        most = magnitude > most ? magnitude : most;
    }
    const float scale = most / F8_MOST;
    return scale > 0 && isfinite(scale) ? scale : 1;
}

void wefti_moe_payload_pack(void *payload, const void *elements, size_t hidden,
                            weft_dtype dtype, weft_dtype wire, float *scratch)
{
    if (wire == dtype) {
        memcpy(payload, elements, hidden * weft_dtype_bytes(dtype));
        return;
    }
    unsigned char *scales = payload;
    unsigned char *codes = scales + scale_count(hidden) * sizeof(float);
    wefti_widen(scratch, elements, hidden, dtype);
    for (size_t block = 0; block < scale_count(hidden); block++) {
        const size_t count = block_elems(hidden, block);
        float *first = scratch + block * WEFTI_MOE_BLOCK;
        const float scale = scale_of(first, count);
        memcpy(scales + block * sizeof(scale), &scale, sizeof(scale));
        for (size_t i = 0; i < count; i++) {
            /* The largest may come out a hair above 448: it stays there. */
            const float code = first[i] / scale;
            first[i] = code > F8_MOST && isfinite(code)    ? F8_MOST
                       : code < -F8_MOST && isfinite(code) ? -F8_MOST
                                                           : code;
        }
    }
    wefti_narrow(codes, scratch, 1, hidden, WEFT_DTYPE_F8E4M3, WEFT_REDOP_SUM);
}

void wefti_moe_payload_unpack(void *elements, const void *payload,
                              size_t hidden, weft_dtype dtype, weft_dtype wire,
                              float *scratch)
{
    if (wire == dtype) {
        memcpy(elements, payload, hidden * weft_dtype_bytes(dtype));
        return;
    }
    const unsigned char *scales = payload;
    const unsigned char *codes = scales + scale_count(hidden) * sizeof(float);
    wefti_widen(scratch, codes, hidden, WEFT_DTYPE_F8E4M3);
    for (size_t block = 0; block < scale_count(hidden); block++) {
        float scale;
        memcpy(&scale, scales + block * sizeof(scale), sizeof(scale));
        for (size_t i = 0; i < block_elems(hidden, block); i++) {
            scratch[block * WEFTI_MOE_BLOCK + i] *= scale;
        }
    }
    wefti_narrow(elements, scratch, 1, hidden, dtype, WEFT_REDOP_SUM);
}
