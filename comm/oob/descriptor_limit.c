/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/descriptor_limit.c - the soft limit, read anew each time.
 */
#include "comm/oob/descriptor_limit.h"

#include "base/error.h"

#include <sys/resource.h>

weft_status wefti_descriptor_limit_check(const char *what, int nranks,
                                         unsigned long long needed)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) {
        return WEFT_OK;
    }
    return wefti_error(WEFT_ERR_SYSTEM,
                       "the limit on open files (RLIMIT_NOFILE, ulimit -n) is "
                       "%llu; %s of %d ranks needs %llu",
                       (unsigned long long)limit.rlim_cur, what, nranks,
                       needed);
}
