/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_hiding.h - weft-perf --overlap: how much of an operation a compute
 * of the same length hides, and what that costs the compute.
 *
 * The compute makes the send buffer in parts, in the order that the operation
 * wants them (perf_parts.h), and signals its ready gate after each. Four runs
 * of equal work, in turn, in every iteration:
 *
 *   comp    the compute alone           ser   the compute, then the operation
 *   alone   the operation alone         ovl   both at once, tied by the gate
 *
 * O = part of the transfers' time under compute (ledger, ovl);
 * H = 1 - (T_ovl - T_comp) / (T_ser - T_comp), not clipped, and not given
 * where T_ser - T_comp is below 3 times the spread of either;
 * s_C = |C| ovl / |C| comp; s_M = |X| ovl / |X| alone. Spread: half the
 * distance from the 10th to the 90th percentile.
 *
 * Of ovl also what the ledger counts: wake-ups of weft's threads, for each MiB
 * that a rank sent and received; preemptions of the compute; those threads' CPU
 * time.
 *
 * With --bare two more, of bare sockets that move as many bytes: bare_ser,
 * bare_ovl, and from them H_bare.
 */
#ifndef PERF_PERF_HIDING_H
#define PERF_PERF_HIDING_H

#include "perf/perf_rank.h"
#include "perf/perf_row.h"

/*
 * wefti_perf_hiding_measure - all ranks together; every rank gets the same
 * row, which points to hiding_out. The row's time is that of alone.
 *
 * Returns     OK (also if results are wrong: see the row) | what failed.
 */
WEFT_NODISCARD weft_status wefti_perf_hiding_measure(
    wefti_perf_rank *self, size_t bytes, wefti_perf_row *row_out,
    wefti_perf_hiding *hiding_out);

#endif
