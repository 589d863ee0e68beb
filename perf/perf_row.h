/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_row.h - one line of weft-perf's result, as text and as JSON.
 */
#ifndef PERF_PERF_ROW_H
#define PERF_PERF_ROW_H

#include "base/json.h"
#include "perf/perf_case.h"
#include "perf/perf_options.h"
#include "perf/sample.h"

#include <stdbool.h>
#include <stdint.h>

/* Figures of --overlap; NaN where one does not apply. Times of one call. */
typedef struct wefti_perf_hiding {
    double overlap_ratio;                               /* O */
    double hiding_ratio;                                /* H */
    double compute_interference, transfer_interference; /* s_C, s_M */
    double comp_us, ser_us, ovl_us, alone_us;
    double cpu_share;
    /* Of one overlapped call and rank, in the mean. per_mib: of payload out
     * and a MiB in. */
    double wakeups, wakeups_per_mib, preemptions, progress_us;
    /* Of bare sockets in the same rounds: H, times, CPU time, bytes that came
     * in. */
    bool bare;
    double bare_ratio, bare_ser_us, bare_ovl_us, bare_cpu_us, bare_bytes;
} wefti_perf_hiding;

/* Figures of --regret: the algorithms that can, in turn in the same rounds. */
enum { WEFTI_PERF_WAYS_MOST = 17 };

typedef struct wefti_perf_way {
    const char *algorithm;
    wefti_sample time;
} wefti_perf_way;

typedef struct wefti_perf_regret {
    int count, chosen, best; /* of ways */
    wefti_perf_way ways[WEFTI_PERF_WAYS_MOST];
} wefti_perf_regret;

/* How much longer the choice takes than the best, as a share of it. */
double wefti_perf_regret_get(const wefti_perf_regret *regret);

typedef struct wefti_perf_row {
    wefti_perf_case subject;
    int iterations;
    wefti_sample time;
    int64_t wrong; /* elements, over all ranks */
    bool checked;
    bool planned;          /* calls posted plans */
    bool captured;         /* calls launched graphs */
    const char *algorithm; /* NULL: not known */
    const char *fabric;
    const int64_t *samples_ns; /* [iterations], in order; NULL: not asked for */
    const wefti_perf_hiding *hiding; /* NULL: without --overlap */
    const wefti_perf_regret *regret; /* NULL: without --regret */
} wefti_perf_row;

/* Bytes of the point by such a time of a call, in GB/s; NAN: no bytes. */
double wefti_perf_row_rate(const wefti_perf_row *row, double us);

void wefti_perf_row_print_head(const wefti_perf_options *options);
void wefti_perf_row_print(const wefti_perf_row *row);
void wefti_perf_row_write(const wefti_perf_row *row, wefti_json *json);

#endif
