/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/inner_levels.h - the levels inside the hosts of a communicator's
 * ranks, from what each rank said when the job's ranks met.
 */
#ifndef COMM_MAKE_INNER_LEVELS_H
#define COMM_MAKE_INNER_LEVELS_H

#include "comm/core/core.h"

/*
 * wefti_inner_levels_find - comm->nest, once it is known who shares memory:
 * NULL where no host has levels inside that part its ranks.
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status
wefti_inner_levels_find(weft_comm *comm, const wefti_membership *members);

#endif
