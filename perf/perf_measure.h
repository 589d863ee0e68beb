/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_measure.h - the time of one size of one operation.
 *
 * Before each call: its buffers, the next of some, are rewritten; the ranks
 * meet. The call is timed on every rank from there to its return; its time is
 * that of the slowest rank.
 */
#ifndef PERF_PERF_MEASURE_H
#define PERF_PERF_MEASURE_H

#include "perf/perf_rank.h"
#include "perf/perf_row.h"

/* One call, with fresh data, from where the ranks meet to its return on this
 * one; calls are numbered. */
WEFT_NODISCARD weft_status wefti_perf_measure_call(wefti_perf_rank *self,
                                                   wefti_perf_pool *pool,
                                                   size_t call,
                                                   int64_t *time_ns_out);

/*
 * wefti_perf_measure_check - as many calls as asked for, each verified as a
 * whole, numbered past all that were timed, so that no earlier output can pass.
 *
 * wrong   in: this rank's wrong elements so far; out: those of all ranks.
 */
WEFT_NODISCARD weft_status wefti_perf_measure_check(wefti_perf_rank *self,
                                                    wefti_perf_pool *pool,
                                                    size_t first_call,
                                                    int64_t *wrong);

/*
 * wefti_perf_measure - all ranks together; every rank gets the same row.
 *
 * samples_out   the row's samples, to be freed by the caller after use; also
 *               set where the row does not show them. NULL after an error.
 *
 * Returns     OK (also if results are wrong: see the row) | what failed.
 */
WEFT_NODISCARD weft_status wefti_perf_measure(wefti_perf_rank *self,
                                              size_t bytes,
                                              wefti_perf_row *row_out,
                                              int64_t **samples_out);

#endif
