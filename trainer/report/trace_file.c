/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/trace_file.c - events on rows, as Chrome's JSON.
 *
 * On a row each event lies in the one around it or begins when that has ended,
 * as the format wants it of a thread. Rows of a kind are as few as that takes.
 */
#include "trainer/report/trace_event.h"

#include <stdlib.h>

/* Tracks: step, then span, transfer and wait of each class. */
enum {
    KINDS = 1 + 3 * WEFT_CLASS_COUNT,
    ROWS = 64, /* of a kind; the last one takes what is left over */
    DEPTH = 32 /* spans within spans */
};

static const double us_per_ns = 1e-3;

static int kind_of(const wefti_packed_event *event)
{
    int class_id = event->class_id;
    switch (event->kind) {
    case WEFTI_TRACE_STEP:
        return 0;
    case WEFTI_TRACE_SPAN:
        return 1 + class_id;
    case WEFTI_TRACE_TRANSFER:
        return 1 + WEFT_CLASS_COUNT + class_id;
    default:
        return 1 + 2 * WEFT_CLASS_COUNT + class_id;
    }
}

static void name_kind(int kind, int row, char *text, size_t text_bytes)
{
    static const char *const whats[] = {"", " transfers", " waits"};
    int at = kind - 1;
    char more[16] = "";
    if (row > 0) {
        snprintf(more, sizeof(more), " %d", row + 1);
    }
    if (kind == 0) {
        snprintf(text, text_bytes, "steps%s", more);
    } else {
        snprintf(text, text_bytes, "%s%s%s",
                 weft_class_text((weft_class)(at % WEFT_CLASS_COUNT)),
                 whats[at / WEFT_CLASS_COUNT], more);
    }
}

/* By kind, by begin, the longer first. */
static int by_track(const void *left, const void *right)
{
    const wefti_packed_event *a = left, *b = right;
    int kinds = kind_of(a) - kind_of(b);
    if (kinds != 0) {
        return kinds;
    }
    if (a->begin_ns != b->begin_ns) {
        return a->begin_ns < b->begin_ns ? -1 : 1;
    }
    return (a->end_ns < b->end_ns) - (a->end_ns > b->end_ns);
}

/* What is open on a row, the innermost last. */
typedef struct row {
    int64_t ends[DEPTH];
    int depth;
} row;

static bool fits(row *on, const wefti_packed_event *event)
{
    while (on->depth > 0 && on->ends[on->depth - 1] <= event->begin_ns) {
        on->depth--;
    }
    return on->depth == 0 ||
           (on->depth < DEPTH && event->end_ns <= on->ends[on->depth - 1]);
}

/* Of one kind, sorted. What no row takes is left out: none in practice. */
static size_t assign_rows(wefti_packed_event *events, size_t count)
{
    row rows[ROWS];
    size_t kept = 0;
    int used = 0;
    for (size_t k = 0; k < count; k++) {
        int at = 0;
        while (at < used && !fits(&rows[at], &events[k])) {
            at++;
        }
        if (at == ROWS) {
            continue;
        }
        if (at == used) {
            rows[used++].depth = 0;
        }
        rows[at].ends[rows[at].depth++] = events[k].end_ns;
        events[k].row = (uint32_t)at;
        events[kept++] = events[k];
    }
    return kept;
}

static void put_name(wefti_json *json, const char *what, int rank, int track,
                     const char *name, int order)
{
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "name", what);
    wefti_json_text(json, "ph", "M");
    wefti_json_int(json, "pid", rank);
    wefti_json_int(json, "tid", track);
    wefti_json_object_open(json, "args");
    if (name) {
        wefti_json_text(json, "name", name);
    } else {
        wefti_json_int(json, "sort_index", order);
    }
    wefti_json_object_close(json);
    wefti_json_object_close(json);
}

