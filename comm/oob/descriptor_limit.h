/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/descriptor_limit.h - whether this process may open the files that
 * many ranks need.
 */
#ifndef COMM_OOB_DESCRIPTOR_LIMIT_H
#define COMM_OOB_DESCRIPTOR_LIMIT_H

#include "weft/status.h"

/*
 * wefti_descriptor_limit_check - refuses by name where RLIMIT_NOFILE is below
 * needed, which is what nranks ranks take.
 *
 * what        that has these ranks, such as "a job"; for the error's text.
 *
 * Returns     OK | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_descriptor_limit_check(
    const char *what, int nranks, unsigned long long needed);

#endif
