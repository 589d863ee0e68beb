/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sched_options.c - weft-sched's command line.
 */
#include "perf/sched_options.h"

#include "base/error.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdlib.h>
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

static weft_status read_int(const char *flag, const char *text, int least,
                            int most, int *value_out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < least || value > most) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s %s: allowed is a whole number from %d to %d",
                           flag, text, least, most);
    }
    *value_out = (int)value;
    return WEFT_OK;
}

/* The range of costs, which the simulator has for all that it adds up. */
static weft_status read_real(const char *flag, const char *text,
                             double *value_out)
{
    char *end;
    double value = strtod(text, &end);
    bool within = value == 0 || (value >= WEFT_SCHEDULE_COST_LEAST &&
                                 value <= WEFT_SCHEDULE_COST_MOST);
    if (end == text || *end || !within) {
        return wefti_error(
            WEFT_ERR_INVALID, "%s %s: allowed is 0, or a number from %g to %g",
            flag, text, WEFT_SCHEDULE_COST_LEAST, WEFT_SCHEDULE_COST_MOST);
    }
    *value_out = value;
    return WEFT_OK;
}

/* ---- lists ----------------------------------------------------------------
 */

enum { WORD_BYTES = 64 };

/* The next word of a list a,b,c; false: none is left. */
static bool next_word(const char **list, char word[WORD_BYTES])
{
    if (!*list) {
        return false;
    }
    size_t chars = strcspn(*list, ",");
    snprintf(word, WORD_BYTES, "%.*s", (int)chars, *list);
    *list = (*list)[chars] ? *list + chars + 1 : NULL;
    return true;
}

typedef struct cost_key {
    const char *name;
    double *value;
} cost_key;

/* The number behind the key of name_chars; a refusal names the key too. */
static weft_status read_cost(const char *flag, const char *word,
                             size_t name_chars, double *value_out)
{
    char name[2 * WORD_BYTES];
    snprintf(name, sizeof(name), "%s %.*s", flag, (int)name_chars, word);
    return read_real(name, word + name_chars + 1, value_out);
}

/* KEY=NUMBER,...; allowed names the keys. */
static weft_status read_costs(const char *flag, const char *list,
                              const cost_key *keys, size_t key_count,
                              const char *allowed)
{
    char word[WORD_BYTES];
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && next_word(&list, word)) {
        size_t chars = strcspn(word, "="), k = 0;
        while (k < key_count && (strlen(keys[k].name) != chars ||
                                 strncmp(keys[k].name, word, chars) != 0)) {
            k++;
        }
        status = k < key_count && word[chars] == '='
                     ? read_cost(flag, word, chars, keys[k].value)
                     : wefti_error(WEFT_ERR_INVALID,
                                   "%s %s: allowed is KEY=NUMBER with %s", flag,
                                   word, allowed);
    }
    return status;
}

static weft_status read_rank_cost(const char *list, weft_schedule_cost *cost)
{
    const cost_key keys[] = {
        {"F", &cost->f},           {"I", &cost->i},
        {"W", &cost->w},           {"B", &cost->b},
        {"FB", &cost->fb},         {"p2p", &cost->p2p},
        {"reduce", &cost->reduce}, {"gather", &cost->gather},
        {"opt", &cost->optimizer}};
    return read_costs("--cost", list, keys, sizeof(keys) / sizeof(keys[0]),
                      "F I W B FB p2p reduce gather opt");
}

static weft_status read_end(const char *flag, const char *list,
                            wefti_sched_options *options)
{
    weft_stage_cost *end =
        strcmp(flag, "--first") == 0 ? &options->first : &options->last;
    const cost_key keys[] = {
        {"F", &end->f}, {"I", &end->i}, {"W", &end->w}, {"B", &end->b}};
    options->ends_given = true;
    return read_costs(flag, list, keys, sizeof(keys) / sizeof(keys[0]),
                      "F I W B");
}

