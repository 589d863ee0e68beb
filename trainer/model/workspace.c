/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/workspace.c - the scratch memory of a rank.
 */
#include "trainer/model/workspace.h"

#include "base/error.h"
#include "kernels/math/cross_entropy.h"
#include "kernels/math/math_stream.h"
#include "trainer/model/storage.h"

#include <stdlib.h>

static weft_status alloc(const wefti_workspace *own, size_t elems, real **out)
{
    return wefti_storage_alloc_on(own->device, own->compute, elems, out);
}

/* Where a place's tokens stand in their sequence; all are in order. */
static weft_status place_tokens(wefti_workspace *workspace,
                                const wefti_model_shape *shape, size_t tokens)
{
    const wefti_context *context = &shape->context;
    if (wefti_context_ring(context) == 1) {
        return WEFT_OK;
    }
    const size_t bytes = tokens * sizeof(int32_t);
    void *made = NULL;
    int32_t *here = malloc(bytes);
    weft_status status =
        here ? weft_device_alloc(workspace->device, bytes, &made)
             : wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu positions",
                           tokens);
    workspace->positions = made;
    for (size_t i = 0; here && i < tokens; i++) {
        here[i] =
            (int32_t)wefti_context_attended_position(context, shape->seq, i);
    }
    if (status == WEFT_OK) {
        status = weft_device_copy(workspace->device, workspace->positions, here,
                                  bytes, NULL);
    }
    free(here);
    return status;
}

static weft_status turn_tokens(const wefti_workspace *workspace,
                               const wefti_model_shape *shape, size_t tokens)
{
    const wefti_math_tensor table = wefti_math_rows(
        workspace->rope, WEFTI_REAL_DTYPE, tokens, shape->head_dim);
    const wefti_math_tensor positions =
        wefti_math_flat(workspace->positions, WEFT_DTYPE_I32, tokens);
    return wefti_stream_rope_table(workspace->compute, &table,
                                   workspace->positions ? &positions : NULL, 0,
                                   shape->rope_theta);
}

weft_status wefti_workspace_init(wefti_workspace *workspace,
                                 weft_device *device, weft_stream *compute,
                                 const wefti_model_shape *shape,
                                 size_t sequences)
{
    const size_t tokens =
        wefti_context_attended(&shape->context, wefti_model_positions(shape));
    const size_t turns = tokens * shape->head_dim;
    *workspace = (wefti_workspace){.device = device,
                                   .compute = compute,
                                   .sequences = sequences,
                                   .arena_elems = turns};
    weft_status status = alloc(workspace, turns, &workspace->rope);
    if (status == WEFT_OK) {
        status = place_tokens(workspace, shape, tokens);
    }
    return status == WEFT_OK ? turn_tokens(workspace, shape, tokens) : status;
}

/* For F of any of the stages beside B of any. */
static weft_status reserve_woven(wefti_workspace *workspace,
                                 const wefti_program *program)
{
    size_t room = 2 * (program->orders[WEFTI_CALL_FORWARD].count +
                       program->orders[WEFTI_ORDER_BACKWARD].count);
    if (room <= workspace->woven_room) {
        return WEFT_OK;
    }
    free(workspace->woven);
    workspace->woven = calloc(room, sizeof(*workspace->woven));
    workspace->woven_room = workspace->woven ? room : 0;
    return workspace->woven ? WEFT_OK
                            : wefti_error(WEFT_ERR_NO_MEMORY,
                                          "no memory to weave %zu steps", room);
}

weft_status wefti_workspace_reserve(wefti_workspace *workspace,
                                    const wefti_program *program)
{
    for (size_t i = WEFTI_REGION_SLOT + 1; i < WEFTI_REGIONS; i++) {
        if (program->elems[i] > workspace->elems[i]) {
            workspace->elems[i] = program->elems[i];
        }
    }
    return reserve_woven(workspace, program);
}

weft_status wefti_workspace_alloc(wefti_workspace *workspace)
{
    weft_status status = WEFT_OK;
    for (size_t i = WEFTI_REGION_SLOT + 1;
         i < WEFTI_REGIONS && status == WEFT_OK; i++) {
        if (workspace->elems[i] > 0) {
            workspace->arena_elems += workspace->elems[i];
            status =
                alloc(workspace, workspace->elems[i], &workspace->regions[i]);
        }
    }
    return status;
}

weft_status wefti_workspace_share(wefti_workspace *workspace, size_t tokens,
                                  size_t parts)
{
    const size_t elems = parts * tokens * WEFTI_CROSS_ENTROPY_SUMMARY;
    workspace->arena_elems += elems;
    return alloc(workspace, elems, &workspace->summaries);
}

void wefti_workspace_fini(wefti_workspace *workspace)
{
    wefti_storage_free_on(workspace->device, workspace->summaries);
    for (size_t i = 0; i < WEFTI_REGIONS; i++) {
        wefti_storage_free_on(workspace->device, workspace->regions[i]);
    }
    free(workspace->woven);
    wefti_storage_free_on(workspace->device, workspace->rope);
    weft_device_free(workspace->device, workspace->positions);
    *workspace = (wefti_workspace){0};
}
