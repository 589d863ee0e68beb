/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/measure_print.c - what --measure has found, for people.
 */
#include "trainer/measure.h"

#include <math.h>

/* Of s_C: beyond it, time under compute is not time saved. */
static const double SLOWED_MOST = 1.1;

static const char *oversubscribed(const wefti_measure_result *result)
{
    return result->cpu_share < 0.9 ? "oversubscribed: proves nothing" : NULL;
}

const char *wefti_measure_verdict(const wefti_measure_result *result,
                                  weft_class class_id)
{
    const wefti_measure_class *own =
        class_id < WEFT_CLASS_COUNT ? &result->classes[class_id] : NULL;
    const double ratio = own ? own->hiding_ratio : result->hiding_ratio;
    const char *nothing = oversubscribed(result);
    const bool slows = result->s_C > SLOWED_MOST;
    return own && own->fell_back[0] ? own->fell_back
           : nothing                ? nothing
           : isnan(ratio)           ? "serial steps are not longer by 3 spreads"
           : ratio <= 0             ? "no shorter than serial"
           : slows        ? "shorter than serial, but compute is slowed"
           : ratio >= 0.9 ? "hidden"
                          : "hidden in part";
}

static void print_ratio(FILE *file, const char *name, double value)
{
    if (isnan(value)) {
        fprintf(file, "  %s n/a", name);
    } else {
        fprintf(file, "  %s %.3f", name, value);
    }
}

static void print_times(const wefti_measure_result *result, FILE *file)
{
    static const char *const names[WEFTI_MEASURE_KINDS] = {
        "overlapped", "compute alone", "serial", "transfers alone"};
    for (int kind = 0; kind < WEFTI_MEASURE_KINDS; kind++) {
        const wefti_measure_times *times = &result->times[kind];
        fprintf(file, "  %-16s %9.3f ms  (%.3f to %.3f, spread %.3f)\n",
                names[kind], times->median_ms, times->min_ms, times->max_ms,
                times->spread_ms);
    }
}

/* A line for each class there is. */
static void print_classes(const wefti_measure_result *result, FILE *file)
{
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        const wefti_measure_class *own = &result->classes[c];
        if (!own->there) {
            continue;
        }
        fprintf(file, "  %-3s %9.3f ms, exposed %9.3f",
                weft_class_text((weft_class)c), own->transfer_ms,
                own->exposed_ms);
        print_ratio(file, "O", own->overlap_ratio);
        print_ratio(file, "H", own->hiding_ratio);
        fprintf(file, "  (without %.3f, serial %.3f): %s\n",
                own->without.median_ms, own->serial.median_ms,
                wefti_measure_verdict(result, (weft_class)c));
    }
}

static void print_ceiling(const char *name, const wefti_measure_ceiling *own,
                          double ratio, FILE *file)
{
    fprintf(file, "  %-3s", name);
    print_ratio(file, "H", ratio);
    print_ratio(file, "of at most", own->ceiling);
    fprintf(file, "  not hidden %.3f ms", own->over_ms);
    print_ratio(file, "=", own->over_ratio);
    fprintf(file, " x (rest %.3f", own->rest_ms);
    if (!isnan(own->bare_ms)) {
        fprintf(file, " + c %.3f", own->bare_ms);
    }
    fprintf(file, ")%s%s%s\n", own->bare_why ? "; c: " : "",
            own->bare_why ? own->bare_why : "",
            wefti_measure_exceeds(own) ? ": more than 1.15 times" : "");
}

/* What could not be hidden, and how much more is not. */
static void print_rest(const wefti_measure_result *result, FILE *file)
{
    const wefti_measure_rest *rest = &result->rest;
    int there = 0;
    if (rest->why) {
        fprintf(file, "  rest n/a: %s\n", rest->why);
        return;
    }
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        const wefti_measure_class *own = &result->classes[c];
        there += own->there;
        if (own->there) {
            print_ceiling(weft_class_text((weft_class)c), &own->ceiling,
                          own->hiding_ratio, file);
        }
    }
    if (there > 1) {
        print_ceiling("all", &result->ceiling, result->hiding_ratio, file);
    }
    fprintf(file, "  rest %.3f ms of %.3f alone", rest->rest_ms,
            rest->alone_ms);
    print_ratio(file, "in any order", rest->least_ms);
    fprintf(file, ":");
    for (size_t i = 0; i < WEFTI_REST_NODES && rest->nodes[i].label; i++) {
        fprintf(file, "%s %s %s %.3f", i > 0 ? "," : "",
                weft_class_text(rest->nodes[i].class_id), rest->nodes[i].label,
                rest->nodes[i].ms);
    }
    fprintf(file, "\n");
}

static void print_bare(const char *name, const wefti_measure_ceiling *own,
                       FILE *file)
{
    if (own->hiding_why) {
        fprintf(file, "  %s n/a: %s", name, own->hiding_why);
    } else {
        print_ratio(file, name, own->hiding_bare);
        fprintf(file, " (%.3f ms alone)", own->bare_alone_ms);
    }
}

/* What plain sockets hide of the same bytes. */
static void print_bares(const wefti_measure_result *result, FILE *file)
{
    int there = 0;
    fprintf(file, "  H_bare:");
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        there += result->classes[c].there;
        if (result->classes[c].there) {
            print_bare(weft_class_text((weft_class)c),
                       &result->classes[c].ceiling, file);
        }
    }
    if (there != 1) {
        print_bare("all", &result->ceiling, file);
    }
    fprintf(file, "\n");
}

void wefti_measure_print(const wefti_measure_result *result, FILE *file)
{
    const wefti_measure_terms *terms = &result->terms;
    const char *nothing = oversubscribed(result);
    fprintf(file, "measured over %zu steps of each kind, slowest rank:\n",
            result->steps);
    print_times(result, file);
    print_ratio(file, "O", result->overlap_ratio);
    print_ratio(file, "H", result->hiding_ratio);
    print_ratio(file, "s_C", result->s_C);
    print_ratio(file, "s_M", result->s_M);
    fprintf(file, "%s%s%s\n", nothing ? "  (" : "", nothing ? nothing : "",
            nothing ? ")" : "");
    print_classes(result, file);
    print_rest(result, file);
    print_bares(result, file);
    fprintf(file,
            "  a step and rank:  %.3f ms = compute %.3f + exposed %.3f + "
            "bubble %.3f + skew %.3f + idle %.3f\n",
            terms->step_ms, terms->compute_ms, terms->exposed_ms,
            terms->bubble_ms, terms->skew_ms, terms->idle_ms);
    fprintf(file, "  a step and rank:  %.0f wake-ups", result->wakeups);
    if (!isnan(result->wakeups_per_mib)) {
        fprintf(file, " (%.1f a MiB out and in)", result->wakeups_per_mib);
    }
    fprintf(file,
            "  %.0f preemptions of compute  %.2f ms of progress threads\n",
            result->preemptions, result->progress_ms);
}
