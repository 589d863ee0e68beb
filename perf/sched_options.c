/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sched_options.c - weft-sched's command line.
 */
#include "perf/sched_options.h"

#include "base/error.h"
#include "base/plain_number.h"
#include "perf/sched_values.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum {
    SCHEDULE = 256,
    RANKS,
    MICROBATCHES,
    CHUNKS,
    GROUP,
    OVERLAP,
    DIRECTIONS,
    OLD_TORCH,
    COST,
    PLAN,
    MEMORY_LIMIT,
    NODES,
    LOWERING,
    SEMANTICS,
    GROUPED,
    RENDEZVOUS,
    PASSES,
    MAX_ACTIVATIONS,
    MAX_EARLY,
    LAYERS,
    MAX_MEMORY,
    COPY_MEMORY,
    FIRST,
    LAST,
    ENCODER,
    TOPOLOGY,
    BYTES,
    PLACES,
    COLUMNS,
    CSV,
    TORCH,
    SVG,
    TRACE,
    JSON,
    VERSION
};

static const struct option long_flags[] = {
    {"schedule", required_argument, NULL, SCHEDULE},
    {"ranks", required_argument, NULL, RANKS},
    {"microbatches", required_argument, NULL, MICROBATCHES},
    {"chunks", required_argument, NULL, CHUNKS},
    {"group", required_argument, NULL, GROUP},
    {"overlap", no_argument, NULL, OVERLAP},
    {"directions", required_argument, NULL, DIRECTIONS},
    {"old-torch", no_argument, NULL, OLD_TORCH},
    {"cost", required_argument, NULL, COST},
    {"plan", required_argument, NULL, PLAN},
    {"memory-limit", required_argument, NULL, MEMORY_LIMIT},
    {"nodes", required_argument, NULL, NODES},
    {"lowering", required_argument, NULL, LOWERING},
    {"semantics", required_argument, NULL, SEMANTICS},
    {"grouped", no_argument, NULL, GROUPED},
    {"rendezvous", no_argument, NULL, RENDEZVOUS},
    {"passes", required_argument, NULL, PASSES},
    {"max-activations", required_argument, NULL, MAX_ACTIVATIONS},
    {"max-early", required_argument, NULL, MAX_EARLY},
    {"layers", required_argument, NULL, LAYERS},
    {"max-memory", required_argument, NULL, MAX_MEMORY},
    {"copy-memory", required_argument, NULL, COPY_MEMORY},
    {"first", required_argument, NULL, FIRST},
    {"last", required_argument, NULL, LAST},
    {"encoder", required_argument, NULL, ENCODER},
    {"topology", required_argument, NULL, TOPOLOGY},
    {"bytes", required_argument, NULL, BYTES},
    {"places", required_argument, NULL, PLACES},
    {"columns", required_argument, NULL, COLUMNS},
    {"csv", required_argument, NULL, CSV},
    {"torch", no_argument, NULL, TORCH},
    {"svg", required_argument, NULL, SVG},
    {"trace", required_argument, NULL, TRACE},
    {"json", required_argument, NULL, JSON},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, VERSION},
    {0}};

static weft_status read_rank_cost(const char *list, weft_schedule_cost *cost)
{
    const wefti_sched_cost_key keys[] = {
        {"F", &cost->f},           {"I", &cost->i},
        {"W", &cost->w},           {"B", &cost->b},
        {"FB", &cost->fb},         {"p2p", &cost->p2p},
        {"reduce", &cost->reduce}, {"gather", &cost->gather},
        {"opt", &cost->optimizer}};
    return wefti_sched_read_costs("--cost", list, keys,
                                  sizeof(keys) / sizeof(keys[0]),
                                  "F I W B FB p2p reduce gather opt");
}

static weft_status read_end(const char *flag, const char *list,
                            wefti_sched_options *options)
{
    weft_stage_cost *end =
        strcmp(flag, "--first") == 0 ? &options->first : &options->last;
    const wefti_sched_cost_key keys[] = {
        {"F", &end->f}, {"I", &end->i}, {"W", &end->w}, {"B", &end->b}};
    options->ends_given = true;
    return wefti_sched_read_costs(flag, list, keys,
                                  sizeof(keys) / sizeof(keys[0]), "F I W B");
}

static weft_status read_encoder(const char *text, wefti_sched_options *options)
{
    weft_stage_cost *cost = &options->encoder;
    const wefti_sched_cost_key keys[] = {
        {"F", &cost->f}, {"I", &cost->i}, {"W", &cost->w}, {"B", &cost->b}};
    char word[WEFTI_SCHED_WORD_BYTES];
    const char *colon = strchr(text, ':');
    if (!colon || colon - text >= WEFTI_SCHED_WORD_BYTES) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--encoder %s: allowed is CHUNKS:LIST, as in "
                           "1:F=0.5,I=0.5,W=0.5",
                           text);
    }
    snprintf(word, sizeof(word), "%.*s", (int)(colon - text), text);
    weft_status status =
        wefti_plain_flag("--encoder", word, 1, WEFT_SCHEDULE_STAGES_MOST,
                         &options->encoder_chunks);
    return status == WEFT_OK
               ? wefti_sched_read_costs("--encoder", colon + 1, keys,
                                        sizeof(keys) / sizeof(keys[0]),
                                        "F I W B")
               : status;
}

