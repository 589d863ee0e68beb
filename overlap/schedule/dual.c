/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/dual.c - the steps of DualPipe's and DualPipeV's recipes.
 *
 * Source: deepseek-ai/DualPipe; DeepSeek-V3, arXiv 2412.19437, section 3.2.
 */
#include "overlap/schedule/dual.h"

#include "base/check.h"

void wefti_dual_f(wefti_dual *dual, int phase)
{
    wefti_action_writer_put(&dual->writer, WEFT_ACTION_F, dual->stage[phase],
                            dual->f[phase]++);
}

void wefti_dual_b(wefti_dual *dual, int phase)
{
    wefti_action_writer_put(&dual->writer, WEFT_ACTION_B, dual->stage[phase],
                            dual->b[phase]++);
}

void wefti_dual_i(wefti_dual *dual, int phase)
{
    wefti_action_writer_put(&dual->writer, WEFT_ACTION_I, dual->stage[phase],
                            dual->b[phase]++);
    dual->pending++;
}

void wefti_dual_fb(wefti_dual *dual, int f_phase, int b_phase)
{
    wefti_action_writer_add(
        &dual->writer,
        wefti_action_pair(dual->stage[f_phase], dual->f[f_phase]++,
                          dual->stage[b_phase], dual->b[b_phase]++));
}

void wefti_dual_w(wefti_dual *dual)
{
    const wefti_actions *list = dual->writer.list;
    WEFTI_ASSERT(dual->pending > 0 || list->failed);
    while (dual->w_from < list->count) {
        weft_action oldest = list->items[dual->w_from++];
        if (oldest.type == WEFT_ACTION_I) {
            wefti_action_writer_put(&dual->writer, WEFT_ACTION_W, oldest.stage,
                                    oldest.microbatch);
            dual->pending--;
            return;
        }
    }
}

void wefti_dual_backwards(wefti_dual *dual, int count, bool odd)
{
    for (int k = 0; k < count; k++) {
        bool late = k > count / 2;
        bool half = k == count / 2;
        if (late || (half && odd)) {
            wefti_dual_i(dual, 1);
        } else {
            wefti_dual_b(dual, 1);
        }
        if (late || half) {
            wefti_dual_i(dual, 0);
        } else {
            wefti_dual_b(dual, 0);
        }
    }
}
