/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_table.c - lines of JSON, as door_report.c writes them, read
 * again. Of a communicator that ranks of several hosts report to files of their
 * own no table comes to be.
 */
#include "doors/nccl/door_table.h"

#include "base/json.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sums over the ranks, and who took least. */
typedef struct report_sums {
    int64_t calls, bytes;
    double ms, least_ms;
    int ranks, slowest;
} report_sums;

typedef struct joined_reports {
    report_sums rows[WEFT_COLLECTIVE_COUNT + 1];
} joined_reports;

static int find_op(const char *name, size_t chars)
{
    for (int what = 0; what < WEFT_COLLECTIVE_COUNT; what++) {
        const char *text = weft_collective_text((weft_collective)what);
        if (strlen(text) == chars && strncmp(text, name, chars) == 0) {
            return what;
        }
    }
    return WEFT_COLLECTIVE_COUNT; /* other */
}

static const char *after(const char *text, const char *key)
{
    const char *at = text ? strstr(text, key) : NULL;
    return at ? at + strlen(key) : NULL;
}

/* Time in calls, or on the GPU where calls only hand over. */
static void add_row(report_sums *row, const char *text, const char *end,
                    int rank)
{
    const char *calls = after(text, "\"calls\": ");
    const char *bytes = after(text, "\"bytes\": ");
    const char *ms = after(text, "\"time_ms\": ");
    const char *gpu_ms = after(text, "\"gpu_ms\": ");
    if (gpu_ms && gpu_ms < end) {
        ms = gpu_ms;
    }
    if (!calls || !bytes || !ms) {
        return;
    }
    const double took_ms = strtod(ms, NULL);
    row->calls += strtoll(calls, NULL, 10);
    row->bytes += strtoll(bytes, NULL, 10);
    row->ms += took_ms;
    if (row->ranks++ == 0 || took_ms < row->least_ms) {
        row->least_ms = took_ms;
        row->slowest = rank;
    }
}

static void add_line(joined_reports *all, const char *line)
{
    static const char op[] = "{\"op\": \"";
    const char *place = after(line, "\"rank\": ");
    const int rank = place ? (int)strtol(place, NULL, 10) : -1;
    for (const char *at = after(line, op); at; at = after(at, op)) {
        const char *end = strchr(at, '}');
        const int what = find_op(at, strcspn(at, "\""));
        add_row(&all->rows[what], at, end ? end : at + strlen(at), rank);
    }
}

/* What the lines of a communicator have, and no others: a table has no rows. */
typedef struct line_marks {
    char hash[40], carrier[40], nranks[40];
} line_marks;

static line_marks marks_of(const wefti_door_reporter *reporter)
{
    line_marks marks;
    snprintf(marks.hash, sizeof(marks.hash), "\"hash\": \"%016" PRIx64 "\"",
             reporter->hash);
    snprintf(marks.carrier, sizeof(marks.carrier), "\"carrier\": \"%s\"",
             reporter->carrier);
    snprintf(marks.nranks, sizeof(marks.nranks), "\"nranks\": %d, \"rows\"",
             reporter->nranks);
    return marks;
}

/* How many of its lines the file has; they are added up if all is given. */
static int read_lines(FILE *file, const line_marks *marks, joined_reports *all)
{
    char *line = NULL;
    size_t room = 0;
    int lines = 0;
    while (getline(&line, &room, file) > 0) {
        if (strstr(line, marks->hash) && strstr(line, marks->carrier) &&
            strstr(line, marks->nranks)) {
            lines++;
            if (all) {
                add_line(all, line);
            }
        }
    }
    free(line);
    return lines;
}

/* False: not all have reported yet. Only the last need take lines apart. */
static bool read_all(const char *path, const wefti_door_reporter *reporter,
                     joined_reports *all)
{
    const line_marks marks = marks_of(reporter);
    FILE *file = fopen(path, "re");
    if (!file) {
        return false;
    }
    const bool complete = read_lines(file, &marks, NULL) == reporter->nranks;
    if (complete) {
        rewind(file);
        read_lines(file, &marks, all);
    }
    fclose(file);
    return complete;
}

