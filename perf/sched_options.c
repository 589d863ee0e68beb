/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sched_options.c - weft-sched's command line.
 */
#include "perf/sched_options.h"

#include "base/error.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
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
    NODES,
    LOWERING,
    SEMANTICS,
    GROUPED,
    RENDEZVOUS,
    PASSES,
    MAX_ACTIVATIONS,
    MAX_EARLY,
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
    {"nodes", required_argument, NULL, NODES},
    {"lowering", required_argument, NULL, LOWERING},
    {"semantics", required_argument, NULL, SEMANTICS},
    {"grouped", no_argument, NULL, GROUPED},
    {"rendezvous", no_argument, NULL, RENDEZVOUS},
    {"passes", required_argument, NULL, PASSES},
    {"max-activations", required_argument, NULL, MAX_ACTIVATIONS},
    {"max-early", required_argument, NULL, MAX_EARLY},
    {"columns", required_argument, NULL, COLUMNS},
    {"csv", required_argument, NULL, CSV},
    {"torch", no_argument, NULL, TORCH},
    {"svg", required_argument, NULL, SVG},
    {"trace", required_argument, NULL, TRACE},
    {"json", required_argument, NULL, JSON},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, VERSION},
    {0}};

static const char help_text[] =
    "usage: weft-sched show|check|simulate|list --schedule NAME|FILE.csv\n"
    "                  --ranks P --microbatches M [flags]\n"
    "\n"
    "Pipeline schedules: makes one, proves it, prices it, draws it.\n"
    "\n"
    "  show       draws the timeline\n"
    "  check      proves that it is complete, in order and free of deadlock;\n"
    "             exit status 1 and what is wrong where it is not\n"
    "  simulate   time, bubble, memory, and what each rank waits for\n"
    "  list       the actions of each rank; without --schedule, all schedules\n"
    "\n"
    "  --schedule NAME       gpipe 1f1b interleaved zb_h1 zb_h2 zbv dualpipe\n"
    "                        dualpipev, or a CSV file: one row per rank\n"
    "  --ranks P             pipeline ranks (a file's own)\n"
    "  --microbatches M      of a step, both directions together (a file's "
    "own)\n"
    "  --chunks V            interleaved: chunks a rank (2)\n"
    "  --group N             interleaved: micro-batches a chunk runs in turn "
    "(P)\n"
    "  --overlap             interleaved: steady pairs run as one FB\n"
    "  --directions 1|2      of a file (2 where it can only be that)\n"
    "  --old-torch           a file of older torch: B is I, BW is B\n"
    "\n"
    "  --cost LIST           "
    "F=1,I=1,W=1,B=2,FB=3,p2p=0,reduce=0,gather=0,opt=0:\n"
    "                        of all stages a rank has of one direction, p2p "
    "of\n"
    "                        each message (B: I+W, FB: F+B)\n"
    "  --nodes N:T           nodes of N ranks; each message between nodes "
    "takes\n"
    "                        the sending and the receiving node's port for T\n"
    "\n"
    "  --lowering HOW        how messages are placed: sender (default), gap,\n"
    "                        naive, dualpipe\n"
    "  --semantics HOW       grouped (default), rendezvous, eager:K; "
    "--grouped\n"
    "                        and --rendezvous are short for the first two\n"
    "  --passes LIST         merge,recompute,shard,reduce,optimize,release\n"
    "  --max-activations A   check: no rank may hold more (device units)\n"
    "  --max-early N         check: nor more messages before their use\n"
    "\n"
    "  --csv FILE            the actions as CSV; with messages if --lowering "
    "is\n"
    "                        given; --torch leaves out what torch lacks\n"
    "  --svg FILE            the timeline as a picture\n"
    "  --trace FILE          the timeline for Perfetto or chrome://tracing; "
    "one\n"
    "                        unit of cost is one ms\n"
    "  --json FILE, -J FILE  the facts as JSON; for all files, - is stdout\n"
    "  --columns N           width of the drawing (the terminal's, or 120)\n"
    "  --help, --version\n"
    "\n"
    "examples:\n"
    "  weft-sched show --schedule dualpipev --ranks 4 --microbatches 10\n"
    "  weft-sched simulate --schedule interleaved --ranks 8 --microbatches 32 "
    "\\\n"
    "      --chunks 4 --cost F=1,I=1,W=1,p2p=0.1\n"
    "  weft-sched check --schedule zbv --ranks 4 --microbatches 16 \\\n"
    "      --lowering gap\n"
    "  weft-sched check --schedule mine.csv --semantics eager:2\n"
    "  weft-sched show --schedule dualpipe --ranks 8 --microbatches 20 \\\n"
    "      --cost FB=2.4 --svg dualpipe.svg\n";