static void put_event(wefti_json *json, int rank, int track,
                      const wefti_packed_event *event, int64_t shift_ns)
{
    char name[64];
    bool moves =
        event->kind == WEFTI_TRACE_TRANSFER || event->kind == WEFTI_TRACE_WAIT;
    const char *collective =
        moves ? weft_collective_text((weft_collective)event->collective) : "";
    if (event->kind == WEFTI_TRACE_STEP) {
        snprintf(name, sizeof(name), "step %u", event->step);
    } else if (moves && event->label[0]) {
        snprintf(name, sizeof(name), "%s (%s)", event->label, collective);
    } else {
        snprintf(name, sizeof(name), "%s",
                 event->label[0] ? event->label
                 : moves         ? collective
                                 : "work");
    }
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "name", name);
    wefti_json_text(json, "ph", "X");
    wefti_json_int(json, "pid", rank);
    wefti_json_int(json, "tid", track);
    wefti_json_real(json, "ts",
                    us_per_ns * (double)(event->begin_ns - shift_ns));
    wefti_json_real(json, "dur",
                    us_per_ns * (double)(event->end_ns - event->begin_ns));
    wefti_json_object_open(json, "args");
    wefti_json_uint(json, "step", event->step);
    if (moves) {
        wefti_json_uint(json, "op", event->op_number);
        wefti_json_uint(json, "bytes", event->bytes);
    }
    wefti_json_object_close(json);
    wefti_json_object_close(json);
}

/* One kind's events, track by track. */
static void put_kind(wefti_json *json, int rank, int kind,
                     wefti_packed_event *events, size_t count, int64_t shift_ns)
{
    uint32_t rows = 0;
    char name[64];
    count = assign_rows(events, count);
    for (size_t k = 0; k < count; k++) {
        rows = events[k].row + 1 > rows ? events[k].row + 1 : rows;
    }
    for (uint32_t at = 0; at < rows; at++) {
        int track = kind * ROWS + (int)at;
        name_kind(kind, (int)at, name, sizeof(name));
        put_name(json, "thread_name", rank, track, name, 0);
        put_name(json, "thread_sort_index", rank, track, NULL, track);
        for (size_t k = 0; k < count; k++) {
            if (events[k].row == at) {
                put_event(json, rank, track, &events[k], shift_ns);
            }
        }
    }
}

void wefti_trace_file_rank(wefti_trace_file *out, int rank,
                           const wefti_rank_facts *facts,
                           wefti_packed_event *events, size_t count,
                           int64_t shift_ns)
{
    char name[WEFTI_TRACE_HOST_BYTES + 32];
    snprintf(name, sizeof(name), "rank %d on %.*s", rank,
             WEFTI_TRACE_HOST_BYTES, facts->host);
    put_name(&out->json, "process_name", rank, 0, name, 0);
    put_name(&out->json, "process_sort_index", rank, 0, NULL, rank);
    qsort(events, count, sizeof(*events), by_track);
    for (size_t first = 0, next; first < count; first = next) {
        int kind = kind_of(&events[first]);
        for (next = first; next < count && kind_of(&events[next]) == kind;) {
            next++;
        }
        put_kind(&out->json, rank, kind, events + first, next - first,
                 shift_ns);
    }
}

weft_status wefti_trace_file_open(wefti_trace_file *out, const char *path)
{
    weft_status status = wefti_output_open(&out->output, "--report", path);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_json_init(&out->json, out->output.file);
    wefti_json_object_open(&out->json, NULL);
    wefti_json_text(&out->json, "displayTimeUnit", "ms");
    wefti_json_array_open(&out->json, "traceEvents");
    return WEFT_OK;
}

weft_status wefti_trace_file_close(wefti_trace_file *out,
                                   const wefti_trace *trace, weft_status status)
{
    if (!out->output.file) {
        return status;
    }
    wefti_json_array_close(&out->json);
    wefti_json_object_open(&out->json, "otherData");
    wefti_json_text(&out->json, "program", "weft-train");
    wefti_json_uint(&out->json, "events_left_out", trace->omitted);
    wefti_json_real(&out->json, "clock_error_us",
                    us_per_ns * (double)trace->clock_error_ns);
    wefti_json_object_close(&out->json);
    wefti_json_object_close(&out->json);
    weft_status written = wefti_json_fini(&out->json);
    return wefti_output_end(&out->output, status == WEFT_OK ? written : status);
}
