/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/workspace.h - scratch memory of passes: one for all stages of a
 * rank, because a rank runs one pass at a time, or a forward and a backward by
 * turns of a step (trainer/program/program_plan.h: their regions lie apart).
 */
#ifndef TRAINER_MODEL_WORKSPACE_H
#define TRAINER_MODEL_WORKSPACE_H

#include "trainer/model/context_link.h"
#include "trainer/model/parameters.h"
#include "trainer/program/weave.h"

typedef struct wefti_workspace {
    weft_device *device;            /* borrowed */
    weft_stream *compute;           /* borrowed; NULL: the host, here and now */
    size_t sequences;               /* of a micro-batch, at most */
    size_t arena_elems;             /* of all below */
    real *rope;                     /* [attended][head_dim] cosines and sines */
    int32_t *positions;             /* [attended] of them; NULL: 0, 1, ... */
    const wefti_context_link *link; /* borrowed; NULL: sequences are whole */
    real *regions[WEFTI_REGIONS];   /* but the slot's */
    size_t elems[WEFTI_REGIONS];
    wefti_weave_step *woven; /* room for any pair of the stages */
    size_t woven_room;
} wefti_workspace;

/* Returns as wefti_storage_alloc_on; fini is legal in any case. */
WEFT_NODISCARD weft_status wefti_workspace_init(wefti_workspace *workspace,
                                                weft_device *device,
                                                weft_stream *compute,
                                                const wefti_model_shape *shape,
                                                size_t sequences);
void wefti_workspace_fini(wefti_workspace *workspace);

/*
 * wefti_workspace_reserve - room for a planned program's passes; no pass is
 * under way. Returns OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_workspace_reserve(
    wefti_workspace *workspace, const wefti_program *program);

#endif
