/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/limits.h - how many ranks a job has at most, and how much each sends
 * while it joins.
 */
#ifndef COMM_OOB_LIMITS_H
#define COMM_OOB_LIMITS_H

enum {
    WEFTI_BOOTSTRAP_RANKS_MOST = 1024,
    WEFTI_TUNING_BYTES = 256,
    WEFTI_JOB_KEY_BYTES = 32,
    WEFTI_SOCKET_NAME_BYTES = 16,
    WEFTI_INFO_BYTES = 640,
    WEFTI_INFO_ROUNDS = 2
};

#endif
