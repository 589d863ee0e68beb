/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_table.h - results in the columns that nccl-tests prints, so that
 * what reads its output reads weft-perf's too: a line for each size, with the
 * form out of place and the one in place; mean times, as there.
 *
 * Source: nccl-tests 2.17, src/common.cu (the columns and the last two lines).
 */
#ifndef PERF_PERF_TABLE_H
#define PERF_PERF_TABLE_H

#include "perf/perf_row.h"

/* What the last lines sum up. */
typedef struct wefti_perf_table {
    long long wrong;
    double busbw_sum;
    int points; /* forms of sizes that have bytes */
} wefti_perf_table;

/* Adds a row to the sums. */
void wefti_perf_table_count(wefti_perf_table *table, const wefti_perf_row *row);

/* The mean of what has been counted; and whether it is below nine tenths of
 * what was asked for, which is nccl-tests' bound. */
double wefti_perf_table_busbw(const wefti_perf_table *table);
bool wefti_perf_table_is_slow(const wefti_perf_table *table,
                              const wefti_perf_options *options);

void wefti_perf_table_head(const wefti_perf_options *options, int nranks);

/* The line's first half, then its second. row NULL: there is no such form. */
void wefti_perf_table_begin(const wefti_perf_options *options,
                            const wefti_perf_row *row);
void wefti_perf_table_end(const wefti_perf_options *options,
                          const wefti_perf_row *row);

/* The last lines; the second one alone. */
void wefti_perf_table_sum(const wefti_perf_table *table,
                          const wefti_perf_options *options);
void wefti_perf_table_rate(const wefti_perf_table *table,
                           const wefti_perf_options *options);

#endif
