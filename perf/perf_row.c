/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_row.c - printing rows. Bandwidths are in 1e9 bytes a second.
 */
#include "perf/perf_row.h"

#include <math.h>
#include <stdio.h>

double wefti_perf_row_rate(const wefti_perf_row *row, double us)
{
    return row->subject.bytes > 0 ? (double)row->subject.bytes / (us * 1e3)
                                  : (double)NAN;
}

static double algbw_GBps(const wefti_perf_row *row)
{
    return wefti_perf_row_rate(row, row->time.median_us);
}

static double busbw_GBps(const wefti_perf_row *row)
{
    return algbw_GBps(row) *
           wefti_perf_op_bus_factor(row->subject.op, row->subject.nranks);
}

/* A number in a column, or a dash where it does not apply. */
static void print_number(int width, int digits, double value)
{
    if (isnan(value)) {
        printf(" %*s", width, "-");
    } else {
        printf(" %*.*f", width, digits, value);
    }
}

void wefti_perf_row_print_head(const wefti_perf_options *options)
{
    printf("%12s %11s %6s %9s %11s %11s %11s %9s %9s %7s", "bytes", "count",
           "dtype", "redop", "median_us", "p10_us", "p90_us", "algbw", "busbw",
           "wrong");
    if (options->overlap) {
        printf(" %6s %6s %6s %6s %10s %10s %10s %10s %7s %7s %7s %9s", "O", "H",
               "s_C", "s_M", "comp_us", "ser_us", "ovl_us", "alone_us", "wakes",
               "/MiB", "preempt", "weft_us");
    }
    if (options->regret) {
        printf(" %7s  %-12s  %s", "regret", "choice",
               "median_us of every algorithm");
    }
    if (options->bare) {
        printf(" %6s %6s %10s %10s %9s", "H_bare", "ratio", "bare_ser",
               "bare_ovl", "bare_us");
    }
    printf("\n");
}

static void print_hiding(const wefti_perf_hiding *hiding)
{
    print_number(6, 3, hiding->overlap_ratio);
    print_number(6, 3, hiding->hiding_ratio);
    print_number(6, 3, hiding->compute_interference);
    print_number(6, 3, hiding->transfer_interference);
    print_number(10, 1, hiding->comp_us);
    print_number(10, 1, hiding->ser_us);
    print_number(10, 1, hiding->ovl_us);
    print_number(10, 1, hiding->alone_us);
    print_number(7, 1, hiding->wakeups);
    print_number(7, 1, hiding->wakeups_per_mib);
    print_number(7, 1, hiding->preemptions);
    print_number(9, 1, hiding->progress_us);
    if (hiding->bare) {
        print_number(6, 3, hiding->bare_ratio);
        print_number(6, 3, hiding->hiding_ratio / hiding->bare_ratio);
        print_number(10, 1, hiding->bare_ser_us);
        print_number(10, 1, hiding->bare_ovl_us);
        print_number(9, 1, hiding->bare_cpu_us);
    }
    if (hiding->cpu_share < 0.9) {
        printf("  oversubscribed (cpu %.2f): proves nothing",
               hiding->cpu_share);
    }
}

double wefti_perf_regret_get(const wefti_perf_regret *regret)
{
    return regret->ways[regret->chosen].time.median_us /
               regret->ways[regret->best].time.median_us -
           1;
}

static void print_regret(const wefti_perf_regret *regret)
{
    printf(" %6.1f%%  %-12s ", 100 * wefti_perf_regret_get(regret),
           regret->ways[regret->chosen].algorithm);
    for (int i = 0; i < regret->count; i++) {
        printf(" %s %.2f", regret->ways[i].algorithm,
               regret->ways[i].time.median_us);
    }
}

void wefti_perf_row_print(const wefti_perf_row *row)
{
    const wefti_perf_case *subject = &row->subject;
    printf("%12zu %11zu %6s %9s", subject->bytes, subject->count,
           weft_dtype_text(subject->dtype),
           subject->op->reduces ? weft_redop_text(subject->redop) : "-");
    print_number(11, 2, row->time.median_us);
    print_number(11, 2, row->time.p10_us);
    print_number(11, 2, row->time.p90_us);
    print_number(9, 3, algbw_GBps(row));
    print_number(9, 3, busbw_GBps(row));
    if (row->checked) {
        printf(" %7lld", (long long)row->wrong);
    } else {
        printf(" %7s", "-");
    }
    if (row->hiding) {
        print_hiding(row->hiding);
    }
    if (row->regret) {
        print_regret(row->regret);
    }
    printf("\n");
}