/* The first is what the costs are of. */
static weft_status read_microbatches(const char *text,
                                     wefti_sched_options *options)
{
    int all[WEFT_ADVICE_CHOICES_MOST + 1] = {0};
    int count;
    weft_status status = wefti_sched_read_ints(
        "--microbatches", text, 1, WEFT_SCHEDULE_MICROBATCHES_MOST, all,
        WEFT_ADVICE_CHOICES_MOST + 1, &count);
    if (status == WEFT_OK) {
        options->microbatches = all[0];
        options->choice_count = count - 1;
        memcpy(options->choices, all + 1, (size_t)(count - 1) * sizeof(int));
    }
    return status;
}

static weft_status read_passes(const char *list, wefti_sched_options *options)
{
    const wefti_sched_switch passes[] = {
        {"merge", &options->merge},       {"recompute", &options->recompute},
        {"shard", &options->shard},       {"reduce", &options->reduce},
        {"optimize", &options->optimize}, {"release", &options->release}};
    return wefti_sched_read_switches(
        "--passes", list, passes, sizeof(passes) / sizeof(passes[0]),
        "merge, recompute, shard, reduce, optimize, release");
}

static weft_status read_nodes(const char *text, wefti_sched_options *options)
{
    char word[WEFTI_SCHED_WORD_BYTES];
    const char *colon = strchr(text, ':');
    if (!colon || colon - text >= WEFTI_SCHED_WORD_BYTES) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--nodes %s: allowed is RANKS:TIME, as in 4:0.2",
                           text);
    }
    snprintf(word, sizeof(word), "%.*s", (int)(colon - text), text);
    weft_status status = wefti_plain_flag(
        "--nodes", word, 1, WEFT_SCHEDULE_RANKS_MOST, &options->node_ranks);
    return status == WEFT_OK ? wefti_sched_read_real("--nodes", colon + 1,
                                                     &options->node_busy)
                             : status;
}

static weft_status read_lowering(const char *text, wefti_sched_options *options)
{
    static const char *const names[] = {"sender", "gap", "naive", "dualpipe"};
    int k;
    weft_status status = wefti_sched_read_name(
        "--lowering", text, names, 4, "sender, gap, naive or dualpipe", &k);
    if (status == WEFT_OK) {
        options->lowering = (weft_lowering)k;
        options->lowering_given = true;
    }
    return status;
}

static weft_status read_semantics(const char *text,
                                  wefti_sched_options *options)
{
    if (strcmp(text, "grouped") == 0) {
        options->semantics = WEFT_SEMANTICS_GROUPED;
    } else if (strcmp(text, "rendezvous") == 0) {
        options->semantics = WEFT_SEMANTICS_RENDEZVOUS;
    } else if (strncmp(text, "eager:", 6) == 0) {
        options->semantics = WEFT_SEMANTICS_EAGER;
        return wefti_plain_flag("--semantics eager:", text + 6, 1,
                                WEFT_EAGER_SLOTS_MOST, &options->eager_slots);
    } else {
        return wefti_error(WEFT_ERR_INVALID,
                           "--semantics %s: allowed is grouped, rendezvous or "
                           "eager:K",
                           text);
    }
    return WEFT_OK;
}

static weft_status read_plan(const char *text, wefti_sched_options *options)
{
    static const char *const names[] = {"published", "cost"};
    int k;
    weft_status status = wefti_sched_read_name("--plan", text, names, 2,
                                               "published or cost", &k);
    if (status == WEFT_OK) {
        options->plan = k == 1;
    }
    return status;
}

static weft_status read_memory_limit(const char *text,
                                     wefti_sched_options *options)
{
    weft_status status =
        wefti_sched_read_real("--memory-limit", text, &options->plan_memory);
    if (status == WEFT_OK && options->plan_memory < 1) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "--memory-limit %s: allowed is 1 or more, in "
                             "device units",
                             text);
    }
    return status;
}

/* ---- flags ----------------------------------------------------------------
 */

