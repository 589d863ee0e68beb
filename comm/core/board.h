/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/board.h - one line per rank in memory that weft-run shares with
 * its ranks: the last operation each has entered, message it has begun or call
 * it has made on a weft_mem, so that the launcher can say where a killed rank
 * was, and whose failure ended it, so that the launcher names the one that
 * began.
 */
#ifndef COMM_CORE_BOARD_H
#define COMM_CORE_BOARD_H

#include "weft/status.h"
#include "weft/types.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

/* What a line may tell of beside collectives, in the place of one. */
enum {
    WEFTI_BOARD_PUT = WEFT_COLLECTIVE_COUNT,
    WEFTI_BOARD_SIGNAL,
    WEFTI_BOARD_WAIT
};

/*
 * Written by one rank only. Every field is stored relaxed, so a reader may see
 * the number of one operation beside the kind or name of another.
 *
 * op_number   of a message: among those of its pair and direction; of a call on
 *             a weft_mem: the memory's. 0: none yet
 * kind        as a signature's (comm/fabric/signature.h), with the peer as its
 * root
 */
typedef struct wefti_board_line {
    _Alignas(128) _Atomic uint64_t op_number;
    _Atomic uint64_t kind;
    _Atomic uint32_t blamed; /* 1 + the rank that failed first; 0: no rank */
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

/* A kind that is no collective's. peer -1: any. */
static inline uint64_t wefti_board_kind(int what, int peer)
{
    return (uint64_t)what | (uint64_t)(peer + 1) << 32;
}

/* Note an operation. Two relaxed stores. */
static inline void wefti_board_note(wefti_board_line *line, uint64_t op_number,
                                    uint64_t kind)
{
    atomic_store_explicit(&line->kind, kind, memory_order_relaxed);
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

/* "all_reduce #417", "send #3 to rank 1", "put to rank 3, memory #1"; what
 * comes before the number or peer is *what_out. */
void wefti_board_get_text(const wefti_board_line *line, char *text_out,
                          size_t text_bytes, const char **what_out);

/* The name as it stands; what is not printable ASCII reads as '?'. */
void wefti_board_get_name(const wefti_board_line *line, char name_out[32]);

#endif
