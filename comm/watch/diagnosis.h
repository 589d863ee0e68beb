/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/diagnosis.h - no hang without a name: who is waited for, since
 * when, and whether he is still alive.
 */
#ifndef COMM_WATCH_DIAGNOSIS_H
#define COMM_WATCH_DIAGNOSIS_H

#include "comm/core/core.h"

extern const wefti_watch wefti_diagnosis;

/*
 * wefti_watch_hosts - once a wait is long enough for a warning, or half as long
 * as it may be (limit_ns), ask now and then whether the awaited ranks' hosts
 * answer.
 */
void wefti_watch_hosts(weft_comm *comm, int64_t stalled_ns, int64_t limit_ns,
                       int64_t now_ns,
                       bool (*awaits)(weft_comm *comm, const void *context,
                                      int peer),
                       const void *context);

#endif
