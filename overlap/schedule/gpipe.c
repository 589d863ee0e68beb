/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/gpipe.c - GPipe: all forwards, then all backwards.
 *
 * Source: Huang et al., "GPipe", arXiv 1811.06965.
 */
#include "overlap/schedule/generator.h"

static void write_rank(wefti_action_writer *writer, int rank, int ranks,
                       int microbatches)
{
    (void)ranks;
    writer->step = 1;
    for (int i = 0; i < microbatches; i++) {
        wefti_action_writer_put(writer, WEFT_ACTION_F, rank, i);
    }
    writer->step = 2;
    for (int i = 0; i < microbatches; i++) {
        wefti_action_writer_put(writer, WEFT_ACTION_B, rank, i);
    }
}

weft_status wefti_generate_gpipe(const weft_schedule_config *config,
                                 weft_schedule **schedule_out)
{
    return wefti_generate_line(config, write_rank, schedule_out);
}
