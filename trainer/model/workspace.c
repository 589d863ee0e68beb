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

weft_status wefti_workspace_init(wefti_workspace *workspace,
                                 weft_device *device, weft_stream *compute,
                                 const wefti_model_shape *shape,
                                 size_t sequences)
{
    size_t turns = shape->seq * shape->head_dim;
    *workspace = (wefti_workspace){.device = device,
                                   .compute = compute,
                                   .sequences = sequences,
                                   .arena_elems = turns};
    weft_status status = alloc(workspace, turns, &workspace->rope);
    const wefti_math_tensor table = wefti_math_rows(
        workspace->rope, WEFTI_REAL_DTYPE, shape->seq, shape->head_dim);
    return status == WEFT_OK ? wefti_stream_rope_table(compute, &table, NULL, 0,
                                                       shape->rope_theta)
                             : status;
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
    weft_status status = reserve_woven(workspace, program);
    for (size_t i = WEFTI_REGION_SLOT + 1;
         i < WEFTI_REGIONS && status == WEFT_OK; i++) {
        size_t elems = program->elems[i];
        if (elems <= workspace->elems[i]) {
            continue;
        }
        wefti_storage_free_on(workspace->device, workspace->regions[i]);
        workspace->arena_elems += elems - workspace->elems[i];
        workspace->elems[i] = elems;
        status = alloc(workspace, elems, &workspace->regions[i]);
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
    *workspace = (wefti_workspace){0};
}
