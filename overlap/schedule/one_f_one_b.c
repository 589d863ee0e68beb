/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/one_f_one_b.c - 1F1B: as many forwards as there are ranks
 * behind, then a forward and a backward in turn, then what is left.
 *
 * Source: Narayanan et al., arXiv 2104.04473, section 2.2.
 */
#include "overlap/schedule/generator.h"

static void write_rank(wefti_action_writer *writer, int rank, int ranks,
                       int microbatches)
{
    int ahead = ranks - 1 - rank;
    ahead = ahead < microbatches ? ahead : microbatches;
    int f = 0, b = 0;

    writer->step = 1; /* warm-up */
    while (f < ahead) {
        wefti_action_writer_put(writer, WEFT_ACTION_F, rank, f++);
    }
    writer->step = 2; /* steady */
    while (f < microbatches) {
        wefti_action_writer_put(writer, WEFT_ACTION_F, rank, f++);
        wefti_action_writer_put(writer, WEFT_ACTION_B, rank, b++);
    }
    writer->step = 3; /* drain */
    while (b < microbatches) {
        wefti_action_writer_put(writer, WEFT_ACTION_B, rank, b++);
    }
}

weft_status wefti_generate_1f1b(const weft_schedule_config *config,
                                weft_schedule **schedule_out)
{
    return wefti_generate_line(config, write_rank, schedule_out);
}
