/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/run_options.c - a table of options; values follow, or stand after "=".
 */
#include "perf/run_options.h"

#include "base/check.h"
#include "base/error.h"
#include "base/plain_number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MOST_S = 10000000 };

const char run_usage[] =
    "usage: weft-run -n N [options] PROGRAM [ARGS...]\n"
    "\n"
    "Runs PROGRAM as the N ranks of a job on this host, and ends them all "
    "when\n"
    "one of them fails. Exits with the status of the first rank that failed\n"
    "(128 + the signal that killed it), and says on stderr which rank it was,\n"
    "how it ended and after which operation.\n"
    "\n"
    "  -n N                    how many ranks, 1 to 1024\n"
    "  --ranks-per-process R   start N/R processes with R ranks each (1)\n"
    "  --bind core|none        core: each process to cores and memory near\n"
    "                          its GPU or NIC, a fair share of what weft-run\n"
    "                          may use; none: where the system puts it (none)\n"
    "  --timeout S             after S seconds end all, exit status 124\n"
    "  --net-emulate SPEC      as on several hosts: 2x2,1gbit is 2 nodes of 2\n"
    "                          ranks with links of 1 Gbit/s each way, 3+1 is\n"
    "                          uneven, 4x1,1gbit+400mbit has two rails (by\n"
    "                          network namespaces: needs root and iproute2)\n"
    "  --rank-order ORDER      whose node each rank is on: block (0 0 1 1),\n"
    "                          cyclic (0 1 0 1), or a list: 0,1,1,0 (block)\n"
    "  --elastic               a rank that fails ends nobody: the job fails\n"
    "                          only when no rank ends well\n"
    "  --label                 begin each line of output with its rank\n"
    "  --json FILE, -J FILE    how each rank ended, as JSON; - is stdout\n"
    "  --help, --version\n"
    "\n"
    "SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 go on to all ranks. Rank 0\n"
    "reads weft-run's stdin, the others read /dev/null. What ranks have left\n"
    "running when the last one ends is ended too.\n"
    "\n"
    "examples:\n"
    "  weft-run -n 4 weft-train config.yaml\n"
    "  weft-run -n 8 --ranks-per-process 4 --label ./my-program\n"
    "  weft-run -n 4 --net-emulate 2x2,1gbit weft-perf all_reduce -e 16M\n"
    "  weft-run -n 2 --timeout 60 weft-perf all_reduce -b 8 -e 4M\n"
    "  weft-run -n 4 --elastic weft-train config.yaml --set "
    "train.elastic=true\n";

typedef weft_status setter(run_options *options, const char *name,
                           const char *value);

static weft_status set_nranks(run_options *options, const char *name,
                              const char *value)
{
    return wefti_plain_flag(name, value, 1, RUN_RANKS_MOST, &options->nranks);
}

static weft_status set_per_process(run_options *options, const char *name,
                                   const char *value)
{
    return wefti_plain_flag(name, value, 1, RUN_RANKS_MOST,
                            &options->ranks_per_process);
}

static weft_status set_bind(run_options *options, const char *name,
                            const char *value)
{
    options->bind_core = strcmp(value, "core") == 0;
    if (!options->bind_core && strcmp(value, "none") != 0) {
        return wefti_error(WEFT_ERR_INVALID, "%s %s: allowed is core or none",
                           name, value);
    }
    return WEFT_OK;
}

static weft_status set_timeout(run_options *options, const char *name,
                               const char *value)
{
    double seconds;
    if (!wefti_plain_real(value, &seconds) || seconds < 0.001 ||
        seconds > TIMEOUT_MOST_S) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s %s: allowed is 0.001 to %d seconds", name, value,
                           TIMEOUT_MOST_S);
    }
    options->timeout_ms = (int64_t)ceil(seconds * 1000);
    return WEFT_OK;
}

static weft_status set_emulation(run_options *options, const char *name,
                                 const char *value)
{
    (void)name;
    options->emulates = true;
    return net_spec_parse(value, &options->net);
}

static weft_status set_order(run_options *options, const char *name,
                             const char *value)
{
    (void)name;
    options->rank_order = value;
    return WEFT_OK;
}

static weft_status set_json(run_options *options, const char *name,
                            const char *value)
{
    if (!value[0]) {
        return wefti_error(WEFT_ERR_INVALID, "%s: allowed is a file, or -",
                           name);
    }
    options->json_path = value;
    return WEFT_OK;
}

