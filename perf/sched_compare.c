/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sched_compare.c - weft-sched compare: all schedules for the same costs.
 */
#include "perf/sched_job.h"
#include "perf/sched_links.h"

#include "base/error.h"
#include "base/json.h"
#include "base/output.h"

#include <math.h>
#include <string.h>

/* ---- for people -----------------------------------------------------------
 */

/* "interleaved V=4 FB" */
static const char *tell_name(const weft_schedule_candidate *c, char *text,
                             size_t text_bytes)
{
    bool chosen = strcmp(c->name, "interleaved") == 0;
    if (chosen) {
        snprintf(text, text_bytes, "%s V=%d%s", c->name, c->chunks,
                 c->overlap ? " FB" : "");
    } else {
        snprintf(text, text_bytes, "%s%s", c->name,
                 c->planned ? " by cost" : "");
    }
    return text;
}

static void print_table(const weft_advice *advice)
{
    printf("\n%-20s %6s %10s %10s %7s %7s %8s %8s %7s %9s\n", "schedule", "m",
           "makespan", "bubble", "of step", "imbal.", "activ.", "memory",
           "copies", "messages");
    for (size_t k = 0; k < advice->count; k++) {
        const weft_schedule_candidate *c = &advice->candidates[k];
        char name[64];
        tell_name(c, name, sizeof(name));
        if (isnan(c->makespan)) {
            printf("%-20s %6d\n", name, c->microbatches);
        } else {
            printf("%-20s %6d %10.6g %10.6g %6.1f%% %6.1f%% %8.4g %8.4g %7d "
                   "%9zu\n",
                   name, c->microbatches, c->makespan, c->bubble,
                   100 * c->bubble_ratio, 100 * c->imbalance_ratio,
                   c->activations, c->memory, c->param_copies, c->messages);
        }
        if (!c->possible) {
            printf("%20s refused: %s\n", "", c->why);
        }
    }
}

static void print_advice(const wefti_sched_options *options,
                         const weft_advice *advice)
{
    printf("%d ranks, %d layers, costs of one of %d micro-batches a step%s\n",
           options->ranks, options->layers, options->microbatches,
           options->topology ? ", in us" : "");
    print_table(advice);
    printf("\n%s.\n", advice->reason);
    if (advice->warning[0]) {
        printf("warning: %s.\n", advice->warning);
    }
}

/* ---- for programs ---------------------------------------------------------
 */

static void put_candidate(wefti_json *json, const weft_schedule_candidate *c)
{
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "schedule", c->name);
    wefti_json_int(json, "microbatches", c->microbatches);
    wefti_json_int(json, "chunks", c->chunks);
    wefti_json_bool(json, "overlap", c->overlap);
    wefti_json_bool(json, "planned", c->planned);
    wefti_json_bool(json, "possible", c->possible);
    wefti_json_text(json, "why", c->possible ? NULL : c->why);
    wefti_json_real(json, "makespan", c->makespan);
    wefti_json_real(json, "ideal", c->ideal);
    wefti_json_real(json, "idle", c->idle);
    wefti_json_real(json, "idle_ratio", c->idle_ratio);
    wefti_json_real(json, "bubble", c->bubble);
    wefti_json_real(json, "bubble_ratio", c->bubble_ratio);
    wefti_json_real(json, "imbalance", c->imbalance);
    wefti_json_real(json, "imbalance_ratio", c->imbalance_ratio);
    wefti_json_real(json, "peak_activation", c->activations);
    wefti_json_real(json, "memory", c->memory);
    wefti_json_int(json, "param_copies", c->param_copies);
    wefti_json_uint(json, "p2p_messages", c->messages);
    wefti_json_object_close(json);
}

static weft_status write_json(const wefti_sched_options *options,
                              const weft_advice *advice)
{
    wefti_json json;
    wefti_output out;
    weft_status status = wefti_output_open(&out, "--json", options->json_path);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_json_init(&json, out.file);
    wefti_json_object_open(&json, NULL);
    wefti_json_text(&json, "command", "compare");
    wefti_json_int(&json, "ranks", options->ranks);
    wefti_json_int(&json, "microbatches", options->microbatches);
    wefti_json_int(&json, "layers", options->layers);
    bool any = advice->candidates[0].possible;
    wefti_json_text(&json, "best", any ? advice->candidates[0].name : NULL);
    wefti_json_text(&json, "reason", advice->reason);
    wefti_json_text(&json, "warning",
                    advice->warning[0] ? advice->warning : NULL);
    wefti_json_array_open(&json, "candidates");
    for (size_t k = 0; k < advice->count; k++) {
        put_candidate(&json, &advice->candidates[k]);
    }
    wefti_json_array_close(&json);
    wefti_json_object_close(&json);
    return wefti_output_end(&out, wefti_json_fini(&json));
}

weft_status wefti_sched_compare(const wefti_sched_options *options)
{
    weft_schedule_cost cost = options->cost;
    bool ends = options->ends_given;
    wefti_sched_links links;
    weft_advice advice;
    weft_status status =
        wefti_sched_links_init(&links, options, options->ranks, &cost);
    if (status != WEFT_OK) {
        return status;
    }
    weft_advice_config config = {.size_bytes = sizeof(config),
                                 .ranks = options->ranks,
                                 .microbatches = options->microbatches,
                                 .choices = options->choices,
                                 .choice_count = options->choice_count,
                                 .layers = options->layers,
                                 .cost = &cost,
                                 .first = ends ? &options->first : NULL,
                                 .last = ends ? &options->last : NULL,
                                 .chunks = options->chunks,
                                 .group = options->group,
                                 .memory_most = options->memory_most,
                                 .copy_memory = options->copy_memory,
                                 .plan = options->plan};
    status = weft_schedule_advise(&config, &advice);
    if (status == WEFT_OK) {
        bool taken = options->json_path && strcmp(options->json_path, "-") == 0;
        if (!taken) {
            print_advice(options, &advice);
        }
        status = options->json_path ? write_json(options, &advice) : WEFT_OK;
        if (status == WEFT_OK && !advice.candidates[0].possible) {
            status =
                wefti_error(WEFT_ERR_INVALID, "compare: %s", advice.reason);
        }
        weft_advice_fini(&advice);
    }
    wefti_sched_links_fini(&links);
    return status;
}
