/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_call.h - do a case on weft.
 */
#ifndef PERF_PERF_CALL_H
#define PERF_PERF_CALL_H

#include "perf/perf_case.h"
#include "weft/weft.h"

/* The whole operation, ungated; sendrecv: the send. */
weft_op wefti_perf_call_op(const wefti_perf_case *subject,
                           wefti_perf_buffers buffers);

/*
 * wefti_perf_call_run - do it, and return when it is done.
 *
 * stream   NULL: blocking calls here and now; else through this stream.
 */
WEFT_NODISCARD weft_status wefti_perf_call_run(const wefti_perf_case *subject,
                                               wefti_perf_buffers buffers,
                                               weft_comm *comm,
                                               weft_stream *stream);

#endif