/* What a rank has on the average; of n ranks all are told of, called or not. */
static double waiting_ms(const report_sums *row, int nranks)
{
    return row->ranks < nranks ? row->ms / nranks
                               : row->ms / nranks - row->least_ms;
}

static double left_of(const report_sums *row,
                      const wefti_door_reporter *reporter)
{
    return strcmp(reporter->carrier, "weft") == 0
               ? 0
               : (double)row->calls / reporter->nranks;
}

static const char *text_of(int what)
{
    return what < WEFT_COLLECTIVE_COUNT
               ? weft_collective_text((weft_collective)what)
               : "other";
}

static void print(const joined_reports *all,
                  const wefti_door_reporter *reporter)
{
    const int n = reporter->nranks;
    wefti_log(WEFTI_LOG_ERROR, reporter->rank,
              "nccl report: \"%s\": %d ranks; a rank's calls, MB and ms",
              reporter->name[0] ? reporter->name : "world", n);
    wefti_log(WEFTI_LOG_ERROR, reporter->rank,
              "%-16s %10s %12s %10s %10s %8s %10s", "operation", "calls", "MB",
              "ms", "waiting", "slowest", "left");
    for (int what = 0; what <= WEFT_COLLECTIVE_COUNT; what++) {
        const report_sums *row = &all->rows[what];
        if (row->ranks > 0) {
            wefti_log(WEFTI_LOG_ERROR, reporter->rank,
                      "%-16s %10.1f %12.3f %10.3f %10.3f %8d %10.1f",
                      text_of(what), (double)row->calls / n,
                      (double)row->bytes / n / 1e6, row->ms / n,
                      waiting_ms(row, n), row->slowest, left_of(row, reporter));
        }
    }
}

static void write_row(wefti_json *json, const report_sums *row, int what,
                      const wefti_door_reporter *reporter)
{
    const int n = reporter->nranks;
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "op", text_of(what));
    wefti_json_real(json, "calls", (double)row->calls / n);
    wefti_json_real(json, "bytes", (double)row->bytes / n);
    wefti_json_real(json, "time_ms", row->ms / n);
    wefti_json_real(json, "waiting_ms", waiting_ms(row, n));
    wefti_json_int(json, "slowest_rank", row->slowest);
    wefti_json_real(json, "left", left_of(row, reporter));
    wefti_json_object_close(json);
}

static void write_table(FILE *file, const joined_reports *all,
                        const wefti_door_reporter *reporter)
{
    char hash[20];
    wefti_json json;
    snprintf(hash, sizeof(hash), "%016" PRIx64, reporter->hash);
    wefti_json_init(&json, file);
    wefti_json_object_open(&json, NULL);
    wefti_json_text(&json, "communicator", reporter->name);
    wefti_json_text(&json, "hash", hash);
    wefti_json_text(&json, "carrier", reporter->carrier);
    wefti_json_int(&json, "nranks", reporter->nranks);
    wefti_json_array_open(&json, "table");
    for (int what = 0; what <= WEFT_COLLECTIVE_COUNT; what++) {
        if (all->rows[what].ranks > 0) {
            write_row(&json, &all->rows[what], what, reporter);
        }
    }
    wefti_json_array_close(&json);
    wefti_json_object_close(&json);
    if (wefti_json_fini(&json) != WEFT_OK) {
        wefti_log(WEFTI_LOG_ERROR, reporter->rank, "%s", weft_error_text());
    }
}

void wefti_door_table_make(const char *path,
                           const wefti_door_reporter *reporter, char **text_out,
                           size_t *bytes_out)
{
    *text_out = NULL;
    *bytes_out = 0;
    joined_reports *all = calloc(1, sizeof(*all));
    if (!all || !reporter->hash || reporter->nranks < 1 ||
        !read_all(path, reporter, all)) {
        free(all);
        return;
    }
    FILE *file = open_memstream(text_out, bytes_out);
    if (file) {
        print(all, reporter);
        write_table(file, all, reporter);
        fclose(file);
    }
    free(all);
}
