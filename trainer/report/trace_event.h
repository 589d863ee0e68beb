/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/trace_event.h - one event as it travels, and the file it ends
 * in.
 */
#ifndef TRAINER_REPORT_TRACE_EVENT_H
#define TRAINER_REPORT_TRACE_EVENT_H

#include "base/json.h"
#include "base/output.h"
#include "trainer/report/trace.h"

enum { WEFTI_TRACE_LABEL_BYTES = 28 };

typedef struct wefti_packed_event {
    int64_t begin_ns, end_ns;
    uint64_t op_number, bytes;
    uint32_t step;
    uint8_t kind;       /* wefti_trace_kind */
    uint8_t class_id;   /* weft_class */
    uint8_t collective; /* weft_collective */
    uint8_t spare;
    uint32_t row; /* rank 0's */
    char label[WEFTI_TRACE_LABEL_BYTES];
} wefti_packed_event;

/* A file that takes the place of path when it is whole. */
typedef struct wefti_trace_file {
    wefti_output output;
    wefti_json json;
} wefti_trace_file;

WEFT_NODISCARD weft_status wefti_trace_file_open(wefti_trace_file *out,
                                                 const char *path);

/*
 * wefti_trace_file_rank - a rank's events, which are sorted and assigned rows.
 *
 * shift_ns  is taken from every time: what is left is small and not negative.
 */
void wefti_trace_file_rank(wefti_trace_file *out, int rank,
                           const wefti_rank_facts *facts,
                           wefti_packed_event *events, size_t count,
                           int64_t shift_ns);

/* status: of what came before; not OK leaves path as it was. */
WEFT_NODISCARD weft_status wefti_trace_file_close(wefti_trace_file *out,
                                                  const wefti_trace *trace,
                                                  weft_status status);

#endif
