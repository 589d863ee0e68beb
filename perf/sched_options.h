/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sched_options.h - weft-sched's command line, read strictly.
 */
#ifndef PERF_SCHED_OPTIONS_H
#define PERF_SCHED_OPTIONS_H

#include "weft/advice.h"

typedef enum wefti_sched_command {
    WEFTI_SCHED_SHOW,
    WEFTI_SCHED_CHECK,
    WEFTI_SCHED_SIMULATE,
    WEFTI_SCHED_LIST,
    WEFTI_SCHED_COMPARE
} wefti_sched_command;

enum { WEFTI_SCHED_PLACES_MOST = 4096 };

typedef struct wefti_sched_options {
    wefti_sched_command command;
    const char *schedule; /* a name, or a file; NULL: list all */
    int ranks, microbatches, chunks, group; /* 0: not given */
    int directions;                         /* 0: as the file says */
    bool overlap, old_torch;
    weft_schedule_cost cost;
    double node_busy;     /* with --nodes: each message over the node's port */
    int node_ranks;       /* 0: not given */
    const char *topology; /* NULL: none */
    double message_bytes; /* with it */
    int places[WEFTI_SCHED_PLACES_MOST], place_count; /* 0: in order */
    bool lowering_given;
    weft_lowering lowering;
    weft_semantics semantics;
    int eager_slots;
    bool plan;          /* the order is made for the costs */
    double plan_memory; /* device units; 0: the schedule's own */
    bool reduce, optimize, shard, recompute, release, merge;
    double activations_most;
    int early_most;
    /* compare: further numbers of micro-batches, ... */
    int choices[WEFT_ADVICE_CHOICES_MOST], choice_count;
    int layers;
    double memory_most, copy_memory;
    weft_stage_cost first, last; /* the model's ends beside their layers */
    bool ends_given;
    int encoder_chunks;      /* of a rank, the first ones; 0: none */
    weft_stage_cost encoder; /* of all of them together */
    int columns;             /* of the terminal form; 0: by terminal */
    const char *csv_path, *svg_path, *trace_path, *json_path; /* NULL: none */
    bool for_torch;
    bool help, version;
} wefti_sched_options;

/*
 * wefti_sched_options_read - from main's arguments.
 *
 * Returns     OK | ERR_INVALID (the flag, its value and what is allowed).
 */
WEFT_NODISCARD weft_status wefti_sched_options_read(
    int argc, char **argv, wefti_sched_options *options_out);

/*
 * wefti_sched_options_check - rules between flags; words: how many stood on the
 * command line that are no flags.
 *
 * Returns     OK | ERR_INVALID.
 */
WEFT_NODISCARD weft_status
wefti_sched_options_check(const wefti_sched_options *options, int words);

void wefti_sched_options_print_help(void);

#endif
