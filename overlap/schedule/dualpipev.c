/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/dualpipev.c - DualPipeV: DualPipe cut in half and folded.
 * Two chunks a rank placed as a V take the parts of the two directions, with
 * one copy of the model.
 *
 *     stages on rank, P = 4:   0,7   1,6   2,5   3,4
 *
 * Source: deepseek-ai/DualPipe (DualPipeV; the fold is Qi's "cut-in-half").
 */
#include "overlap/schedule/dual.h"

#include "base/check.h"
#include "base/error.h"

static void write_rank(wefti_dual *d, int rank, int ranks, int microbatches)
{
    int behind = ranks - 1 - rank;
    bool last = behind == 0;

    d->writer.step = 1;
    for (int k = 0; k < 2 * behind; k++) {
        wefti_dual_f(d, 0);
    }
    d->writer.step = 2;
    for (int k = 0; k < rank + 1; k++) {
        wefti_dual_f(d, 0);
        wefti_dual_f(d, 1);
    }
    d->writer.step = 3;
    for (int k = 0; k < behind; k++) {
        wefti_dual_i(d, 1);
        wefti_dual_w(d);
        wefti_dual_f(d, 1);
    }
    d->writer.step = 4; /* the main step */
    for (int k = 0; k < microbatches - 2 * ranks + rank + 1; k++) {
        if (k == 0 && last) { /* overlapping these would cost time */
            wefti_dual_f(d, 0);
            wefti_dual_b(d, 1);
        } else {
            wefti_dual_fb(d, 0, 1);
        }
        wefti_dual_fb(d, 1, 0);
    }
    d->writer.step = 5;
    for (int k = 0; k < behind; k++) {
        wefti_dual_b(d, 1);
        wefti_dual_fb(d, 1, 0);
    }
    d->writer.step = 6;
    wefti_dual_backwards(d, rank + 1, rank % 2 == 1);
    WEFTI_ASSERT(d->pending == rank + 1 || d->writer.list->failed);
    d->writer.step = 7;
    for (int k = 0; k < behind; k++) {
        wefti_dual_w(d);
        wefti_dual_i(d, 0);
    }
    d->writer.step = 8;
    for (int k = 0; k < rank + 1; k++) {
        wefti_dual_w(d);
    }
    WEFTI_ASSERT(d->pending == 0 || d->writer.list->failed);
}

weft_status wefti_generate_dualpipev(const weft_schedule_config *config,
                                     weft_schedule **schedule_out)
{
    int ranks = config->ranks, microbatches = config->microbatches;
    weft_status status = wefti_generate_chunks(config, 2);
    if (status == WEFT_OK && microbatches < 2 * ranks) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "dualpipev, microbatches %d: must be at least %d "
                             "(2 x ranks), the nearest that works",
                             microbatches, 2 * ranks);
    }
    if (status == WEFT_OK) {
        status = wefti_schedule_make("dualpipev", ranks, 2 * ranks, 1,
                                     microbatches, schedule_out);
    }
    if (status != WEFT_OK) {
        return status;
    }
    wefti_schedule_place_v(*schedule_out);
    for (int r = 0; r < ranks; r++) {
        wefti_dual d = {.writer.list = &(*schedule_out)->lists[r],
                        .stage = {r, 2 * ranks - 1 - r}};
        write_rank(&d, r, ranks, microbatches);
    }
    return WEFT_OK;
}