static weft_status read_shape(int flag, const char *text,
                              wefti_sched_options *options)
{
    switch (flag) {
    case RANKS:
        return wefti_plain_flag("--ranks", text, 1, WEFT_SCHEDULE_RANKS_MOST,
                                &options->ranks);
    case MICROBATCHES:
        return read_microbatches(text, options);
    case CHUNKS:
        return wefti_plain_flag("--chunks", text, 1, WEFT_SCHEDULE_STAGES_MOST,
                                &options->chunks);
    case GROUP:
        return wefti_plain_flag("--group", text, 1,
                                WEFT_SCHEDULE_MICROBATCHES_MOST,
                                &options->group);
    case DIRECTIONS:
        return wefti_plain_flag("--directions", text, 1, 2,
                                &options->directions);
    case COLUMNS:
        return wefti_plain_flag("--columns", text, 40, 1000, &options->columns);
    case MAX_EARLY:
        return wefti_plain_flag("--max-early", text, 1,
                                WEFT_SCHEDULE_MICROBATCHES_MOST,
                                &options->early_most);
    case LAYERS:
        return wefti_plain_flag("--layers", text, 1, WEFT_SCHEDULE_STAGES_MOST,
                                &options->layers);
    case PLACES:
        return wefti_sched_read_ints(
            "--places", text, 0, WEFT_SCHEDULE_RANKS_MOST, options->places,
            WEFTI_SCHED_PLACES_MOST, &options->place_count);
    case BYTES:
        return wefti_sched_read_real("--bytes", text, &options->message_bytes);
    case MAX_MEMORY:
        return wefti_sched_read_real("--max-memory", text,
                                     &options->memory_most);
    case COPY_MEMORY:
        return wefti_sched_read_real("--copy-memory", text,
                                     &options->copy_memory);
    default:
        return wefti_sched_read_real("--max-activations", text,
                                     &options->activations_most);
    }
}

static weft_status read_how(int flag, const char *text,
                            wefti_sched_options *options)
{
    switch (flag) {
    case COST:
        return read_rank_cost(text, &options->cost);
    case PLAN:
        return read_plan(text, options);
    case MEMORY_LIMIT:
        return read_memory_limit(text, options);
    case FIRST:
        return read_end("--first", text, options);
    case LAST:
        return read_end("--last", text, options);
    case ENCODER:
        return read_encoder(text, options);
    case NODES:
        return read_nodes(text, options);
    case LOWERING:
        return read_lowering(text, options);
    case SEMANTICS:
        return read_semantics(text, options);
    case GROUPED:
        return read_semantics("grouped", options);
    case RENDEZVOUS:
        return read_semantics("rendezvous", options);
    default:
        return read_passes(text, options);
    }
}

static weft_status take_command(const char *word, wefti_sched_options *options)
{
    static const char *const names[] = {"show", "check", "simulate", "list",
                                        "compare"};
    int k;
    weft_status status = wefti_sched_read_name(
        "", word, names, 5, "show, check, simulate, list or compare", &k);
    if (status == WEFT_OK) {
        options->command = (wefti_sched_command)k;
    }
    return status;
}

/* The first is the command, a second one the schedule. */
static weft_status take_word(int index, const char *word,
                             wefti_sched_options *options)
{
    if (index == 0) {
        return take_command(word, options);
    }
    if (index > 1 || options->schedule) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: one schedule is allowed, and --schedule %s is "
                           "given",
                           word, options->schedule);
    }
    options->schedule = word;
    return WEFT_OK;
}

static weft_status take_flag(int flag, const char *text, const char *word,
                             wefti_sched_options *options)
{
    switch (flag) {
    case SCHEDULE:
        return take_word(1, text, options);
    case OVERLAP:
        options->overlap = true;
        return WEFT_OK;
    case OLD_TORCH:
        options->old_torch = true;
        return WEFT_OK;
    case TORCH:
        options->for_torch = true;
        return WEFT_OK;
    case TOPOLOGY:
        options->topology = text;
        return WEFT_OK;
    case CSV:
        options->csv_path = text;
        return WEFT_OK;
    case SVG:
        options->svg_path = text;
        return WEFT_OK;
    case TRACE:
        options->trace_path = text;
        return WEFT_OK;
    case JSON:
    case 'J':
        options->json_path = text;
        return WEFT_OK;
    case 'h':
        options->help = true;
        return WEFT_OK;
    case VERSION:
        options->version = true;
        return WEFT_OK;
    case ':':
        return wefti_error(WEFT_ERR_INVALID, "%s: needs a value", word);
    case '?':
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: no such flag; see weft-sched --help", word);
    case COST:
    case PLAN:
    case MEMORY_LIMIT:
    case FIRST:
    case LAST:
    case ENCODER:
    case NODES:
    case LOWERING:
    case SEMANTICS:
    case GROUPED:
    case RENDEZVOUS:
    case PASSES:
        return read_how(flag, text, options);
    default:
        return read_shape(flag, text, options);
    }
}

weft_status wefti_sched_options_read(int argc, char **argv,
                                     wefti_sched_options *options_out)
{
    *options_out = (wefti_sched_options){
        .cost = {
            .size_bytes = sizeof(weft_schedule_cost), .f = 1, .i = 1, .w = 1}};
    weft_status status = WEFT_OK;
    int words = 0;
    optind = 0; /* from the beginning, also a second time */
    while (status == WEFT_OK) {
        int flag = getopt_long(argc, argv, "-:hJ:", long_flags, NULL);
        if (flag == -1) {
            break;
        }
        if (flag == 1) { /* a word that is no flag */
            status = take_word(words++, optarg, options_out);
        } else {
            status = take_flag(flag, optarg, argv[optind - 1], options_out);
        }
    }
    if (status != WEFT_OK || options_out->help || options_out->version) {
        return status;
    }
    return wefti_sched_options_check(options_out, words);
}
