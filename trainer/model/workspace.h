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
    struct wefti_experts *experts;  /* borrowed, as in wefti_program_pass */
    double *loads;                  /* borrowed, likewise */
    real *regions[WEFTI_REGIONS];   /* but the slot's */
    size_t elems[WEFTI_REGIONS];
    /* [parts][tokens] of cross_entropy.h; NULL: the vocabulary is not shared */
    real *summaries;
    const wefti_node_link *links; /* [WEFTI_LINKS] borrowed; NULL: none */
    bool idle;                    /* as in wefti_program_pass */
    int64_t again_ns;        /* of the host, in nodes that have run again */
    wefti_weave_step *woven; /* room for any pair of the stages */
    size_t woven_room;
} wefti_workspace;

/* Returns as wefti_storage_alloc_on; fini is legal in any case. */
WEFT_NODISCARD weft_status wefti_workspace_init(wefti_workspace *workspace,
                                                weft_device *device,
                                                weft_stream *compute,
                                                const wefti_model_shape *shape,
                                                size_t sequences);

/* wefti_workspace_share - room for the losses of a vocabulary in parts. */
WEFT_NODISCARD weft_status wefti_workspace_share(wefti_workspace *workspace,
                                                 size_t tokens, size_t parts);
void wefti_workspace_fini(wefti_workspace *workspace);

/*
 * wefti_workspace_reserve - what a planned program's passes will need, which
 * wefti_workspace_alloc, once all are planned, makes room for: memory that is
 * being cleared on a stream cannot be exchanged for more. Both return OK |
 * ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_workspace_reserve(
    wefti_workspace *workspace, const wefti_program *program);
WEFT_NODISCARD weft_status wefti_workspace_alloc(wefti_workspace *workspace);

#endif
