/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/handover.h - the descriptor of a domain's shared memory, from
 * its lowest rank to each other over an abstract unix socket, which exists only
 * inside one network namespace of one host.
 *
 * The rank that fetches is proved by its claim token and by its process and
 * user, which the kernel states; the rank that hands out, by the answer.
 */
#ifndef COMM_OOB_HANDOVER_H
#define COMM_OOB_HANDOVER_H

#include "comm/oob/connection.h"

/* What proves rank, and what proves the rank that hands it the memory. */
typedef struct wefti_tokens {
    unsigned char claim[WEFTI_TOKEN_BYTES];
    unsigned char answer[WEFTI_TOKEN_BYTES];
} wefti_tokens;

wefti_tokens
wefti_handover_tokens(const unsigned char job_key[WEFTI_JOB_KEY_BYTES],
                      uint32_t rank);

/*
 * wefti_handover_send - answer a claim that was found right, on its connection.
 *
 * Returns     whether the kernel took it.
 */
bool wefti_handover_send(wefti_oob_connection *connection, uint32_t rank,
                         const wefti_tokens *tokens, int memory_fd);

/*
 * wefti_handover_fetch - claim the memory.
 *
 * Returns     COMPLETE with *memory_fd_out (close-on-exec) | UNREACHABLE |
 *             SYSTEM with errno, and in *call_out which call set it.
 * Blocks      until deadline_ns, or until cancel_fd, if not -1, is readable
 *             (ECANCELED).
 */
wefti_outcome
wefti_handover_fetch(const unsigned char name[WEFTI_SOCKET_NAME_BYTES],
                     uint32_t rank, const wefti_tokens *tokens,
                     int64_t deadline_ns, int cancel_fd, int *memory_fd_out,
                     const char **call_out);

#endif
