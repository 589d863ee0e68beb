/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sched_print.c - what weft-sched tells people.
 */
#include "perf/sched_job.h"

#include "base/error.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { RANKS_SHOWN = 64, COLUMNS = 120 };

static const char *const semantics_names[] = {"grouped", "rendezvous", "eager"};
static const char *const lowering_names[] = {"sender", "gap", "naive",
                                             "dualpipe"};

/* A published order is for F, I and W that take the same. */
static bool can_be_planned(const wefti_sched_job *job)
{
    static const char *const names[] = {"zb_h1", "zb_h2", "zbv"};
    const weft_schedule_cost *cost = &job->options->cost;
    bool equal = cost->f == cost->i && cost->i == cost->w && cost->p2p <= 0 &&
                 !job->cost.stages;
    for (size_t k = 0; k < 3; k++) {
        if (strcmp(job->options->schedule, names[k]) == 0) {
            return !equal && !job->options->plan;
        }
    }
    return false;
}

static void print_head(const wefti_sched_job *job)
{
    const weft_schedule_info *info = &job->info;
    printf("%s: %d rank%s, %d micro-batch%s, %d chunk%s a rank", info->name,
           info->ranks, info->ranks == 1 ? "" : "s", info->microbatches,
           info->microbatches == 1 ? "" : "es", info->chunks,
           info->chunks == 1 ? "" : "s");
    if (info->encoder_stages > 0) {
        printf(", of which %d of an encoder", job->options->encoder_chunks);
    }
    if (info->directions == 2) {
        printf(", two directions (two copies of the model)");
    }
    if (job->options->plan) {
        printf(", planned by cost");
    }
    printf(", %zu messages\n", info->messages);
}

static double share(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static void print_totals(const wefti_sched_job *job)
{
    const weft_schedule_run *run = &job->run;
    printf("makespan %.9g, ideal %.9g, bubble %.9g (%.1f%% of the step, %.1f%% "
           "of ideal), window bubble %.9g, peak activation %.9g\n",
           run->makespan, run->ideal, run->bubble,
           share(run->bubble, run->makespan), share(run->bubble, run->ideal),
           run->window_bubble, run->activations);
    if (can_be_planned(job)) {
        printf("in its published order, which is for F = I = W; --plan cost "
               "makes one for these costs\n");
    }
}

static void print_ranks(const wefti_sched_job *job)
{
    const weft_schedule_run *run = &job->run;
    bool used[WEFT_WAIT_COUNT] = {false};
    for (int r = 0; r < run->rank_count; r++) {
        for (int w = 1; w < WEFT_WAIT_COUNT; w++) {
            used[w] = used[w] || run->ranks[r].wait[w] > 0;
        }
    }
    printf("\n%6s %10s %10s %10s %10s   bubble, waiting for:\n%51s", "rank",
           "busy", "bubble", "window", "peak", "");
    for (int w = 1; w < WEFT_WAIT_COUNT; w++) {
        if (used[w]) {
            printf(" %10s", weft_schedule_wait_text((weft_schedule_wait)w));
        }
    }
    printf("\n");
    for (int r = 0; r < run->rank_count && r < RANKS_SHOWN; r++) {
        const weft_schedule_rank *rank = &run->ranks[r];
        printf("%6d %10.6g %10.6g %10.6g %10.6g    ", r, rank->busy,
               rank->bubble, rank->window_bubble, rank->activations);
        for (int w = 1; w < WEFT_WAIT_COUNT; w++) {
            if (used[w]) {
                printf(" %10.6g", rank->wait[w]);
            }
        }
        printf("\n");
    }
    if (run->rank_count > RANKS_SHOWN) {
        printf("and %d more ranks; --json has all\n",
               run->rank_count - RANKS_SHOWN);
    }
}

static void print_cycle(const wefti_sched_job *job)
{
    const weft_verdict *verdict = &job->verdict;
    if (verdict->cycle_count > 0) {
        printf("each waits for the next:\n");
    }
    for (size_t k = 0; k < verdict->cycle_count; k++) {
        char text[WEFT_ACTION_TEXT_BYTES];
        const weft_action *actions;
        weft_schedule_get_actions(job->schedule, verdict->cycle[k].rank,
                                  &actions);
        const weft_place *at = &verdict->cycle[k];
        weft_action_pack(&actions[at->index], text);
        printf("  rank %d: %s", at->rank, text);
        if (at->row > 0) {
            printf(", row %d, column %d", at->row, at->column);
        }
        printf("\n");
    }
}

static void print_verdict(const wefti_sched_job *job)
{
    const weft_verdict *verdict = &job->verdict;
    const wefti_sched_options *options = job->options;
    for (size_t k = 0; k < verdict->finding_count && k < WEFT_FINDINGS_MOST;
         k++) {
        printf("%s: %s\n", weft_rule_text(verdict->findings[k].rule),
               verdict->findings[k].text);
    }
    if (verdict->finding_count > WEFT_FINDINGS_MOST) {
        printf("and %zu more\n", verdict->finding_count - WEFT_FINDINGS_MOST);
    }
    print_cycle(job);
    if (verdict->valid) {
        double most = 0;
        int early = 0;
        for (int r = 0; r < job->info.ranks; r++) {
            most =
                verdict->activations[r] > most ? verdict->activations[r] : most;
            early = verdict->early[r] > early ? verdict->early[r] : early;
        }
        printf("valid: complete, in order, fifo, free of deadlock (%s",
               semantics_names[options->semantics]);
        if (options->semantics == WEFT_SEMANTICS_EAGER) {
            printf(", %d slots", options->eager_slots);
        }
        printf("; messages %s); peak activation %.9g, at most %d messages "
               "received before their use\n",
               job->info.lowered ? "as in the file"
                                 : lowering_names[options->lowering],
               most, early);
    }
}

static int terminal_columns(void)
{
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    int columns = known && size.ws_col > 0 ? size.ws_col : COLUMNS;
    columns = columns < 40 ? 40 : columns;
    return columns > 1000 ? 1000 : columns;
}

static weft_status print_drawing(const wefti_sched_job *job)
{
    int columns =
        job->options->columns ? job->options->columns : terminal_columns();
    printf("\n");
    return weft_schedule_draw_text(job->schedule, &job->run, columns,
                                   isatty(STDOUT_FILENO), stdout);
}

static weft_status print_list(const wefti_sched_job *job)
{
    for (int r = 0; r < job->info.ranks; r++) {
        const weft_action *actions;
        size_t count = weft_schedule_get_actions(job->schedule, r, &actions);
        printf("rank %d:", r);
        for (size_t k = 0; k < count; k++) {
            char text[WEFT_ACTION_TEXT_BYTES];
            weft_action_pack(&actions[k], text);
            printf(" %s", text);
        }
        printf("\n");
    }
    return WEFT_OK;
}

weft_status wefti_sched_print(const wefti_sched_job *job)
{
    print_head(job);
    switch (job->options->command) {
    case WEFTI_SCHED_LIST:
        return print_list(job);
    case WEFTI_SCHED_SHOW:
        if (!job->priced) {
            return WEFT_OK;
        }
        print_totals(job);
        return print_drawing(job);
    case WEFTI_SCHED_SIMULATE:
        if (job->priced) {
            print_totals(job);
            print_ranks(job);
        }
        return WEFT_OK;
    default:
        print_verdict(job);
        return WEFT_OK;
    }
}
