/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/expert_loads.c - sums by expert, and by the rank that has it
 * or would.
 */
#include "trainer/report/expert_loads.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>

static size_t experts_of(const wefti_expert_loads *loads)
{
    return (size_t)loads->place.experts;
}

weft_status wefti_expert_loads_init(wefti_expert_loads *loads, size_t layers,
                                    const weft_moe_place_config *place)
{
    *loads = (wefti_expert_loads){.place = *place, .layers = layers};
    loads->place.replicas = place->experts;
    const size_t count = layers * experts_of(loads);
    loads->sums = calloc(count, sizeof(*loads->sums));
    loads->slots = calloc(count, sizeof(*loads->slots));
    if (!loads->sums || !loads->slots) {
        wefti_expert_loads_fini(loads);
        return wefti_error(WEFT_ERR_NO_MEMORY, "loads of %zu experts", count);
    }
    return WEFT_OK;
}

void wefti_expert_loads_fini(wefti_expert_loads *loads)
{
    free(loads->sums);
    free(loads->slots);
    *loads = (wefti_expert_loads){0};
}

void wefti_expert_loads_add(wefti_expert_loads *loads, const double *step)
{
    for (size_t i = 0; loads->sums && i < loads->layers * experts_of(loads);
         i++) {
        loads->sums[i] += step[i];
    }
    loads->steps += loads->sums != NULL;
}

weft_status wefti_expert_loads_place(wefti_expert_loads *loads)
{
    weft_status status = WEFT_OK;
    for (size_t layer = 0; layer < loads->layers && status == WEFT_OK;
         layer++) {
        const size_t first = layer * experts_of(loads);
        status = weft_moe_place(&loads->place, loads->sums + first,
                                loads->slots + first, NULL, NULL);
    }
    return status;
}

/* slots: NULL: experts lie in order. */
static double find_ratio(const wefti_expert_loads *loads, const double *sums,
                         const int32_t *slots)
{
    const size_t experts = experts_of(loads);
    const size_t ranks = (size_t)loads->place.ranks, each = experts / ranks;
    double most = 0, all = 0;
    for (size_t rank = 0; rank < ranks; rank++) {
        double sum = 0;
        for (size_t slot = rank * each; slot < (rank + 1) * each; slot++) {
            sum += sums[slots ? (size_t)slots[slot] : slot];
        }
        most = fmax(most, sum);
        all += sum;
    }
    return all > 0 ? most * (double)ranks / all : (double)NAN;
}

wefti_expert_ratio wefti_expert_loads_ratio(const wefti_expert_loads *loads,
                                            size_t layer)
{
    const size_t first = layer * experts_of(loads);
    const double *sums = loads->sums + first;
    return (wefti_expert_ratio){find_ratio(loads, sums, NULL),
                                find_ratio(loads, sums, loads->slots + first)};
}

void wefti_expert_loads_print(const wefti_expert_loads *loads, FILE *file)
{
    size_t worst = 0;
    for (size_t layer = 1; layer < loads->layers; layer++) {
        if (wefti_expert_loads_ratio(loads, layer).now >
            wefti_expert_loads_ratio(loads, worst).now) {
            worst = layer;
        }
    }
    if (loads->steps > 0) {
        const wefti_expert_ratio ratio = wefti_expert_loads_ratio(loads, worst);
        fprintf(file,
                "%-18s %7.2f times the mean on the busiest rank, in layer %zu; "
                "%.2f if experts were placed for these loads\n",
                "tokens to experts", ratio.now, worst, ratio.placed);
    }
}

static void put_layer(const wefti_expert_loads *loads, size_t layer,
                      wefti_json *json)
{
    const size_t first = layer * experts_of(loads);
    const wefti_expert_ratio ratio = wefti_expert_loads_ratio(loads, layer);
    wefti_json_object_open(json, NULL);
    wefti_json_uint(json, "layer", layer);
    wefti_json_real(json, "ratio", ratio.now);
    wefti_json_real(json, "ratio_placed", ratio.placed);
    wefti_json_array_open(json, "tokens");
    for (size_t e = 0; e < experts_of(loads); e++) {
        wefti_json_real(json, NULL, loads->sums[first + e]);
    }
    wefti_json_array_close(json);
    wefti_json_array_open(json, "slots");
    for (size_t slot = 0; slot < experts_of(loads); slot++) {
        wefti_json_int(json, NULL, loads->slots[first + slot]);
    }
    wefti_json_array_close(json);
    wefti_json_object_close(json);
}

void wefti_expert_loads_put(const wefti_expert_loads *loads, wefti_json *json,
                            const char *name)
{
    if (loads->steps == 0) {
        wefti_json_null(json, name);
        return;
    }
    wefti_json_object_open(json, name);
    wefti_json_uint(json, "steps", loads->steps);
    wefti_json_int(json, "ranks", loads->place.ranks);
    wefti_json_int(json, "hosts", loads->place.hosts);
    wefti_json_int(json, "groups", loads->place.groups);
    wefti_json_array_open(json, "layers");
    for (size_t layer = 0; layer < loads->layers; layer++) {
        put_layer(loads, layer, json);
    }
    wefti_json_array_close(json);
    wefti_json_object_close(json);
}
