/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/step_log.c - the last steps, in turn.
 */
#include "trainer/pipe/step_log.h"

#include "base/error.h"
#include "weft/op.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES_MOST = 16 * 1024 * 1024 };

weft_status wefti_step_log_init(wefti_step_log *log, size_t actions,
                                size_t most)
{
    size_t fit = BYTES_MOST / (sizeof(*log->spans) * (actions + 1));
    size_t room = fit < 1 ? 1 : fit < most ? fit : most;
    *log = (wefti_step_log){
        .spans = calloc(room * (actions + 1), sizeof(*log->spans)),
        .steps = calloc(room, sizeof(*log->steps)),
        .times_ms = calloc(room, sizeof(*log->times_ms)),
        .actions = actions,
        .room = room};
    if (log->spans && log->steps && log->times_ms) {
        return WEFT_OK;
    }
    wefti_step_log_fini(log);
    return wefti_error(WEFT_ERR_NO_MEMORY, "the times of %zu steps", room);
}

void wefti_step_log_fini(wefti_step_log *log)
{
    free(log->spans);
    free(log->steps);
    free(log->times_ms);
    *log = (wefti_step_log){0};
}

void wefti_step_log_add(wefti_step_log *log, uint64_t step, double time_ms,
                        const weft_pipeline_span *spans)
{
    size_t at = log->count++ % log->room;
    log->steps[at] = step;
    log->times_ms[at] = time_ms;
    memcpy(&log->spans[at * log->actions], spans,
           log->actions * sizeof(*spans));
}

/* How many steps before the last one: the lower median of kept. */
static uint64_t find_age(const wefti_step_log *log, uint64_t kept)
{
    for (uint64_t age = 0; age < kept; age++) {
        double own = log->times_ms[(log->count - 1 - age) % log->room];
        uint64_t before = 0;
        for (uint64_t k = 0; k < kept; k++) {
            double other = log->times_ms[(log->count - 1 - k) % log->room];
            before += other < own || (!(other > own) && k > age);
        }
        if (before == (kept - 1) / 2) {
            return age;
        }
    }
    return 0;
}

weft_status wefti_step_log_find(const wefti_step_log *log, weft_comm *comm,
                                uint64_t *step_out,
                                const weft_pipeline_span **spans_out)
{
    uint64_t kept = log->count < log->room ? log->count : log->room;
    weft_status status = weft_allreduce(&kept, &kept, 1, WEFT_DTYPE_U64,
                                        WEFT_REDOP_MIN, comm, NULL);
    uint64_t age = status == WEFT_OK ? find_age(log, kept) : 0;
    if (status == WEFT_OK) {
        status = weft_broadcast(&age, &age, 1, WEFT_DTYPE_U64, 0, comm, NULL);
    }
    size_t at = (log->count - 1 - age) % log->room;
    *step_out = log->steps[at];
    *spans_out = &log->spans[at * log->actions];
    return status;
}
