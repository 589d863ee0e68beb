/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_table.c - nccl-tests' columns.
 */
#include "perf/perf_table.h"

#include <math.h>
#include <stdio.h>

static const char *type_name(weft_dtype dtype)
{
    static const char *const names[WEFT_DTYPE_COUNT] = {
        [WEFT_DTYPE_I8] = "int8",       [WEFT_DTYPE_U8] = "uint8",
        [WEFT_DTYPE_I32] = "int32",     [WEFT_DTYPE_U32] = "uint32",
        [WEFT_DTYPE_I64] = "int64",     [WEFT_DTYPE_U64] = "uint64",
        [WEFT_DTYPE_F16] = "half",      [WEFT_DTYPE_F32] = "float",
        [WEFT_DTYPE_F64] = "double",    [WEFT_DTYPE_BF16] = "bfloat16",
        [WEFT_DTYPE_F8E4M3] = "f8e4m3", [WEFT_DTYPE_F8E5M2] = "f8e5m2"};
    return names[dtype];
}

static const char *reduction_name(const wefti_perf_case *subject)
{
    return !subject->op->reduces ? "none"
           : subject->redop == WEFT_REDOP_PREMULSUM
               ? "mulsum"
               : weft_redop_text(subject->redop);
}

void wefti_perf_table_head(const wefti_perf_options *options, int nranks)
{
    const int warmup = options->warmup, iterations = options->iterations;
    printf("# nThread 1 nGpus 1 minBytes %zu maxBytes %zu step: %zu(%s) warmup "
           "iters: %d iters: %d agg iters: %d validation: %d graph: %d\n",
           options->min_bytes, options->max_bytes,
           options->step_bytes ? options->step_bytes : options->factor,
           options->step_bytes ? "bytes" : "factor", warmup < 0 ? 0 : warmup,
           iterations, options->group, options->checks, options->graph);
    printf("#\n# %d ranks of weft, memory %s\n#\n", nranks, options->memory);
    printf("#%61s%-*s%18s%s\n", "", options->spread ? 53 : 18, "out-of-place",
           "", "in-place");
    printf("#%11s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop",
           "root");
    for (int i = 0; i < 2; i++) {
        printf("  %7s  %6s  %6s %6s", "time", "algbw", "busbw", "#wrong");
        if (options->spread) {
            printf("  %7s  %7s  %7s  %6s", "i_min", "i_max", "i_p99", "i_cv%");
        }
    }
    printf("\n#%11s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    for (int i = 0; i < 2; i++) {
        printf("  %7s  %6s  %6s %6s", "(us)", "(GB/s)", "(GB/s)", "");
        if (options->spread) {
            printf("  %7s  %7s  %7s  %6s", "(us)", "(us)", "(us)", "(%)");
        }
    }
    printf("\n");
}

/* Four digits that count, in seven columns. */
static void print_time(double us)
{
    int digits = us < 100 ? 2 : us < 1000 ? 1 : 0;
    printf("  %7.*f", digits, us);
}

static double busbw_of(const wefti_perf_row *row)
{
    const wefti_perf_case *subject = &row->subject;
    const double rate = wefti_perf_row_rate(row, row->time.mean_us);
    return isnan(rate)
               ? 0
               : rate * wefti_perf_op_bus_factor(subject->op, subject->nranks);
}

static void print_spread(const wefti_sample *time)
{
    print_time(time->min_us);
    print_time(time->max_us);
    print_time(time->p99_us);
    printf("  %6.2f", 100 * time->deviation_us / time->mean_us);
}

static void print_form(const wefti_perf_options *options,
                       const wefti_perf_row *row)
{
    if (!row) {
        printf("  %7s  %6s  %6s  %5s", "N/A", "N/A", "N/A", "N/A");
        if (options->spread) {
            printf("  %7s  %7s  %7s  %6s", "N/A", "N/A", "N/A", "N/A");
        }
        return;
    }
    double rate = wefti_perf_row_rate(row, row->time.mean_us);
    rate = isnan(rate) ? 0 : rate;
    print_time(row->time.mean_us);
    printf("  %6.2f  %6.2f", rate, busbw_of(row));
    if (row->checked) {
        printf("  %5lld", (long long)row->wrong);
    } else {
        printf("  %5s", "N/A");
    }
    if (options->spread) {
        print_spread(&row->time);
    }
}

void wefti_perf_table_count(wefti_perf_table *table, const wefti_perf_row *row)
{
    table->wrong += row->wrong;
    table->busbw_sum += busbw_of(row);
    table->points += row->subject.bytes > 0;
}

double wefti_perf_table_busbw(const wefti_perf_table *table)
{
    return table->points > 0 ? table->busbw_sum / table->points : 0.0;
}

bool wefti_perf_table_is_slow(const wefti_perf_table *table,
                              const wefti_perf_options *options)
{
    return table->points > 0 &&
           wefti_perf_table_busbw(table) < 0.9 * options->least_GBps;
}

void wefti_perf_table_begin(const wefti_perf_options *options,
                            const wefti_perf_row *row)
{
    const wefti_perf_case *subject = &row->subject;
    printf("%12zu  %12zu  %8s  %6s  %6d", subject->bytes, subject->count,
           type_name(subject->dtype), reduction_name(subject),
           subject->op->rooted ? subject->root : -1);
    print_form(options, row);
}

void wefti_perf_table_end(const wefti_perf_options *options,
                          const wefti_perf_row *row)
{
    print_form(options, row);
    printf("\n");
}

void wefti_perf_table_rate(const wefti_perf_table *table,
                           const wefti_perf_options *options)
{
    printf("# Avg bus bandwidth    : %g%s\n", wefti_perf_table_busbw(table),
           options->least_GBps <= 0                   ? ""
           : wefti_perf_table_is_slow(table, options) ? " FAILED"
                                                      : " OK");
}

void wefti_perf_table_sum(const wefti_perf_table *table,
                          const wefti_perf_options *options)
{
    printf("# Out of bounds values : %lld %s\n", table->wrong,
           table->wrong == 0 ? "OK" : "FAILED");
    wefti_perf_table_rate(table, options);
}
