/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/environment.h - bootstrap where the WEFT_* variables say.
 */
#ifndef COMM_OOB_ENVIRONMENT_H
#define COMM_OOB_ENVIRONMENT_H

#include "comm/oob/join_request.h"

/*
 * wefti_environment_find_rank - this rank and how many there are, from
 * WEFT_RANK and WEFT_NRANKS; one of one where they are not set.
 *
 * Returns     OK | ERR_INVALID.
 */
WEFT_NODISCARD weft_status wefti_environment_find_rank(int *rank_out,
                                                       int *nranks_out);

/*
 * wefti_environment_join - as wefti_bootstrap_join, for a request without id
 * whose rank and nranks are set.
 *
 * Rank 0's process listens, on WEFT_RENDEZVOUS_FD if that is a socket that
 * listens at WEFT_RENDEZVOUS, else on one of its own; the others come.
 */
WEFT_NODISCARD weft_status wefti_environment_join(
    const wefti_bootstrap_request *request, wefti_membership *membership_out);

#endif