static void write_hiding(const wefti_perf_hiding *hiding, wefti_json *json)
{
    wefti_json_real(json, "O", hiding->overlap_ratio);
    wefti_json_real(json, "H", hiding->hiding_ratio);
    wefti_json_real(json, "s_C", hiding->compute_interference);
    wefti_json_real(json, "s_M", hiding->transfer_interference);
    wefti_json_real(json, "comp_us", hiding->comp_us);
    wefti_json_real(json, "ser_us", hiding->ser_us);
    wefti_json_real(json, "ovl_us", hiding->ovl_us);
    wefti_json_real(json, "alone_us", hiding->alone_us);
    wefti_json_real(json, "cpu_share", hiding->cpu_share);
    wefti_json_bool(json, "oversubscribed", hiding->cpu_share < 0.9);
    wefti_json_real(json, "wakeups", hiding->wakeups);
    wefti_json_real(json, "wakeups_per_MiB", hiding->wakeups_per_mib);
    wefti_json_real(json, "preemptions", hiding->preemptions);
    wefti_json_real(json, "progress_us", hiding->progress_us);
    if (hiding->bare) {
        wefti_json_real(json, "H_bare", hiding->bare_ratio);
        wefti_json_real(json, "H_of_bare",
                        hiding->hiding_ratio / hiding->bare_ratio);
        wefti_json_real(json, "bare_ser_us", hiding->bare_ser_us);
        wefti_json_real(json, "bare_ovl_us", hiding->bare_ovl_us);
        wefti_json_real(json, "bare_cpu_us", hiding->bare_cpu_us);
        wefti_json_real(json, "bare_bytes", hiding->bare_bytes);
    }
}

static void write_time(const wefti_sample *time, wefti_json *json)
{
    wefti_json_object_open(json, "time_us");
    wefti_json_real(json, "median", time->median_us);
    wefti_json_real(json, "p10", time->p10_us);
    wefti_json_real(json, "p90", time->p90_us);
    wefti_json_real(json, "min", time->min_us);
    wefti_json_real(json, "max", time->max_us);
    wefti_json_real(json, "mean", time->mean_us);
    wefti_json_object_close(json);
}

static void write_regret(const wefti_perf_regret *regret, wefti_json *json)
{
    wefti_json_real(json, "regret", wefti_perf_regret_get(regret));
    wefti_json_text(json, "best", regret->ways[regret->best].algorithm);
    wefti_json_array_open(json, "algorithms");
    for (int i = 0; i < regret->count; i++) {
        wefti_json_object_open(json, NULL);
        wefti_json_text(json, "algorithm", regret->ways[i].algorithm);
        write_time(&regret->ways[i].time, json);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

void wefti_perf_row_write(const wefti_perf_row *row, wefti_json *json)
{
    const wefti_perf_case *subject = &row->subject;
    const wefti_perf_op *op = subject->op;
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "op", op->name);
    wefti_json_uint(json, "bytes", subject->bytes);
    wefti_json_uint(json, "count", subject->count);
    wefti_json_text(json, "dtype", weft_dtype_text(subject->dtype));
    wefti_json_text(json, "redop",
                    op->reduces ? weft_redop_text(subject->redop) : NULL);
    if (op->rooted) {
        wefti_json_int(json, "root", subject->root);
    }
    wefti_json_int(json, "nranks", subject->nranks);
    wefti_json_bool(json, "inplace", subject->inplace);
    wefti_json_bool(json, "registered", subject->registered);
    wefti_json_bool(json, "plan", row->planned);
    wefti_json_bool(json, "graph", row->captured);
    wefti_json_int(json, "iterations", row->iterations);
    write_time(&row->time, json);
    wefti_json_real(json, "algbw_GBps", algbw_GBps(row));
    wefti_json_real(json, "busbw_GBps", busbw_GBps(row));
    if (row->checked) {
        wefti_json_int(json, "wrong", row->wrong);
    } else {
        wefti_json_null(json, "wrong");
    }
    wefti_json_text(json, "algorithm", row->algorithm);
    wefti_json_text(json, "fabric", row->fabric);
    if (row->hiding) {
        write_hiding(row->hiding, json);
    }
    if (row->regret) {
        write_regret(row->regret, json);
    }
    if (row->samples_ns) {
        wefti_json_array_open(json, "samples_us");
        for (int i = 0; i < row->iterations; i++) {
            wefti_json_real(json, NULL, (double)row->samples_ns[i] / 1e3);
        }
        wefti_json_array_close(json);
    }
    wefti_json_object_close(json);
}
