/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/diagnosis.h - no hang without a name: who is waited for, since
 * when, and whether he is still alive.
 */
#ifndef COMM_CONTROL_DIAGNOSIS_H
#define COMM_CONTROL_DIAGNOSIS_H

#include "comm/core.h"

/*
 * wefti_watch_stalled - called each time op could not move. Looks for dead
 * peers after 20 ms, warns after warn_ns, fails the communicator after
 * timeout_ns. Costs one coarse clock call.
 */
void wefti_watch_stalled(weft_comm *comm, wefti_op *op);

#endif
