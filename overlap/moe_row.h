/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/moe_row.h - one row of a token on its way to experts.
 *
 *   header   source rank, token, experts[slots], weights[slots]
 *   then     hidden elements of dtype, or
 *            [scales: an f32 for each 128 elements][hidden elements of f8e4m3]
 *
 * A scale is the block's largest magnitude / 448, 1 where that is 0; an element
 * is x / scale, rounded. So none of them overflows, and what is not finite
 * stays so.
 */
#ifndef OVERLAP_MOE_ROW_H
#define OVERLAP_MOE_ROW_H

#include "weft/types.h"

#include <stddef.h>
#include <stdint.h>

enum { WEFTI_MOE_BLOCK = 128 /* elements of a scale */ };

typedef struct wefti_moe_header {
    int32_t source, token;
} wefti_moe_header;

/* Bytes of header and of what stands behind it. */
size_t wefti_moe_header_bytes(int slots);
size_t wefti_moe_payload_bytes(size_t hidden, weft_dtype dtype,
                               weft_dtype wire);

void wefti_moe_header_pack(void *row, wefti_moe_header header,
                           const int32_t *experts, const float *weights,
                           int slots);
/* experts_out and weights_out: [slots], or NULL. */
wefti_moe_header wefti_moe_header_unpack(const void *row, int32_t *experts_out,
                                         float *weights_out, int slots);

/* Elements of dtype to a payload and back; scratch: [hidden]. */
void wefti_moe_payload_pack(void *payload, const void *elements, size_t hidden,
                            weft_dtype dtype, weft_dtype wire, float *scratch);
void wefti_moe_payload_unpack(void *elements, const void *payload,
                              size_t hidden, weft_dtype dtype, weft_dtype wire,
                              float *scratch);

#endif