/* Whole numbers a,b,c; at least one. */
static weft_status read_ints(const char *flag, const char *list, int least,
                             int most, int *values, int room, int *count_out)
{
    char word[WORD_BYTES];
    weft_status status = WEFT_OK;
    *count_out = 0;
    while (status == WEFT_OK && next_word(&list, word)) {
        if (*count_out == room) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%s: allowed are up to %d numbers", flag, room);
        }
        status = read_int(flag, word, least, most, &values[(*count_out)++]);
    }
    return status;
}

/* The first is what the costs are of. */
static weft_status read_microbatches(const char *text,
                                     wefti_sched_options *options)
{
    int all[WEFT_ADVICE_CHOICES_MOST + 1] = {0};
    int count;
    weft_status status =
        read_ints("--microbatches", text, 1, WEFT_SCHEDULE_MICROBATCHES_MOST,
                  all, WEFT_ADVICE_CHOICES_MOST + 1, &count);
    if (status == WEFT_OK) {
        options->microbatches = all[0];
        options->choice_count = count - 1;
        memcpy(options->choices, all + 1, (size_t)(count - 1) * sizeof(int));
    }
    return status;
}

static weft_status read_passes(const char *list, wefti_sched_options *options)
{
    const struct {
        const char *name;
        bool *wanted;
    } passes[] = {
        {"merge", &options->merge},       {"recompute", &options->recompute},
        {"shard", &options->shard},       {"reduce", &options->reduce},
        {"optimize", &options->optimize}, {"release", &options->release}};
    const size_t count = sizeof(passes) / sizeof(passes[0]);
    char word[WORD_BYTES];
    while (next_word(&list, word)) {
        size_t k = 0;
        while (k < count && strcmp(passes[k].name, word) != 0) {
            k++;
        }
        if (k == count) {
            return wefti_error(WEFT_ERR_INVALID,
                               "--passes %s: allowed is merge, recompute, "
                               "shard, reduce, optimize, release",
                               word);
        }
        *passes[k].wanted = true;
    }
    return WEFT_OK;
}

static weft_status read_nodes(const char *text, wefti_sched_options *options)
{
    char word[WORD_BYTES];
    const char *colon = strchr(text, ':');
    if (!colon || colon - text >= WORD_BYTES) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--nodes %s: allowed is RANKS:TIME, as in 4:0.2",
                           text);
    }
    snprintf(word, sizeof(word), "%.*s", (int)(colon - text), text);
    weft_status status = read_int("--nodes", word, 1, WEFT_SCHEDULE_RANKS_MOST,
                                  &options->node_ranks);
    return status == WEFT_OK
               ? read_real("--nodes", colon + 1, &options->node_busy)
               : status;
}

