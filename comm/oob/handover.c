/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/handover.c - both ends of the unix socket.
 */
#include "comm/oob/handover.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <string.h>

enum { RETRY_MS = 5 };

wefti_tokens
wefti_handover_tokens(const unsigned char job_key[WEFTI_JOB_KEY_BYTES],
                      uint32_t rank)
{
    static const char context[crypto_kdf_CONTEXTBYTES + 1] = "wefthand";
    _Static_assert(WEFTI_JOB_KEY_BYTES == crypto_kdf_KEYBYTES, "job key");
    wefti_tokens tokens;
    crypto_kdf_derive_from_key(tokens.claim, sizeof(tokens.claim), 2 * rank,
                               context, job_key);
    crypto_kdf_derive_from_key(tokens.answer, sizeof(tokens.answer),
                               2 * (uint64_t)rank + 1, context, job_key);
    return tokens;
}

static wefti_oob_message make(wefti_oob_message_kind kind, uint32_t rank,
                              const unsigned char token[WEFTI_TOKEN_BYTES])
{
    wefti_oob_message message = {.kind = kind, .as.claim.rank = rank};
    memcpy(message.as.claim.token, token, WEFTI_TOKEN_BYTES);
    return message;
}

bool wefti_handover_send(wefti_oob_connection *connection, uint32_t rank,
                         const wefti_tokens *tokens, int memory_fd)
{
    const wefti_oob_message message =
        make(WEFTI_OOB_HANDED, rank, tokens->answer);
    return wefti_oob_connection_pass(connection, &message, memory_fd);
}

/* Waits for the answer and takes it apart; 0, or an errno. */
static int receive(wefti_oob_connection *connection, uint32_t rank,
                   const wefti_tokens *tokens, int64_t deadline_ns,
                   int cancel_fd, int *memory_fd_out)
{
    wefti_oob_message message;
    wefti_oob_arrival arrival;
    while ((arrival = wefti_oob_connection_next(
                connection, WEFTI_KIND_BIT(WEFTI_OOB_HANDED), &message)) ==
               WEFTI_OOB_ARRIVAL_NONE &&
           wefti_clock_ns() < deadline_ns) {
        struct pollfd wait[] = {{.fd = connection->fd, .events = POLLIN},
                                {.fd = cancel_fd, .events = POLLIN}};
        (void)poll(wait, 2, wefti_clock_poll_ms(deadline_ns));
        if (wait[1].revents) {
            return ECANCELED;
        }
        wefti_oob_connection_receive(connection);
    }
    if (connection->failure) {
        return connection->failure;
    }
    if (arrival != WEFTI_OOB_ARRIVAL_MESSAGE) {
        return arrival == WEFTI_OOB_ARRIVAL_NONE    ? EAGAIN
               : arrival == WEFTI_OOB_ARRIVAL_ENDED ? ECONNRESET
                                                    : EPROTO;
    }
    if (!connection->passed || message.as.claim.rank != rank ||
        sodium_memcmp(message.as.claim.token, tokens->answer,
                      WEFTI_TOKEN_BYTES) != 0) {
        return EPROTO;
    }
    *memory_fd_out = connection->passed_fd;
    connection->passed = false;
    return 0;
}

/* One try: 0, or an errno; EAGAIN and ECONNRESET are worth another. */
static int claim(const wefti_endpoint *where, uint32_t rank,
                 const wefti_tokens *tokens, int64_t deadline_ns, int cancel_fd,
                 int *memory_fd_out, const char **call_out)
{
    const wefti_oob_message message =
        make(WEFTI_OOB_CLAIM, rank, tokens->claim);
    wefti_oob_connection connection;
    int failure = ENOMEM;
    *call_out = "malloc";
    if (wefti_oob_connection_open(&connection, where, NULL,
                                  WEFTI_OOB_CLIENT_MOST) != WEFT_OK) {
        return failure;
    }
    if (!wefti_oob_connection_wait(&connection, deadline_ns, cancel_fd)) {
        failure = connection.failure;
        *call_out = connection.failed_call;
    } else if (wefti_oob_connection_post(&connection, &message) == WEFT_OK) {
        failure = receive(&connection, rank, tokens, deadline_ns, cancel_fd,
                          memory_fd_out);
        *call_out = "recvmsg";
    }
    wefti_oob_connection_fini(&connection);
    return failure;
}

wefti_outcome
wefti_handover_fetch(const unsigned char name[WEFTI_SOCKET_NAME_BYTES],
                     uint32_t rank, const wefti_tokens *tokens,
                     int64_t deadline_ns, int cancel_fd, int *memory_fd_out,
                     const char **call_out)
{
    wefti_endpoint where;
    int failure;
    wefti_endpoint_unix(name, &where);
    for (;;) {
        failure = claim(&where, rank, tokens, deadline_ns, cancel_fd,
                        memory_fd_out, call_out);
        bool again =
            failure == EAGAIN || failure == ECONNRESET || failure == EINTR;
        if (!again || wefti_clock_ns() >= deadline_ns) {
            break;
        }
        (void)poll(NULL, 0, RETRY_MS);
    }
    errno = failure;
    if (failure == 0) {
        return WEFTI_OUTCOME_COMPLETE;
    }
    return failure == ECONNREFUSED ? WEFTI_OUTCOME_UNREACHABLE
                                   : WEFTI_OUTCOME_SYSTEM;
}
