/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/advice_text.c - why, in a sentence, and what to do about
 * idle time: bubble and imbalance have different remedies.
 */
#include "overlap/schedule/advice_text.h"

#include "overlap/schedule/merit.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Appends as far as there is room. */
static void add(char *text, size_t text_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add(char *text, size_t text_bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list values;
    va_start(values, format);
    (void)vsnprintf(text + used, text_bytes - used, format, values);
    va_end(values);
}

/* ---- the reason -----------------------------------------------------------
 */

enum { NAME_BYTES = 96 };

static const char *write_name(const weft_advice_config *config,
                              const weft_schedule_candidate *c,
                              char text[NAME_BYTES])
{
    text[0] = '\0';
    add(text, NAME_BYTES, "%s%s", c->name,
        c->planned ? " planned by cost" : "");
    if (strcmp(c->name, "interleaved") == 0) {
        add(text, NAME_BYTES, " with V = %d%s", c->chunks,
            c->overlap ? " and overlap" : "");
    }
    if (config->choice_count > 0) {
        add(text, NAME_BYTES, ", m = %d", c->microbatches);
    }
    return text;
}

/* 1f1b with the given settings, the usual schedule. */
static const weft_schedule_candidate *
find_usual(const weft_advice_config *config, const weft_advice *advice)
{
    for (size_t k = 0; k < advice->count; k++) {
        const weft_schedule_candidate *c = &advice->candidates[k];
        if (strcmp(c->name, "1f1b") == 0 && !isnan(c->makespan) &&
            c->microbatches == config->microbatches) {
            return c;
        }
    }
    return NULL;
}

/* The fastest of those that have no room. */
static const weft_schedule_candidate *find_barred(const weft_advice *advice)
{
    const weft_schedule_candidate *barred = NULL;
    for (size_t k = 0; k < advice->count; k++) {
        const weft_schedule_candidate *c = &advice->candidates[k];
        if (!c->possible && !isnan(c->makespan) &&
            (float)c->makespan < (float)advice->candidates[0].makespan &&
            (!barred || c->makespan < barred->makespan)) {
            barred = c;
        }
    }
    return barred;
}

/* "120 a step, bubble 3.5% of it, imbalance 16.6%, 8 units of memory" */
static void add_figures(weft_advice *advice, const weft_schedule_candidate *c)
{
    add(advice->reason, sizeof(advice->reason),
        "%.4g a step, bubble %.1f%% of it", c->makespan, 100 * c->bubble_ratio);
    if (c->imbalance_ratio >= 0.0005) { /* else it would read 0.0% */
        add(advice->reason, sizeof(advice->reason), ", imbalance %.1f%%",
            100 * c->imbalance_ratio);
    }
    add(advice->reason, sizeof(advice->reason), ", %.4g units of memory",
        c->memory);
}

static void add_copies(const weft_advice_config *config, weft_advice *advice,
                       const weft_schedule_candidate *c)
{
    if (c->param_copies < 2) {
        return;
    }
    add(advice->reason, sizeof(advice->reason),
        ", and a second copy of the parameters with their gradients and "
        "moments: ");
    if (config->copy_memory > 0) {
        add(advice->reason, sizeof(advice->reason), "%.4g of these units",
            config->copy_memory);
    } else {
        add(advice->reason, sizeof(advice->reason),
            "what that takes is not counted");
    }
}

static void explain_best(const weft_advice_config *config, weft_advice *advice)
{
    const weft_schedule_candidate *best = &advice->candidates[0];
    const weft_schedule_candidate *next = best;
    char name[NAME_BYTES];
    for (size_t k = 1; k < advice->count && advice->candidates[k].possible;
         k++) {
        const weft_schedule_candidate *c = &advice->candidates[k];
        next = (float)c->makespan < (float)next->makespan ? c : next;
    }
    add(advice->reason, sizeof(advice->reason), "%s is the fastest%s",
        write_name(config, best, name),
        config->memory_most > 0 ? " that fits" : "");
    if (next != best) {
        add(advice->reason, sizeof(advice->reason), ", within %.1f%%",
            100 * WEFT_ADVICE_TIE);
    }
    add(advice->reason, sizeof(advice->reason), ": ");
    add_figures(advice, best);
    add_copies(config, advice, best);
    if (next != best) {
        add(advice->reason, sizeof(advice->reason),
            "; %s takes %.4g, which is no reason to pay for it",
            write_name(config, next, name), next->makespan);
    }
}

static void explain(const weft_advice_config *config, weft_advice *advice)
{
    const weft_schedule_candidate *best = &advice->candidates[0];
    const weft_schedule_candidate *usual = find_usual(config, advice);
    const weft_schedule_candidate *same = wefti_merit_find(
        advice->candidates, advice->count, config->microbatches, true);
    const weft_schedule_candidate *barred = find_barred(advice);
    char name[NAME_BYTES];
    explain_best(config, advice);
    if (same && same->microbatches != best->microbatches && same != usual) {
        add(advice->reason, sizeof(advice->reason), "; %s takes ",
            write_name(config, same, name));
        add_figures(advice, same);
    }
    if (usual && usual != best) {
        add(advice->reason, sizeof(advice->reason), "; %s takes ",
            write_name(config, usual, name));
        add_figures(advice, usual);
    }
    if (barred) {
        add(advice->reason, sizeof(advice->reason),
            "; %s would take %.4g, but %s", write_name(config, barred, name),
            barred->makespan, barred->why);
    }
}

/* ---- the warning ----------------------------------------------------------
 */

bool wefti_advice_is_warned(const weft_schedule_candidate *best)
{
    return best->possible && best->idle_ratio > WEFT_ADVICE_BUBBLE_WARNED;
}

static void warn_of_imbalance(weft_advice *advice)
{
    const weft_schedule_candidate *best = &advice->candidates[0];
    add(advice->warning, sizeof(advice->warning),
        "%.1f%% of the step is imbalance, which no number of micro-batches "
        "removes: stages are unequal, and the least busy rank waits for rank "
        "%d",
        100 * best->imbalance_ratio, best->busiest_rank);
    if (best->ideal > best->imbalance) {
        add(advice->warning, sizeof(advice->warning),
            ", which computes %.3g times as long",
            best->ideal / (best->ideal - best->imbalance));
    }
    add(advice->warning, sizeof(advice->warning),
        "; move layers away from rank %d, or what the model's ends (embedding, "
        "head and loss) take from it",
        best->busiest_rank);
}

static void warn_of_bubble(weft_advice *advice, bool helped)
{
    const weft_schedule_candidate *best = &advice->candidates[0];
    add(advice->warning, sizeof(advice->warning),
        "%s%.1f%% of the step is bubble",
        advice->warning[0] ? "; " : "even so ", 100 * best->bubble_ratio);
    add(advice->warning, sizeof(advice->warning),
        helped ? ": more micro-batches a step or fewer pipeline ranks make it "
                 "less"
               : " that stays with more micro-batches: ranks wait for each "
                 "other's messages or for longer stages all along; quicker "
                 "messages or fewer pipeline ranks make it less");
}

/* The larger part, and the other where it would be warned of by itself. */
static void warn(weft_advice *advice, bool helped)
{
    const weft_schedule_candidate *best = &advice->candidates[0];
    bool even = best->imbalance_ratio < best->bubble_ratio;
    if (!even || best->imbalance_ratio > WEFT_ADVICE_BUBBLE_WARNED) {
        warn_of_imbalance(advice);
    }
    if (even || best->bubble_ratio > WEFT_ADVICE_BUBBLE_WARNED) {
        warn_of_bubble(advice, helped);
    }
}

void wefti_advice_explain(const weft_advice_config *config, weft_advice *advice,
                          bool helped)
{
    const weft_schedule_candidate *best = &advice->candidates[0];
    char name[NAME_BYTES];
    if (!best->possible) {
        add(advice->reason, sizeof(advice->reason),
            "no schedule is possible: %s, for one, %s",
            write_name(config, best, name), best->why);
        return;
    }
    explain(config, advice);
    if (wefti_advice_is_warned(best)) {
        warn(advice, helped);
    }
}