static weft_status set_label(run_options *options, const char *name,
                             const char *value)
{
    (void)name;
    (void)value;
    options->label = true;
    return WEFT_OK;
}

static weft_status set_elastic(run_options *options, const char *name,
                               const char *value)
{
    (void)name;
    (void)value;
    options->elastic = true;
    return WEFT_OK;
}

static weft_status ask_help(run_options *options, const char *name,
                            const char *value)
{
    (void)name;
    (void)value;
    options->request = RUN_REQUEST_HELP;
    return WEFT_OK;
}

static weft_status ask_version(run_options *options, const char *name,
                               const char *value)
{
    (void)name;
    (void)value;
    options->request = RUN_REQUEST_VERSION;
    return WEFT_OK;
}

typedef struct option_row {
    const char *name;
    bool has_value;
    setter *set;
} option_row;

static const option_row rows[] = {
    {"-n", true, set_nranks},
    {"--ranks-per-process", true, set_per_process},
    {"--bind", true, set_bind},
    {"--timeout", true, set_timeout},
    {"--elastic", false, set_elastic},
    {"--net-emulate", true, set_emulation},
    {"--rank-order", true, set_order},
    {"--label", false, set_label},
    {"--json", true, set_json},
    {"-J", true, set_json},
    {"--help", false, ask_help},
    {"-h", false, ask_help},
    {"--version", false, ask_version},
};

/* The row of word; *value_out is what stands after "=", or NULL. */
static const option_row *find_row(const char *word, const char **value_out)
{
    size_t name_bytes = strcspn(word, "=");
    *value_out = word[name_bytes] ? word + name_bytes + 1 : NULL;
    for (size_t i = 0; i < WEFTI_COUNT_OF(rows); i++) {
        if (strlen(rows[i].name) == name_bytes &&
            memcmp(rows[i].name, word, name_bytes) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

static weft_status check_emulation(run_options *options)
{
    if (!options->emulates) {
        return options->rank_order
                   ? wefti_error(WEFT_ERR_INVALID,
                                 "--rank-order %s: allowed only with "
                                 "--net-emulate",
                                 options->rank_order)
                   : WEFT_OK;
    }
    if (net_spec_count_ranks(&options->net) != options->nranks) {
        return wefti_error(
            WEFT_ERR_INVALID, "-n %d: --net-emulate has %d ranks on its nodes",
            options->nranks, net_spec_count_ranks(&options->net));
    }
    const char *order = options->rank_order ? options->rank_order : "block";
    weft_status status = net_spec_place(&options->net, order, options->node_of);
    for (int rank = 0; rank < options->nranks && status == WEFT_OK; rank++) {
        int first = rank - rank % options->ranks_per_process;
        if (options->node_of[rank] != options->node_of[first]) {
            status = wefti_error(WEFT_ERR_INVALID,
                                 "--ranks-per-process %d: ranks %d and %d are "
                                 "on different emulated nodes",
                                 options->ranks_per_process, first, rank);
        }
    }
    return status;
}

static weft_status check_job(run_options *options)
{
    if (options->nranks == 0) {
        return wefti_error(WEFT_ERR_INVALID, "-n N is missing: how many ranks");
    }
    if (!options->program[0]) {
        return wefti_error(WEFT_ERR_INVALID, "PROGRAM is missing");
    }
    if (options->nranks % options->ranks_per_process != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--ranks-per-process %d: allowed is a divisor of "
                           "-n %d",
                           options->ranks_per_process, options->nranks);
    }
    return check_emulation(options);
}

weft_status run_options_parse(int argc, char **argv, run_options *options_out)
{
    *options_out = (run_options){.ranks_per_process = 1};
    int at = 1;
    while (at < argc && argv[at][0] == '-') {
        const char *word = argv[at++], *value;
        if (strcmp(word, "--") == 0) {
            break;
        }
        const option_row *row = find_row(word, &value);
        if (!row) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%s: unknown option: see weft-run --help", word);
        }
        if (!row->has_value && value) {
            return wefti_error(WEFT_ERR_INVALID, "%s: takes no value", word);
        }
        if (row->has_value && !value) {
            if (at == argc) {
                return wefti_error(WEFT_ERR_INVALID, "%s: its value is missing",
                                   word);
            }
            value = argv[at++];
        }
        weft_status status = row->set(options_out, row->name, value);
        if (status != WEFT_OK || options_out->request != RUN_REQUEST_JOB) {
            return status;
        }
    }
    options_out->program = argv + at;
    return check_job(options_out);
}
