/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/zb_h1.c - ZB-H1: 1F1B with the backward split, and W put
 * off, so that the gradient travels on sooner; memory as of 1F1B's rank 0.
 *
 * Rank r keeps up to r W waiting: that many steps it gets its gradients sooner
 * than it needs them.
 *
 * Source: Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241,
 * section 2; the number of waiting W in closed form is weft's.
 */
#include "overlap/schedule/generator.h"

static void write_rank(wefti_action_writer *writer, int rank, int ranks,
                       int microbatches)
{
    int ahead = ranks - 1 - rank;
    ahead = ahead < microbatches ? ahead : microbatches;
    int f = 0, i = 0, w = 0;

    writer->step = 1; /* warm-up */
    while (f < ahead) {
        wefti_action_writer_put(writer, WEFT_ACTION_F, rank, f++);
    }
    while (i < microbatches) {
        writer->step = f < microbatches ? 2 : 3; /* steady, drain */
        if (f < microbatches) {
            wefti_action_writer_put(writer, WEFT_ACTION_F, rank, f++);
        }
        wefti_action_writer_put(writer, WEFT_ACTION_I, rank, i++);
        if (i - w > rank) {
            wefti_action_writer_put(writer, WEFT_ACTION_W, rank, w++);
        }
    }
    writer->step = 4; /* what was put off */
    while (w < microbatches) {
        wefti_action_writer_put(writer, WEFT_ACTION_W, rank, w++);
    }
}

weft_status wefti_generate_zb_h1(const weft_schedule_config *config,
                                 weft_schedule **schedule_out)
{
    return wefti_generate_line(config, write_rank, schedule_out);
}
