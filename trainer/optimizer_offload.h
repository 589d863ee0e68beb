/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/optimizer_offload.h - the state of an optimizer in the host's memory,
 * brought to the device by pieces while others are computed on and taken back.
 *
 *   in        piece 0 | piece 1 | piece 2 | ...
 *   compute             update 0| update 1| ...
 *   out                           piece 0 | piece 1 | ...
 *
 * Two pieces have room on the device, so both directions of the bus are used;
 * what a piece's update computes is the same as without.
 */
#ifndef TRAINER_OPTIMIZER_OFFLOAD_H
#define TRAINER_OPTIMIZER_OFFLOAD_H

#include "kernels/math/real.h"
#include "weft/device.h"

#include <stdint.h>

enum { WEFTI_OFFLOAD_ARRAYS_MOST = 3 };

/* One of the two pieces that there is room for. */
typedef struct wefti_offload_room {
    real *arrays[WEFTI_OFFLOAD_ARRAYS_MOST];
    weft_event *brought, *updated, *taken;
} wefti_offload_room;

typedef struct wefti_offload {
    weft_device *device;
    weft_stream *compute, *in, *out;
    size_t arrays, piece_elems;
    real *host[WEFTI_OFFLOAD_ARRAYS_MOST];
    wefti_offload_room rooms[2];
    uint64_t pieces;   /* so far */
    size_t last_first; /* of the last one */
} wefti_offload;

/*
 * wefti_offload_create - arrays of elems elements each, zeros, in the host's
 * memory, and room on the device for two pieces of them.
 *
 * given       device, compute: borrowed; arrays, piece_elems
 *
 * Returns     OK | ERR_NO_MEMORY | as weft/device.h.
 */
WEFT_NODISCARD weft_status wefti_offload_create(const wefti_offload *given,
                                                size_t elems,
                                                wefti_offload **out);
void wefti_offload_destroy(wefti_offload *offload); /* NULL is legal */

/*
 * wefti_offload_bring  elements first .. of all arrays, at most piece_elems, to
 *                      the device, before what is queued on compute next.
 *                      arrays_out[arrays]: where they are there.
 * wefti_offload_take   takes them back after what is queued on compute.
 * wefti_offload_wait   until the host has them.
 *
 * Pieces come round in one order, step by step.
 *
 * Returns     as weft_device_copy. Blocks: wait.
 */
WEFT_NODISCARD weft_status wefti_offload_bring(wefti_offload *offload,
                                               size_t first, size_t elems,
                                               real **arrays_out);
WEFT_NODISCARD weft_status wefti_offload_take(wefti_offload *offload,
                                              size_t first, size_t elems);
WEFT_NODISCARD weft_status wefti_offload_wait(wefti_offload *offload);

#endif
