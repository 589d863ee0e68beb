/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_report.c - counts of this rank, and the table of all.
 */
#include "doors/mpi/mpi_report.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/settings.h"

#include <stdlib.h>
#include <string.h>

/* One collective; left: also by reason. All are int64_t, so that ranks exchange
 * them as an array. */
typedef struct mpi_counts {
    _Atomic int64_t calls, bytes, ns;
    _Atomic int64_t left[WEFTI_MPI_LEFT_COUNT], left_ns;
} mpi_counts;

enum { WORDS = WEFT_COLLECTIVE_COUNT * (sizeof(mpi_counts) / sizeof(int64_t)) };

static mpi_counts own[WEFT_COLLECTIVE_COUNT];
static bool wanted;
static int64_t opened_ns;

/* A row: sums over the ranks, and who took least. */
typedef struct mpi_row {
    int64_t calls, bytes, ns, left, left_ns;
    int64_t least_ns, reasons[WEFTI_MPI_LEFT_COUNT];
    int slowest;
} mpi_row;

static const char *const reason_texts[] = {
#define REASON_TEXT(name, text) text,
    WEFTI_MPI_LEFT_LIST(REASON_TEXT)
#undef REASON_TEXT
};

void wefti_mpi_report_open(void)
{
    wanted = wefti_setting_given(WEFTI_SETTING_MPI_REPORT);
    opened_ns = wefti_clock_ns();
}

int64_t wefti_mpi_report_now(void)
{
    return wanted ? wefti_clock_ns() : 0;
}

static void add(_Atomic int64_t *to, int64_t more)
{
    atomic_fetch_add_explicit(to, more, memory_order_relaxed);
}

void wefti_mpi_report_call(weft_collective what, size_t bytes, int64_t from_ns)
{
    if (wanted) {
        add(&own[what].calls, 1);
        add(&own[what].bytes, (int64_t)bytes);
        add(&own[what].ns, wefti_clock_ns() - from_ns);
    }
}

void wefti_mpi_report_left(weft_collective what, wefti_mpi_left left,
                           int64_t from_ns)
{
    if (wanted) {
        add(&own[what].left[left], 1);
        add(&own[what].left_ns, wefti_clock_ns() - from_ns);
    }
}

void wefti_mpi_report_wait(weft_collective what, int64_t from_ns)
{
    if (wanted) {
        add(&own[what].ns, wefti_clock_ns() - from_ns);
    }
}

static void add_rank(mpi_row *row, const mpi_counts *counts, int rank)
{
    const int64_t ns = counts->ns;
    row->calls += counts->calls;
    row->bytes += counts->bytes;
    row->ns += ns;
    row->left_ns += counts->left_ns;
    for (int i = 0; i < WEFTI_MPI_LEFT_COUNT; i++) {
        row->left += counts->left[i];
        row->reasons[i] += counts->left[i];
    }
    if (rank == 0 || ns < row->least_ns) {
        row->least_ns = ns;
        row->slowest = rank;
    }
}

/* In the log, whatever its level: it was asked for. */
static void print_text(const mpi_row rows[], int nranks, double wall_s)
{
    wefti_log(WEFTI_LOG_ERROR, 0,
              "weft under MPI: %d ranks, %.3f s; a rank's calls, MB and ms",
              nranks, wall_s);
    wefti_log(WEFTI_LOG_ERROR, 0, "%-16s %10s %12s %10s %10s %8s %10s",
              "operation", "calls", "MB", "ms", "waiting", "slowest", "left");
    for (int i = 0; i < WEFT_COLLECTIVE_COUNT; i++) {
        const mpi_row *row = &rows[i];
        if (row->calls + row->left == 0) {
            continue;
        }
        wefti_log(
            WEFTI_LOG_ERROR, 0, "%-16s %10lld %12.3f %10.3f %10.3f %8d %10lld",
            weft_collective_text(i), (long long)(row->calls / nranks),
            (double)row->bytes / nranks / 1e6, (double)row->ns / nranks / 1e6,
            (double)(row->ns / nranks - row->least_ns) / 1e6, row->slowest,
            (long long)(row->left / nranks));
        for (int why = 1; why < WEFTI_MPI_LEFT_COUNT; why++) {
            if (row->reasons[why]) {
                wefti_log(WEFTI_LOG_ERROR, 0, "    %lld left to MPI: %s",
                          (long long)row->reasons[why], reason_texts[why]);
            }
        }
    }
}

