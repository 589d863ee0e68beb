/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/membership.h - making what bootstrap.h hands out.
 */
#ifndef COMM_OOB_MEMBERSHIP_H
#define COMM_OOB_MEMBERSHIP_H

#include "comm/oob/bootstrap.h"

/*
 * wefti_membership_init - nobody watched, no memory (memory_fd -1).
 *
 * Returns     OK | ERR_NO_MEMORY; fini is legal after both.
 */
WEFT_NODISCARD weft_status wefti_membership_init(wefti_membership *membership,
                                                 int rank, int nranks);

/*
 * wefti_membership_watch - open a pidfd for each other process of this rank's
 * domain; members of one process share it. pid and domain of the members are
 * set, and all are alive when this is called.
 *
 * Returns     -1, or the rank whose process could not be watched (errno).
 */
int wefti_membership_watch(wefti_membership *membership);

/*
 * wefti_membership_alone - a job of one rank, without any socket.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status
wefti_membership_alone(const unsigned char tuning[WEFTI_TUNING_BYTES],
                       wefti_membership *membership_out);

#endif
