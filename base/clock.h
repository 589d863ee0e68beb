/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/clock.h - the one clock: CLOCK_MONOTONIC, the same for all processes of
 * a host.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

int64_t wefti_clock_ns(void);        /* exact, about 20 ns a call */
int64_t wefti_clock_coarse_ns(void); /* to some ms, about 5 ns a call */
int64_t wefti_clock_thread_ns(void); /* CPU time of the calling thread */

/* For poll: whole ms until until_ns, at least until then; 0: it is past, -1:
 * INT64_MAX. At most an hour. */
int wefti_clock_poll_ms(int64_t until_ns);

#endif
