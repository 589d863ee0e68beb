/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_usage.c - counts what the plan has promised, from the other
 * side: what is really taken and given back.
 */
#include "overlap/pipeline_usage.h"

#include "base/check.h"
#include "base/error.h"

#include <stdlib.h>

weft_status wefti_pipeline_usage_init(wefti_pipeline_usage *usage,
                                      const weft_pipeline_peaks *planned,
                                      size_t buffer_bytes)
{
    *usage = (wefti_pipeline_usage){.planned = planned,
                                    .buffer_bytes = buffer_bytes};
    usage->slots = calloc((size_t)planned->slots + 1, 1);
    usage->held = calloc((size_t)planned->buffers + 1, 1);
    usage->used = calloc((size_t)planned->buffers + 1, 1);
    return usage->slots && usage->held && usage->used
               ? WEFT_OK
               : wefti_error(WEFT_ERR_NO_MEMORY, "%d slots", planned->slots);
}

void wefti_pipeline_usage_fini(wefti_pipeline_usage *usage)
{
    free(usage->slots);
    free(usage->held);
    free(usage->used);
    *usage = (wefti_pipeline_usage){0};
}

static void count(int *now, int *peak, int planned, int change)
{
    *now += change;
    *peak = *now > *peak ? *now : *peak;
    WEFTI_ASSERT(*now >= 0 && *now <= planned);
    (void)planned;
}

void wefti_pipeline_usage_take(wefti_pipeline_usage *usage, int buffer,
                               bool received)
{
    weft_pipeline_peaks *now = &usage->now, *peaks = &usage->peaks;
    WEFTI_ASSERT(!usage->held[buffer]);
    usage->held[buffer] = 1;
    count(&now->held, &peaks->held, usage->planned->held, 1);
    if (received) {
        count(&now->received, &peaks->received, usage->planned->received, 1);
    }
    if (!usage->used[buffer]) {
        usage->used[buffer] = 1;
        peaks->buffers++;
        peaks->bytes += usage->buffer_bytes;
    }
}

void wefti_pipeline_usage_release(wefti_pipeline_usage *usage,
                                  const int32_t *buffers, int buffer_count)
{
    for (int k = 0; k < buffer_count; k++) {
        WEFTI_ASSERT(usage->held[buffers[k]]);
        usage->held[buffers[k]] = 0;
        count(&usage->now.held, &usage->peaks.held, usage->planned->held, -1);
    }
}

void wefti_pipeline_usage_begin(wefti_pipeline_usage *usage,
                                weft_action_type type,
                                const wefti_pipeline_part *part)
{
    bool makes = type == WEFT_ACTION_F || type == WEFT_ACTION_RECOMPUTE ||
                 type == WEFT_ACTION_RELOAD;
    WEFTI_ASSERT(usage->slots[part->slot] == !makes);
    if (makes) {
        usage->slots[part->slot] = 1;
        count(&usage->now.slots, &usage->peaks.slots, usage->planned->slots, 1);
    }
    if (part->kept >= 0 &&
        (type == WEFT_ACTION_F || type == WEFT_ACTION_OFFLOAD)) {
        count(&usage->now.kept, &usage->peaks.kept, usage->planned->kept, 1);
    }
}

void wefti_pipeline_usage_end(wefti_pipeline_usage *usage,
                              weft_action_type type,
                              const wefti_pipeline_part *part)
{
    bool forgets = type == WEFT_ACTION_F && part->kept >= 0;
    if (forgets || type == WEFT_ACTION_B || type == WEFT_ACTION_W ||
        type == WEFT_ACTION_OFFLOAD) {
        usage->slots[part->slot] = 0;
        count(&usage->now.slots, &usage->peaks.slots, usage->planned->slots,
              -1);
    }
    if (type == WEFT_ACTION_RECOMPUTE || type == WEFT_ACTION_RELOAD) {
        count(&usage->now.kept, &usage->peaks.kept, usage->planned->kept, -1);
    }
    if (part->from >= 0) {
        count(&usage->now.received, &usage->peaks.received,
              usage->planned->received, -1);
    }
}