void wefti_sched_options_print_help(void)
{
    fputs(help_text, stdout);
}

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

static weft_status read_real(const char *flag, const char *text,
                             double *value_out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s %s: allowed is a number of at least 0", flag,
                           text);
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

static weft_status read_cost(const char *word, weft_schedule_cost *cost)
{
    const struct {
        const char *name;
        double *value;
    } keys[] = {{"F", &cost->f},           {"I", &cost->i},
                {"W", &cost->w},           {"B", &cost->b},
                {"FB", &cost->fb},         {"p2p", &cost->p2p},
                {"reduce", &cost->reduce}, {"gather", &cost->gather},
                {"opt", &cost->optimizer}};
    const char *equals = strchr(word, '=');
    for (size_t k = 0; equals && k < sizeof(keys) / sizeof(keys[0]); k++) {
        if (strlen(keys[k].name) == (size_t)(equals - word) &&
            strncmp(keys[k].name, word, (size_t)(equals - word)) == 0) {
            return read_real("--cost", equals + 1, keys[k].value);
        }
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "--cost %s: allowed is KEY=NUMBER with F I W B FB p2p "
                       "reduce gather opt",
                       word);
}

static weft_status read_costs(const char *list, weft_schedule_cost *cost)
{
    char word[WORD_BYTES];
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && next_word(&list, word)) {
        status = read_cost(word, cost);
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
        return read_int("--microbatches", text, 1,
                        WEFT_SCHEDULE_MICROBATCHES_MOST,
                        &options->microbatches);
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
    default:
        return read_real("--max-activations", text, &options->activations_most);
    }
}

static weft_status read_how(int flag, const char *text,
                            wefti_sched_options *options)
{
    switch (flag) {
    case COST:
        return read_costs(text, &options->cost);
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

static weft_status take_flag(int flag, const char *text, const char *word,
                             wefti_sched_options *options)
{
    switch (flag) {
    case SCHEDULE:
        options->schedule = text;
        return WEFT_OK;
    case OVERLAP:
        options->overlap = true;
        return WEFT_OK;
    case OLD_TORCH:
        options->old_torch = true;
        return WEFT_OK;
    case TORCH:
        options->for_torch = true;
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

static weft_status take_command(const char *word, wefti_sched_options *options)
{
    static const char *const names[] = {"show", "check", "simulate", "list"};
    for (int k = 0; k < 4; k++) {
        if (strcmp(names[k], word) == 0) {
            options->command = (wefti_sched_command)k;
            return WEFT_OK;
        }
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "%s: allowed is show, check, simulate or list", word);
}

/* Rules between flags. */
static weft_status check_together(const wefti_sched_options *options, int words)
{
    if (words != 1) {
        return wefti_error(WEFT_ERR_INVALID,
                           "one command is needed: show, check, simulate or "
                           "list; see weft-sched --help");
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
            words++;
            status = take_command(optarg, options_out);
        } else {
            status = take_flag(flag, optarg, argv[optind - 1], options_out);
        }
    }
    if (status != WEFT_OK || options_out->help || options_out->version) {
        return status;
    }
    return check_together(options_out, words);
}
