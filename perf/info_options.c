/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_options.c - reads weft-info's command line.
 */
#include "perf/info_options.h"

#include "base/check.h"
#include "base/error.h"

#include <string.h>

void wefti_info_options_help(FILE *file)
{
    fputs(
        "usage: weft-info [--input MACHINE] [--format hwloc|nccl|synthetic]\n"
        "                 [--model GPU] [--settings] [--svg FILE]\n"
        "                 [--export-nccl FILE] [--place SIZES] [--bind N]\n"
        "                 [--routes [-n N]] [--json FILE]\n"
        "\n"
        "What this machine, or a recorded one, is made of: GPUs, NICs, links,\n"
        "the paths between them, the rings that fit, and what is odd about\n"
        "it. FILE may be - for standard output. Started by weft-run, mpirun "
        "or\n"
        "srun it shows the machines of all ranks as one cluster.\n"
        "\n"
        "  --input MACHINE     a topology file of hwloc (1.x, 2.x), NCCL or\n"
        "                      RCCL, or a text such as 2x(8xH100,8xCX7);\n"
        "                      without it: this machine\n"
        "  --format FORMAT     what MACHINE is; else recognised by itself\n"
        "  --model GPU         what the GPUs of a template are: H100, A100 ..\n"
        "  --settings          every WEFT_ variable, its value and where it\n"
        "                      came from; exits with 1 if weft refuses one\n"
        "  --svg FILE          a picture\n"
        "  --export-nccl FILE  the machine as NCCL_TOPO_FILE takes it\n"
        "  --place SIZES       which rank goes where, such as tp=8,pp=4,dp=2\n"
        "                      (also cp, ep; tp_bytes=1e9 and so on: what a\n"
        "                      rank sends in that group a step)\n"
        "  --routes [-n N]     which way N ranks' collectives take: levels,\n"
        "                      algorithm, fabric, chunks, and why (-n: those\n"
        "                      of the job, else one a GPU, else one a CPU),\n"
        "                      weighed by what a job measured, else by what\n"
        "                      the NICs carry\n"
        "  --bind N            which CPUs N ranks of this host would get\n"
        "  --json FILE         the same facts for programs\n"
        "  --help, --version\n"
        "\n"
        "examples:\n"
        "  weft-info\n"
        "  weft-info --input '2x(8xH100,8xCX7)' --svg cluster.svg\n"
        "  NCCL_TOPO_DUMP_FILE=m.xml python train.py; weft-info --input m.xml\n"
        "  weft-info --input '4x(8xH100,8xCX7)' --place tp=8,pp=4\n"
        "  weft-run -n 4 --net-emulate 2x2,1gbit weft-info --routes\n"
        "  weft-info --input lstopo.xml --export-nccl topo.xml --json -\n"
        "\n"
        "Warnings carry the number of their row in docs/topology.md.\n",
        file);
}

typedef struct flag {
    const char *name;
    const char **value;
} flag;

/* The value after the flag, or behind its '='. */
static weft_status read_value(int arg_count, char **args, int *at,
                              const char *name, const char **value_out)
{
    size_t bytes = strlen(name);
    if (args[*at][bytes] == '=') {
        *value_out = args[*at] + bytes + 1;
    } else if (*at + 1 < arg_count) {
        *value_out = args[++*at];
    } else {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s: a value is missing; allowed is a file or a name", name);
    }
    return WEFT_OK;
}

static bool is_flag(const char *arg, const char *name)
{
    size_t bytes = strlen(name);
    return strncmp(arg, name, bytes) == 0 &&
           (arg[bytes] == '\0' || arg[bytes] == '=');
}

weft_status wefti_info_options_read(int arg_count, char **args,
                                    wefti_info_options *options)
{
    const char *format = NULL;
    *options = (wefti_info_options){0};
    const flag flags[] = {
        {"--input", &options->input},    {"--format", &format},
        {"--model", &options->model},    {"--bind", &options->bind},
        {"--place", &options->place},    {"-n", &options->ranks},
        {"--svg", &options->svg_path},   {"--export-nccl", &options->nccl_path},
        {"--json", &options->json_path}, {"-J", &options->json_path}};
    for (int at = 1; at < arg_count; at++) {
        bool known = true;
        if (strcmp(args[at], "--help") == 0 || strcmp(args[at], "-h") == 0) {
            options->help = true;
        } else if (strcmp(args[at], "--version") == 0) {
            options->version = true;
        } else if (strcmp(args[at], "--settings") == 0) {
            options->settings = true;
        } else if (strcmp(args[at], "--routes") == 0) {
            options->routes = true;
        } else {
            known = false;
        }
        for (size_t i = 0; i < WEFTI_COUNT_OF(flags) && !known; i++) {
            if (is_flag(args[at], flags[i].name)) {
                weft_status status = read_value(arg_count, args, &at,
                                                flags[i].name, flags[i].value);
                if (status != WEFT_OK) {
                    return status;
                }
                known = true;
            }
        }
        if (!known) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%s: not known; --help lists what is", args[at]);
        }
    }
    if (options->ranks && !options->routes) {
        return wefti_error(WEFT_ERR_INVALID, "-n %s: only with --routes",
                           options->ranks);
    }
    if (options->model && !options->input) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--model %s: only of a recorded machine, with "
                           "--input",
                           options->model);
    }
    const char *const paths[] = {options->svg_path, options->nccl_path,
                                 options->json_path};
    int outs = 0;
    for (size_t i = 0; i < WEFTI_COUNT_OF(paths); i++) {
        outs += paths[i] && strcmp(paths[i], "-") == 0;
    }
    if (outs > 1) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%d files to standard output (-): allowed is one of "
                           "--svg, --export-nccl, --json",
                           outs);
    }
    if (options->bind && options->input) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--bind %s: only of this machine, without --input",
                           options->bind);
    }
    if (format && !wefti_topo_format_find(format, &options->format)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--format %s: allowed is hwloc, nccl or synthetic",
                           format);
    }
    return WEFT_OK;
}
