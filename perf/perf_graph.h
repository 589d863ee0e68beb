/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_graph.h - calls that are captured into CUDA graphs, one each, as a
 * program captures its own, and then launched.
 */
#ifndef PERF_PERF_GRAPH_H
#define PERF_PERF_GRAPH_H

#include "perf/perf_rank.h"

/*
 * wefti_perf_graph_capture - a graph for each of the pool's buffers, from
 * self's stream, which calls then launch.
 *
 * Returns     OK | ERR_UNSUPPORTED: the driver has no graphs, or the call can
 *             not be captured | ERR_SYSTEM | ERR_NO_MEMORY; free it after all.
 */
WEFT_NODISCARD weft_status wefti_perf_graph_capture(wefti_perf_pool *pool,
                                                    wefti_perf_rank *self);

WEFT_NODISCARD weft_status wefti_perf_graph_launch(const wefti_perf_pool *pool,
                                                   size_t call,
                                                   weft_stream *stream);

/* None is under way any more. */
void wefti_perf_graph_free(wefti_perf_pool *pool, const wefti_perf_rank *self);

#endif
