/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/weave.h - F of one micro-batch and B of another as one order
 * of steps, by a template of blocks:
 *
 *   F    attention 0               ffn 0                       attention 1
 *   B                 ffn L-1 I, W        attention L-1 I, W               ...
 *
 * so that what one of them has posted is under way while the other computes.
 * What the template does not name goes with the block after it, and what is
 * left of a program when the other has ended follows. An AWAIT that is not
 * satisfied lets the other program go on, but never past a POST of a class in
 * which the woven order has another one first: ranks post in that order.
 *
 * Source: NVIDIA/Megatron-LM, megatron/core/models/common/
 * model_chunk_schedule_plan.py (forward layer l beside backward layer L-1-l).
 */
#ifndef TRAINER_PROGRAM_WEAVE_H
#define TRAINER_PROGRAM_WEAVE_H

#include "trainer/program/program_run.h"

/* The next block of that name in one of the two: its steps of that call. */
typedef struct wefti_weave_row {
    bool backward;
    wefti_call call;
    const char *block;
} wefti_weave_row;

/* Of the decoder's blocks; used again and again. */
extern const wefti_weave_row wefti_weave_template[];
extern const size_t wefti_weave_template_rows;

/* A step of F's order, or of B's. */
typedef struct wefti_weave_step {
    bool backward;
    size_t step;
} wefti_weave_step;

/*
 * wefti_weave_plan - all steps of F of one program and B of another, woven;
 * each keeps its own order. The programs are planned and may be one.
 *
 * woven_out   [steps of both]
 */
void wefti_weave_plan(const wefti_program *forward,
                      const wefti_program *backward,
                      const wefti_weave_row *rows, size_t row_count,
                      wefti_weave_step *woven_out);

/*
 * wefti_weave_run - both passes, in their regions: slots differ.
 *
 * Returns     OK | the first error of a node or a hook.
 */
WEFT_NODISCARD weft_status wefti_weave_run(const wefti_program_pass *forward,
                                           const wefti_program_pass *backward,
                                           const wefti_weave_step *woven);

#endif
