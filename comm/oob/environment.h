/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/environment.h - this rank, as the WEFT_* variables have it.
 */
#ifndef COMM_OOB_ENVIRONMENT_H
#define COMM_OOB_ENVIRONMENT_H

#include "weft/status.h"

/*
 * wefti_environment_find_rank - this rank and how many there are, from
 * WEFT_RANK and WEFT_NRANKS; one of one where they are not set.
 *
 * Returns     OK | ERR_INVALID.
 */
WEFT_NODISCARD weft_status wefti_environment_find_rank(int *rank_out,
                                                       int *nranks_out);

#endif
