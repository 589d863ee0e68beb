/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/descriptors.h - 0, 1 and 2 are never a socket or memory of weft's; and
 * whether this process may open the files that many ranks need.
 */
#ifndef BASE_DESCRIPTORS_H
#define BASE_DESCRIPTORS_H

#include "weft/status.h"

/*
 * wefti_descriptors_reserve - put /dev/null where standard input, output or
 * error is closed, so that what is opened next does not take its number and
 * receive what the program prints. It is opened the wrong way round: reading
 * and writing still fail there, as they do on a closed descriptor.
 *
 * Returns     OK | ERR_SYSTEM.
 * Threads     any.
 */
WEFT_NODISCARD weft_status wefti_descriptors_reserve(void);

/*
 * wefti_descriptors_check - refuses by name where RLIMIT_NOFILE is below
 * needed, which is what nranks ranks take.
 *
 * what        that has these ranks, such as "a job"; for the error's text.
 *
 * Returns     OK | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_descriptors_check(const char *what, int nranks,
                                                   unsigned long long needed);

#endif
