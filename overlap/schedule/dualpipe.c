/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/dualpipe.c - DualPipe: micro-batches enter at both ends, and
 * the forward of one direction hides behind the backward of the other.
 *
 *     stages on rank, P = 4:   0|3   1|2   2|1   3|0
 *
 * Left of the bar direction 0, which enters at rank 0, right of it direction 1,
 * which enters at rank P-1 (numbered P + stage in the list). On each rank phase
 * 0 is the direction whose entry is nearer. Both copies of a stage have
 * gradients, which must be summed.
 *
 * Source: deepseek-ai/DualPipe; DeepSeek-V3, arXiv 2412.19437, section 3.2.
 */
#include "overlap/schedule/dual.h"

#include "base/check.h"
#include "base/error.h"

static void write_rank(wefti_dual *d, int rank, int ranks, int microbatches)
{
    int half = ranks / 2;
    int h = rank < half ? rank : ranks - 1 - rank; /* from the nearer end */
    bool middle = h == half - 1;

    d->writer.step = 1;
    for (int k = 0; k < 2 * (half - h - 1); k++) {
        wefti_dual_f(d, 0);
    }
    d->writer.step = 2;
    for (int k = 0; k < h + 1; k++) {
        wefti_dual_f(d, 0);
        wefti_dual_f(d, 1);
    }
    d->writer.step = 3;
    for (int k = 0; k < half - h - 1; k++) {
        wefti_dual_i(d, 1);
        wefti_dual_w(d);
        wefti_dual_f(d, 1);
    }
    d->writer.step = 4; /* the main step */
    for (int k = 0; k < microbatches / 2 - ranks + h + 1; k++) {
        if (k == 0 && middle) { /* overlapping these would cost time */
            wefti_dual_f(d, 0);
            wefti_dual_b(d, 1);
        } else {
            wefti_dual_fb(d, 0, 1);
        }
        wefti_dual_fb(d, 1, 0);
    }
    d->writer.step = 5;
    for (int k = 0; k < half - h - 1; k++) {
        wefti_dual_b(d, 1);
        wefti_dual_fb(d, 1, 0);
    }
    d->writer.step = 6;
    wefti_dual_backwards(d, h + 1, h % 2 == 1);
    WEFTI_ASSERT(d->pending == h + 1 || d->writer.list->failed);
    d->writer.step = 7;
    for (int k = 0; k < half - h - 1; k++) {
        wefti_dual_w(d);
        wefti_dual_i(d, 0);
    }
    d->writer.step = 8;
    for (int k = 0; k < h + 1; k++) {
        wefti_dual_w(d);
    }
    WEFTI_ASSERT(d->pending == 0 || d->writer.list->failed);
}

static weft_status check_shape(int ranks, int microbatches)
{
    if (ranks % 2 != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "dualpipe, ranks %d: must be even; the nearest that "
                           "works is %d",
                           ranks, ranks + 1);
    }
    if (microbatches % 2 != 0 || microbatches < 2 * ranks) {
        int nearest = microbatches < 2 * ranks ? 2 * ranks : microbatches - 1;
        return wefti_error(WEFT_ERR_INVALID,
                           "dualpipe, microbatches %d: must be even and at "
                           "least %d (2 x ranks); the nearest that works is %d",
                           microbatches, 2 * ranks, nearest);
    }
    return WEFT_OK;
}

weft_status wefti_generate_dualpipe(const weft_schedule_config *config,
                                    weft_schedule **schedule_out)
{
    int ranks = config->ranks, microbatches = config->microbatches;
    weft_status status = wefti_generate_chunks(config, 1);
    if (status == WEFT_OK) {
        status = check_shape(ranks, microbatches);
    }
    if (status == WEFT_OK) {
        status = wefti_schedule_make("dualpipe", ranks, 2 * ranks, 2,
                                     microbatches / 2, schedule_out);
    }
    if (status != WEFT_OK) {
        return status;
    }
    wefti_schedule_place_v(*schedule_out);
    for (int r = 0; r < ranks; r++) {
        int direction0 = r, direction1 = 2 * ranks - 1 - r;
        /* The first half is nearer to the entry of direction 0. */
        bool first_half = r < ranks / 2;
        wefti_dual d = {.writer.list = &(*schedule_out)->lists[r],
                        .stage = {first_half ? direction0 : direction1,
                                  first_half ? direction1 : direction0}};
        write_rank(&d, r, ranks, microbatches);
    }
    return WEFT_OK;
}
