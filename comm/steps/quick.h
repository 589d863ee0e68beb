/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/quick.h - what is plain and small enters before its operation is
 * filled in, while its bytes are on their way to the peers, and mostly ends
 * before its poster has given back the lock.
 */
#ifndef COMM_STEPS_QUICK_H
#define COMM_STEPS_QUICK_H

#include "comm/core/core.h"

/*
 * What has been prepared, and its number. Borrowed.
 */
typedef struct wefti_quick {
    const weft_op *desc;
    const wefti_role *role;
    const wefti_signature *signature;
    uint64_t number;
} wefti_quick;

/*
 * wefti_quick_suits - whether a collective that its caller waits for is one:
 * its payload rides in the entry, from host memory, among ranks of one host,
 * without gates, rate limit or observer. Buffers that are not the host's are
 * the caller's to look for.
 */
bool wefti_quick_suits(const weft_comm *comm, const weft_op *desc,
                       const wefti_role *role, const wefti_choice *choice);

/*
 * wefti_quick_enter - writes its entry, if its op slot is free on all ranks;
 * whether it is. If so, wefti_quick_begin follows at once.
 */
bool wefti_quick_enter(weft_comm *comm, const wefti_quick *quick);

/* Its operation, posted, has entered so: it runs from now on, as
 * wefti_oneshot_advance knows it. */
void wefti_quick_begin(weft_comm *comm, wefti_op *op);

/* Looks for the peers that it needs; ends it if all have entered. Whether it
 * has ended. */
bool wefti_quick_look(weft_comm *comm, wefti_op *op);

#endif
