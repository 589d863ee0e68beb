/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_foreign.h - what nccl-tests is told and weft-perf has other words
 * for: flags that mean something here, flags that cannot and say why, and
 * variables of the environment.
 */
#ifndef PERF_PERF_FOREIGN_H
#define PERF_PERF_FOREIGN_H

#include "perf/perf_options.h"

/* Of getopt: each takes a value. */
#define WEFTI_PERF_FOREIGN_FLAGS "t:g:N:T:G:R:a:m:u:I:p:y:C:S:x:D:V:M:U:K:"

/*
 * wefti_perf_foreign_read - one of these flags.
 *
 * Returns     OK | ERR_INVALID (the flag, its value, what is allowed or why it
 *             cannot be).
 */
WEFT_NODISCARD weft_status wefti_perf_foreign_read(int flag, const char *value,
                                                   wefti_perf_options *options);

/* Whether calls in groups, and buffers that begin elsewhere, go with the rest.
 */
WEFT_NODISCARD weft_status
wefti_perf_foreign_check(wefti_perf_options *options);

/*
 * wefti_perf_foreign_environment - NCCL_TESTS_*, once the operation is known.
 *
 * Returns     OK | ERR_INVALID (the variable, its value, what is allowed).
 */
WEFT_NODISCARD weft_status
wefti_perf_foreign_environment(wefti_perf_options *options);

#endif
