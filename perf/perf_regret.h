/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_regret.h - weft-perf --regret: what the choice of an algorithm
 * costs against the best of those that can.
 *
 * In every iteration all of them, each beginning one later than in the last, so
 * that a slow moment of the machine meets all alike. The choice is measured as
 * one of them.
 */
#ifndef PERF_PERF_REGRET_H
#define PERF_PERF_REGRET_H

#include "perf/perf_rank.h"
#include "perf/perf_row.h"

/*
 * wefti_perf_regret_measure - all ranks together; every rank gets the same row,
 * which points to regret_out. The row's time is that of the choice; what is
 * wrong, of all.
 *
 * Returns     OK (also if results are wrong: see the row) | what failed.
 */
WEFT_NODISCARD weft_status wefti_perf_regret_measure(
    wefti_perf_rank *self, size_t bytes, wefti_perf_row *row_out,
    wefti_perf_regret *regret_out);

#endif
