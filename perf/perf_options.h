/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_options.h - weft-perf's command line, read strictly.
 */
#ifndef PERF_PERF_OPTIONS_H
#define PERF_PERF_OPTIONS_H

#include "comm/core/algorithm.h"
#include "perf/perf_case.h"
#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of moe_dispatch and moe_combine; 0: not given. */
typedef struct wefti_perf_moe_options {
    int tokens, hidden, experts, slots, hops;
    bool fp8;
} wefti_perf_moe_options;

/* Calls that are posted together at most. */
enum { WEFTI_PERF_GROUP_MOST = 1024 };

/* What of the ranks' times of a call is its time; nccl-tests' numbers. */
typedef enum wefti_perf_average {
    WEFTI_PERF_OF_RANK_0,
    WEFTI_PERF_OF_ALL, /* their mean */
    WEFTI_PERF_LEAST,
    WEFTI_PERF_MOST,
    WEFTI_PERF_AVERAGES
} wefti_perf_average;

typedef struct wefti_perf_options {
    const wefti_perf_op *op;
    size_t *sizes; /* [size_count], bytes as asked for */
    size_t size_count;
    size_t min_bytes, max_bytes, factor; /* what sizes were made from */
    size_t step_bytes;                   /* 0: by factor */
    int iterations;                      /* 0: by size */
    int warmup;                          /* -1: by iterations */
    uint32_t dtypes, redops; /* bit sets; without a reduction: SUM */
    int root;
    int checks;
    int cycles;    /* over all sizes; 0: without end */
    int timeout_s; /* 0: WEFT_TIMEOUT_MS */
    wefti_perf_average average;
    int group;         /* calls posted together, and waited for together */
    int first_elem;    /* of a buffer, behind where it would begin */
    double least_GBps; /* busbw, the mean of all rows; 0: any */
    bool table;        /* as nccl-tests prints it */
    bool spread;       /* how far a row's times differ, in that table, too */
    bool sized;        /* by -b, -e or --sizes */
    bool least_given, most_given; /* -b, -e */
    bool blocking;
    bool inplace;
    bool overlap;
    bool bare;
    bool registered, unregistered;
    bool plan;
    bool graph;
    bool samples;
    bool regret;
    const char *algorithms;   /* NULL: as WEFT_ALGO says */
    wefti_algorithms allowed; /* what they are; 0: not given */
    const char *memory;       /* a device kind: host, cuda or shadow */
    int device;               /* of that kind; -1: by rank */
    wefti_perf_moe_options moe;
    const char *matrix_path; /* bytes from ranks to ranks; NULL: none */
    double matrix_scale;     /* of alltoallv's */
    const char *json_path;   /* NULL: none; "-": stdout */
    bool help, version;      /* asked for; nothing else counts then */
} wefti_perf_options;

/*
 * wefti_perf_options_read - from main's arguments; fini frees what it took.
 *
 * Returns     OK | ERR_INVALID (weft_error_text() names the flag, its value
 *             and what is allowed) | ERR_NO_MEMORY; then nothing to free.
 */
WEFT_NODISCARD weft_status
wefti_perf_options_read(int argc, char **argv, wefti_perf_options *options_out);

void wefti_perf_options_fini(wefti_perf_options *options);

void wefti_perf_options_print_help(void);

#endif
