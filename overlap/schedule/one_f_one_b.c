/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/one_f_one_b.c - 1F1B: as many forwards as there are ranks
 * behind, then a forward and a backward in turn, then what is left.
 *
 * Source: Narayanan et al., arXiv 2104.04473, section 2.2.
 */
#include "overlap/schedule/generator.h"

static void write_rank(wefti_pen *pen, int rank, int ranks, int microbatches)
{
    int ahead = ranks - 1 - rank;
    ahead = ahead < microbatches ? ahead : microbatches;
    int f = 0, b = 0;

    pen->step = 1; /* warm-up */
    while (f < ahead) {
        wefti_pen_put(pen, WEFT_ACTION_F, rank, f++);
    }
    pen->step = 2; /* steady */
    while (f < microbatches) {
        wefti_pen_put(pen, WEFT_ACTION_F, rank, f++);
        wefti_pen_put(pen, WEFT_ACTION_B, rank, b++);
    }
    pen->step = 3; /* drain */
    while (b < microbatches) {
        wefti_pen_put(pen, WEFT_ACTION_B, rank, b++);
    }
}

weft_status wefti_generate_1f1b(const weft_schedule_config *config,
                                weft_schedule **schedule_out)
{
    weft_status status = wefti_generate_chunks(config, 1);
    if (status == WEFT_OK) {
        status = wefti_schedule_make("1f1b", config->ranks, config->ranks, 1,
                                     config->microbatches, schedule_out);
    }
    if (status != WEFT_OK) {
        return status;
    }
    for (int r = 0; r < config->ranks; r++) {
        wefti_pen pen = {&(*schedule_out)->lists[r], 0};
        write_rank(&pen, r, config->ranks, config->microbatches);
    }
    return WEFT_OK;
}
