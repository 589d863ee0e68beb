/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/expert_loads.h - how many tokens came to each expert in a run,
 * and where weft_moe_place would put experts for these loads. Nothing is moved.
 */
#ifndef TRAINER_REPORT_EXPERT_LOADS_H
#define TRAINER_REPORT_EXPERT_LOADS_H

#include "base/json.h"
#include "weft/moe_place.h"
#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Zeros: nobody asks, and all calls but init do nothing. */
typedef struct wefti_expert_loads {
    weft_moe_place_config place; /* each expert once */
    size_t layers;
    uint64_t steps; /* that were added */
    double *sums;   /* [layers][experts] tokens of these, of all ranks */
    int32_t *slots; /* [layers][experts] what each slot would have */
} wefti_expert_loads;

/* The largest sum of a rank's experts over the mean; NAN: there is none. */
typedef struct wefti_expert_ratio {
    double now, placed;
} wefti_expert_ratio;

/* place: all but replicas. */
WEFT_NODISCARD weft_status
wefti_expert_loads_init(wefti_expert_loads *loads, size_t layers,
                        const weft_moe_place_config *place);
void wefti_expert_loads_fini(wefti_expert_loads *loads);

/* step: [layers][experts] */
void wefti_expert_loads_add(wefti_expert_loads *loads, const double *step);

/* Fills in slots. Returns as weft_moe_place. */
WEFT_NODISCARD weft_status wefti_expert_loads_place(wefti_expert_loads *loads);

wefti_expert_ratio wefti_expert_loads_ratio(const wefti_expert_loads *loads,
                                            size_t layer);

/* A line for people, of the layer where it is worst now; and all of it. */
void wefti_expert_loads_print(const wefti_expert_loads *loads, FILE *file);
void wefti_expert_loads_put(const wefti_expert_loads *loads, wefti_json *json,
                            const char *name);

#endif
