/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/run_options.h - weft-run's command line.
 */
#ifndef PERF_RUN_OPTIONS_H
#define PERF_RUN_OPTIONS_H

#include "perf/net_emulation.h"
#include "weft/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { RUN_RANKS_MOST = 1024 };

typedef enum run_request {
    RUN_REQUEST_JOB,
    RUN_REQUEST_HELP,
    RUN_REQUEST_VERSION
} run_request;

/* Texts are borrowed from argv. */
typedef struct run_options {
    run_request request;
    int nranks;
    int ranks_per_process;
    bool bind_core;
    bool elastic;
    bool label;
    bool emulates; /* nodes, as net says, of ranks as node_of says */
    net_spec net;
    const char *rank_order;
    int node_of[RUN_RANKS_MOST];
    int64_t timeout_ms;    /* 0: none */
    const char *json_path; /* NULL: none; "-": stdout */
    char **program;        /* PROGRAM ARGS... NULL */
} run_options;

extern const char run_usage[];

/*
 * run_options_parse - from main's arguments; options end with PROGRAM.
 *
 * Returns     OK | ERR_INVALID; the text names the option, its value and what
 *             is allowed.
 */
WEFT_NODISCARD weft_status run_options_parse(int argc, char **argv,
                                             run_options *options_out);

#endif
