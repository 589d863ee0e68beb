/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/board.h - one line per rank in memory that weft-run shares with
 * its ranks: the last operation each has entered, so that the launcher can say
 * where a killed rank was.
 */
#ifndef COMM_CONTROL_BOARD_H
#define COMM_CONTROL_BOARD_H

#include "weft/status.h"
#include "weft/types.h"

#include <stdatomic.h>
#include <stdint.h>

/* Written by one rank only; readers may see number and kind of two ops. */
typedef struct wefti_board_line {
    _Alignas(128) _Atomic uint64_t op_number; /* 0: none yet */
    _Atomic uint32_t collective;
    char comm_name[32];
} wefti_board_line;

/* Bytes of a board for nranks ranks. */
size_t wefti_board_bytes(int nranks);

/*
 * wefti_board_open - map the board named by WEFT_BOARD_FD.
 *
 * Returns     OK with *line_out = NULL where there is none | ERR_SYSTEM |
 *             ERR_INVALID (too small for the rank).
 */
WEFT_NODISCARD weft_status wefti_board_open(int rank,
                                            wefti_board_line **line_out);
void wefti_board_close(wefti_board_line *line); /* NULL is legal */

/* Note an operation. Two relaxed stores. */
static inline void wefti_board_note(wefti_board_line *line, uint64_t op_number,
                                    weft_collective collective)
{
    atomic_store_explicit(&line->collective, (uint32_t)collective,
                          memory_order_relaxed);
    atomic_store_explicit(&line->op_number, op_number, memory_order_relaxed);
}

#endif
