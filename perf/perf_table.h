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

void wefti_perf_table_head(const wefti_perf_options *options, int nranks);

/* The line's first half, then its second. row NULL: there is no such form. */
void wefti_perf_table_begin(wefti_perf_table *table, const wefti_perf_row *row);
void wefti_perf_table_end(wefti_perf_table *table, const wefti_perf_row *row);

void wefti_perf_table_sum(const wefti_perf_table *table);

#endif
