/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/live.h - whether what a caller hands in is a communicator that this
 * process can use: made, not yet destroyed, and not inherited by fork.
 *
 * A word at both ends of the struct says that it has not been freed, as far as
 * that can be seen from freed memory. A forked child has none of the library's
 * threads, and locks as they stood; the page behind engine->home reads as zero
 * there (MADV_WIPEONFORK, Linux 4.14), so that asking costs one load.
 */
#ifndef COMM_CORE_LIVE_H
#define COMM_CORE_LIVE_H

#include "comm/core/core.h"

#define WEFTI_LIVE_WORD UINT64_C(0x77656674636f6d6d)

static inline bool wefti_comm_is_live(const weft_comm *comm)
{
    return comm && comm->head_word == WEFTI_LIVE_WORD &&
           comm->tail_word == WEFTI_LIVE_WORD && *comm->home != 0;
}

/*
 * wefti_comm_refuse - the error for one that is not; name: of the argument.
 *
 * Returns     ERR_INVALID.
 */
WEFT_NODISCARD weft_status wefti_comm_refuse(const weft_comm *comm,
                                             const char *name);

/* Whether comm was inherited from the process that this one was forked from. */
bool wefti_comm_is_inherited(const weft_comm *comm);

/*
 * wefti_home_open - a page that tells this process from its forked children:
 * 1, then random words (comm/fabric/process_read.h).
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_home_open(uint64_t **home_out);
void wefti_home_close(uint64_t *home);

#endif
