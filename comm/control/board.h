/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/board.h - one line per rank in memory that weft-run shares with
 * its ranks: the last operation each has entered, so that the launcher can say
 * where a killed rank was, and whose failure ended it, so that the launcher
 * names the one that began.
 */
#ifndef COMM_CONTROL_BOARD_H
#define COMM_CONTROL_BOARD_H

#include "weft/status.h"
#include "weft/types.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

/*
 * Written by one rank only. Every field is stored relaxed, so a reader may see
 * the number of one operation beside the kind or name of another.
 */
typedef struct wefti_board_line {
    _Alignas(128) _Atomic uint64_t op_number; /* 0: none yet */
    _Atomic uint32_t collective;
    _Atomic uint32_t blamed; /* 1 + the rank that failed first; 0: nobody */
    _Atomic uint64_t comm_name[4]; /* 32 bytes of text, zero at the end */
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

/*
 * wefti_board_set_name - the communicator that the next notes belong to; up to
 * 31 bytes of name count. Call where it differs from the last note's.
 */
static inline void wefti_board_set_name(wefti_board_line *line,
                                        const char *name)
{
    uint64_t words[4] = {0};
    size_t bytes = strlen(name);
    memcpy(words, name, bytes < sizeof(words) ? bytes : sizeof(words) - 1);
    for (int i = 0; i < 4; i++) {
        atomic_store_explicit(&line->comm_name[i], words[i],
                              memory_order_relaxed);
    }
}

/* A rank of the job, other than this one, has failed, and this one will. */
static inline void wefti_board_blame(wefti_board_line *line, int rank)
{
    atomic_store_explicit(&line->blamed, (uint32_t)rank + 1,
                          memory_order_relaxed);
}

/* The name as it stands; what is not printable ASCII reads as '?'. */
void wefti_board_get_name(const wefti_board_line *line, char name_out[32]);

#endif
