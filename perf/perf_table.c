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
           "iters: %d iters: %d agg iters: 1 validation: %d graph: %d\n",
           options->min_bytes, options->max_bytes,
           options->step_bytes ? options->step_bytes : options->factor,
           options->step_bytes ? "bytes" : "factor", warmup < 0 ? 0 : warmup,
           iterations, options->checks, options->graph);
    printf("#\n# %d ranks of weft, memory %s\n#\n", nranks, options->memory);
    printf("#%61s%-18s%18s%s\n", "", "out-of-place", "", "in-place");
    printf("#%11s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop",
           "root");
    for (int i = 0; i < 2; i++) {
        printf("  %7s  %6s  %6s %6s", "time", "algbw", "busbw", "#wrong");
    }
    printf("\n#%11s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    for (int i = 0; i < 2; i++) {
        printf("  %7s  %6s  %6s %6s", "(us)", "(GB/s)", "(GB/s)", "");
    }
    printf("\n");
}

/* Four digits that count, in seven columns. */
static void print_time(double us)
{
    int digits = us < 100 ? 2 : us < 1000 ? 1 : 0;
    printf("  %7.*f", digits, us);
}

static void print_form(wefti_perf_table *table, const wefti_perf_row *row)
{
    if (!row) {
        printf("  %7s  %6s  %6s  %5s", "N/A", "N/A", "N/A", "N/A");
        return;
    }
    const wefti_perf_case *subject = &row->subject;
    double rate = wefti_perf_row_rate(row, row->time.mean_us);
    rate = isnan(rate) ? 0 : rate;
    double bus = rate * wefti_perf_op_bus_factor(subject->op, subject->nranks);
    print_time(row->time.mean_us);
    printf("  %6.2f  %6.2f", rate, bus);
    if (row->checked) {
        printf("  %5lld", (long long)row->wrong);
    } else {
        printf("  %5s", "N/A");
    }
    table->wrong += row->wrong;
    table->busbw_sum += bus;
    table->points += subject->bytes > 0;
}

void wefti_perf_table_begin(wefti_perf_table *table, const wefti_perf_row *row)
{
    const wefti_perf_case *subject = &row->subject;
    printf("%12zu  %12zu  %8s  %6s  %6d", subject->bytes, subject->count,
           type_name(subject->dtype), reduction_name(subject),
           subject->op->rooted ? subject->root : -1);
    print_form(table, row);
}

void wefti_perf_table_end(wefti_perf_table *table, const wefti_perf_row *row)
{
    print_form(table, row);
    printf("\n");
}

void wefti_perf_table_sum(const wefti_perf_table *table)
{
    printf("# Out of bounds values : %lld %s\n", table->wrong,
           table->wrong == 0 ? "OK" : "FAILED");
    printf("# Avg bus bandwidth    : %g\n",
           table->points > 0 ? table->busbw_sum / table->points : 0.0);
}
