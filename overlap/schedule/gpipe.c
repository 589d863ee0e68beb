/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/gpipe.c - GPipe: all forwards, then all backwards.
 *
 * Source: Huang et al., "GPipe", arXiv 1811.06965.
 */
#include "overlap/schedule/generator.h"

static void write_rank(wefti_pen *pen, int rank, int microbatches)
{
    pen->step = 1;
    for (int i = 0; i < microbatches; i++) {
        wefti_pen_put(pen, WEFT_ACTION_F, rank, i);
    }
    pen->step = 2;
    for (int i = 0; i < microbatches; i++) {
        wefti_pen_put(pen, WEFT_ACTION_B, rank, i);
    }
}

weft_status wefti_generate_gpipe(const weft_schedule_config *config,
                                 weft_schedule **schedule_out)
{
    weft_status status = wefti_generate_chunks(config, 1);
    if (status == WEFT_OK) {
        status = wefti_schedule_make("gpipe", config->ranks, config->ranks, 1,
                                     config->microbatches, schedule_out);
    }
    if (status != WEFT_OK) {
        return status;
    }
    for (int r = 0; r < config->ranks; r++) {
        wefti_pen pen = {&(*schedule_out)->lists[r], 0};
        write_rank(&pen, r, config->microbatches);
    }
    return WEFT_OK;
}
