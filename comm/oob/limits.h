/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/limits.h - how many ranks a job has at most, and how much each sends
 * while it joins.
 */
#ifndef COMM_OOB_LIMITS_H
#define COMM_OOB_LIMITS_H

/*
 * WEFTI_JOB_RANKS_MOST  of a job: what lists all ranks (the welcome, the votes
 *                       of survivors, the world's table of outcomes) has room
 *                       for so many. A multiple of 64, below 2^16.
 */
enum {
    WEFTI_JOB_RANKS_MOST = 4096,
    WEFTI_TUNING_BYTES = 256,
    WEFTI_JOB_KEY_BYTES = 32,
    WEFTI_SOCKET_NAME_BYTES = 16,
    WEFTI_INFO_BYTES = 640,
    WEFTI_INFO_ROUNDS = 2
};

#endif