static void write_row(wefti_json *json, const mpi_row *row, int what,
                      int nranks)
{
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "op", weft_collective_text(what));
    wefti_json_real(json, "calls", (double)row->calls / nranks);
    wefti_json_real(json, "bytes", (double)row->bytes / nranks);
    wefti_json_real(json, "time_ms", (double)row->ns / nranks / 1e6);
    wefti_json_real(json, "waiting_ms",
                    (double)(row->ns / nranks - row->least_ns) / 1e6);
    wefti_json_int(json, "slowest_rank", row->slowest);
    wefti_json_real(json, "left", (double)row->left / nranks);
    wefti_json_real(json, "left_ms", (double)row->left_ns / nranks / 1e6);
    wefti_json_object_open(json, "left_why");
    for (int why = 1; why < WEFTI_MPI_LEFT_COUNT; why++) {
        if (row->reasons[why]) {
            wefti_json_int(json, reason_texts[why], row->reasons[why]);
        }
    }
    wefti_json_object_close(json);
    wefti_json_object_close(json);
}

static void write_json(const char *path, const mpi_row rows[], int nranks,
                       double wall_s)
{
    wefti_json json;
    FILE *file = fopen(path, "we");
    if (!file) {
        wefti_log(WEFTI_LOG_ERROR, 0, "WEFT_MPI_REPORT %s: cannot be written",
                  path);
        return;
    }
    wefti_json_init(&json, file);
    wefti_json_object_open(&json, NULL);
    wefti_json_int(&json, "nranks", nranks);
    wefti_json_real(&json, "wall_s", wall_s);
    wefti_json_array_open(&json, "rows");
    for (int i = 0; i < WEFT_COLLECTIVE_COUNT; i++) {
        if (rows[i].calls + rows[i].left) {
            write_row(&json, &rows[i], i, nranks);
        }
    }
    wefti_json_array_close(&json);
    wefti_json_object_close(&json);
    if (wefti_json_fini(&json) != WEFT_OK) {
        wefti_log(WEFTI_LOG_ERROR, 0, "mpi: %s", weft_error_text());
    }
    fclose(file);
}

void wefti_mpi_report_close(void)
{
    int rank, nranks;
    if (!wanted) {
        return;
    }
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &nranks);
    const double wall_s = (double)(wefti_clock_ns() - opened_ns) / 1e9;
    mpi_counts *all = malloc(sizeof(own) * (rank == 0 ? (size_t)nranks : 1));
    mpi_row *rows = calloc(WEFT_COLLECTIVE_COUNT, sizeof(*rows));
    if (!all || !rows) {
        wefti_log(WEFTI_LOG_ERROR, rank, "mpi: no memory for the report");
        PMPI_Abort(MPI_COMM_WORLD, 1); /* the others wait in the gather */
    }
    PMPI_Gather(own, WORDS, MPI_INT64_T, all, WORDS, MPI_INT64_T, 0,
                MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < WEFT_COLLECTIVE_COUNT; i++) {
        for (int from = 0; from < nranks; from++) {
            add_rank(&rows[i], &all[from * WEFT_COLLECTIVE_COUNT + i], from);
        }
    }
    const char *path = wefti_setting_text(WEFTI_SETTING_MPI_REPORT);
    if (rank == 0) {
        print_text(rows, nranks, wall_s);
        if (strcmp(path, "1") != 0) {
            write_json(path, rows, nranks, wall_s);
        }
    }
    free(rows);
    free(all);
}
