/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_options.h - weft-info's command line.
 */
#ifndef PERF_INFO_OPTIONS_H
#define PERF_INFO_OPTIONS_H

#include "topo/topo.h"

typedef struct wefti_info_options {
    const char *input; /* NULL: this machine */
    wefti_topo_format format;
    const char *model; /* of a template's GPUs; NULL: unknown */
    const char *bind;  /* how many ranks to bind here; NULL: none */
    const char *place; /* sizes of a job to place; NULL: none */
    const char *svg_path, *nccl_path, *json_path; /* NULL: none; "-": stdout */
    const char *ranks; /* -n: how many ranks --routes is about; NULL: usual */
    bool settings, routes;
    bool help, version;
} wefti_info_options;

/*
 * Returns     OK | ERR_INVALID: the text names the flag, its value and what is
 *             allowed. Texts are borrowed from args.
 */
WEFT_NODISCARD weft_status wefti_info_options_read(int arg_count, char **args,
                                                   wefti_info_options *options);

void wefti_info_options_help(FILE *file);

#endif
