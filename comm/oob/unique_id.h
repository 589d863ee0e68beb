/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/unique_id.h - bootstrap where a unique id says.
 */
#ifndef COMM_OOB_UNIQUE_ID_H
#define COMM_OOB_UNIQUE_ID_H

#include "comm/oob/join_request.h"

/* As wefti_bootstrap_join for a request with an id. */
WEFT_NODISCARD weft_status wefti_unique_id_join(
    const wefti_bootstrap_request *request, wefti_membership *membership_out);

#endif