static weft_status read_lowering(const char *text, wefti_sched_options *options)
{
    static const char *const names[] = {"sender", "gap", "naive", "dualpipe"};
    options->lowering_given = true;
    for (int k = 0; k < 4; k++) {
        if (strcmp(names[k], text) == 0) {
            options->lowering = (weft_lowering)k;
            return WEFT_OK;
        }
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "--lowering %s: allowed is sender, gap, naive or "
                       "dualpipe",
                       text);
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
        return read_int("--semantics eager:", text + 6, 1,
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
    options->plan = strcmp(text, "cost") == 0;
    if (!options->plan && strcmp(text, "published") != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--plan %s: allowed is published or cost", text);
    }
    return WEFT_OK;
}

static weft_status read_memory_limit(const char *text,
                                     wefti_sched_options *options)
{
    weft_status status =
        read_real("--memory-limit", text, &options->plan_memory);
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
        return read_int("--ranks", text, 1, WEFT_SCHEDULE_RANKS_MOST,
                        &options->ranks);
    case MICROBATCHES:
        return read_microbatches(text, options);
    case CHUNKS:
        return read_int("--chunks", text, 1, WEFT_SCHEDULE_STAGES_MOST,
                        &options->chunks);
    case GROUP:
        return read_int("--group", text, 1, WEFT_SCHEDULE_MICROBATCHES_MOST,
                        &options->group);
    case DIRECTIONS:
        return read_int("--directions", text, 1, 2, &options->directions);
    case COLUMNS:
        return read_int("--columns", text, 40, 1000, &options->columns);
    case MAX_EARLY:
        return read_int("--max-early", text, 1, WEFT_SCHEDULE_MICROBATCHES_MOST,
                        &options->early_most);
    case LAYERS:
        return read_int("--layers", text, 1, WEFT_SCHEDULE_STAGES_MOST,
                        &options->layers);
    case PLACES:
        return read_ints("--places", text, 0, WEFT_SCHEDULE_RANKS_MOST,
                         options->places, WEFTI_SCHED_PLACES_MOST,
                         &options->place_count);
    case BYTES:
        return read_real("--bytes", text, &options->message_bytes);
    case MAX_MEMORY:
        return read_real("--max-memory", text, &options->memory_most);
    case COPY_MEMORY:
        return read_real("--copy-memory", text, &options->copy_memory);
    default:
        return read_real("--max-activations", text, &options->activations_most);
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
    for (int k = 0; k < 5; k++) {
        if (strcmp(names[k], word) == 0) {
            options->command = (wefti_sched_command)k;
            return WEFT_OK;
        }
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "%s: allowed is show, check, simulate, list or "
                       "compare",
                       word);
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

/* compare makes all schedules itself, and writes no files of any. */
static weft_status check_compare(const wefti_sched_options *options)
{
    if (options->schedule || options->overlap || options->directions ||
        options->csv_path || options->svg_path || options->trace_path) {
        return wefti_error(WEFT_ERR_INVALID,
                           "compare takes no --schedule, --overlap, "
                           "--directions, --csv, --svg or --trace");
    }
    if (options->ranks == 0 || options->microbatches == 0 ||
        options->layers == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "compare needs --ranks P, --microbatches M and "
                           "--layers L");
    }
    return WEFT_OK;
}

static weft_status check_topology(const wefti_sched_options *options)
{
    if (options->topology && options->node_ranks > 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--topology and --nodes: allowed is one of them");
    }
    if (options->topology && options->message_bytes <= 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--topology needs --bytes N, what a message "
                           "carries; costs are then in us");
    }
    if (!options->topology &&
        (options->message_bytes > 0 || options->place_count > 0)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--bytes and --places are for --topology");
    }
    return WEFT_OK;
}

static weft_status check_plan(const wefti_sched_options *options)
{
    if (options->plan && options->command == WEFTI_SCHED_COMPARE) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--plan cost is for one schedule; compare prices "
                           "published orders");
    }
    if (options->plan_memory > 0 && !options->plan) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--memory-limit is for --plan cost; to prove what a "
                           "list takes, --max-activations");
    }
    return WEFT_OK;
}

/* Rules between flags. */
static weft_status check_together(const wefti_sched_options *options, int words)
{
    if (words == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "one command is needed: show, check, simulate, list "
                           "or compare; see weft-sched --help");
    }
    weft_status status = check_topology(options);
    if (status == WEFT_OK) {
        status = check_plan(options);
    }
    if (status != WEFT_OK || options->command == WEFTI_SCHED_COMPARE) {
        return status == WEFT_OK ? check_compare(options) : status;
    }
    if (options->choice_count > 0 || options->layers > 0 ||
        options->memory_most > 0 || options->copy_memory > 0 ||
        options->ends_given) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--layers, --max-memory, --copy-memory, --first, "
                           "--last and several --microbatches are for compare");
    }
    if (!options->schedule && options->command != WEFTI_SCHED_LIST) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--schedule NAME or FILE.csv is needed; "
                           "weft-sched list names all");
    }
    return WEFT_OK;
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
    return check_together(options_out, words);
}
