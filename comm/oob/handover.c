/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/handover.c - both ends of the unix socket.
 */
#include "comm/oob/handover.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { RETRY_MS = 5 };

/* Room for one descriptor, aligned as the kernel wants it. */
typedef union descriptor_room {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr header;
} descriptor_room;

static socklen_t
abstract_address(const unsigned char name[WEFTI_SOCKET_NAME_BYTES],
                 struct sockaddr_un *address_out)
{
    char text[8 + 2 * WEFTI_SOCKET_NAME_BYTES + 1] = "weft-";
    for (int i = 0; i < WEFTI_SOCKET_NAME_BYTES; i++) {
        snprintf(text + 5 + 2 * i, 3, "%02x", name[i]);
    }
    *address_out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address_out->sun_path + 1, text, strlen(text));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       strlen(text));
}

weft_status
wefti_handover_listen(unsigned char name_out[WEFTI_SOCKET_NAME_BYTES],
                      int *fd_out)
{
    struct sockaddr_un address;
    randombytes_buf(name_out, WEFTI_SOCKET_NAME_BYTES);
    socklen_t address_bytes = abstract_address(name_out, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return wefti_error_system("unix socket of the rendezvous");
    }
    if (bind(fd, (struct sockaddr *)&address, address_bytes) != 0 ||
        listen(fd, SOMAXCONN) != 0) {
        weft_status status =
            wefti_error_system("unix socket to listen on (bind, listen)");
        close(fd);
        return status;
    }
    *fd_out = fd;
    return WEFT_OK;
}

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

static size_t encode(wefti_oob_message_kind kind, uint32_t rank,
                     const unsigned char token[WEFTI_TOKEN_BYTES],
                     unsigned char frame[WEFTI_OOB_FRAME_MOST])
{
    wefti_oob_message message = {.kind = kind, .as.claim.rank = rank};
    memcpy(message.as.claim.token, token, WEFTI_TOKEN_BYTES);
    return wefti_oob_message_encode(&message, frame);
}

bool wefti_handover_send(int fd, uint32_t rank, const wefti_tokens *tokens,
                         int memory_fd)
{
    unsigned char frame[WEFTI_OOB_FRAME_MOST];
    struct iovec data = {frame,
                         encode(WEFTI_OOB_HANDED, rank, tokens->answer, frame)};
    descriptor_room room;
    memset(&room, 0, sizeof(room));
    struct msghdr header = {.msg_iov = &data,
                            .msg_iovlen = 1,
                            .msg_control = room.bytes,
                            .msg_controllen = sizeof(room.bytes)};
    struct cmsghdr *control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(control), &memory_fd, sizeof(int));
    ssize_t sent;
    do {
        sent = sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)data.iov_len;
}

/* Takes the answer apart; 0, or an errno. */
static int receive(int fd, uint32_t rank, const wefti_tokens *tokens,
                   int *memory_fd_out)
{
    unsigned char frame[WEFTI_OOB_CLIENT_MOST];
    struct iovec data = {frame, sizeof(frame)};
    descriptor_room room;
    memset(&room, 0, sizeof(room));
    struct msghdr header = {.msg_iov = &data,
                            .msg_iovlen = 1,
                            .msg_control = room.bytes,
                            .msg_controllen = sizeof(room.bytes)};
    ssize_t got = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
    if (got <= 0) {
        return got < 0 ? errno : ECONNRESET;
    }
    struct cmsghdr *control = CMSG_FIRSTHDR(&header);
    int memory_fd = -1;
    if (control && control->cmsg_level == SOL_SOCKET &&
        control->cmsg_type == SCM_RIGHTS &&
        control->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(&memory_fd, CMSG_DATA(control), sizeof(int));
    }
    wefti_oob_message message;
    bool right = memory_fd >= 0 &&
                 wefti_oob_message_decode(frame, (size_t)got, &message) &&
                 message.kind == WEFTI_OOB_HANDED &&
                 message.as.claim.rank == rank &&
                 sodium_memcmp(message.as.claim.token, tokens->answer,
                               WEFTI_TOKEN_BYTES) == 0;
    if (!right) {
        if (memory_fd >= 0) {
            close(memory_fd);
        }
        /* The kernel drops the descriptor where this process has no room. */
        return header.msg_flags & MSG_CTRUNC ? EMFILE : EPROTO;
    }
    *memory_fd_out = memory_fd;
    return 0;
}

/* One try: 0, or an errno; EAGAIN and ECONNRESET are worth another. */
static int claim(const unsigned char name[WEFTI_SOCKET_NAME_BYTES],
                 uint32_t rank, const wefti_tokens *tokens, int64_t deadline_ns,
                 int *memory_fd_out, const char **call_out)
{
    unsigned char frame[WEFTI_OOB_FRAME_MOST];
    struct sockaddr_un address;
    socklen_t address_bytes = abstract_address(name, &address);
    int failure = 0;
    *call_out = "socket";
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return errno;
    }
    *call_out = "connect";
    size_t frame_bytes = encode(WEFTI_OOB_CLAIM, rank, tokens->claim, frame);
    if (connect(fd, (struct sockaddr *)&address, address_bytes) != 0) {
        failure = errno;
    } else if (send(fd, frame, frame_bytes, MSG_NOSIGNAL) < 0) {
        failure = errno == EPIPE ? ECONNRESET : errno;
        *call_out = "send";
    } else {
        *call_out = "recvmsg";
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int64_t left_ns = deadline_ns - wefti_clock_ns();
        (void)poll(&wait, 1, left_ns > 0 ? (int)(left_ns / 1000000) + 1 : 0);
        failure = receive(fd, rank, tokens, memory_fd_out);
    }
    close(fd);
    return failure;
}

wefti_outcome
wefti_handover_fetch(const unsigned char name[WEFTI_SOCKET_NAME_BYTES],
                     uint32_t rank, const wefti_tokens *tokens,
                     int64_t deadline_ns, int *memory_fd_out,
                     const char **call_out)
{
    int failure;
    for (;;) {
        failure =
            claim(name, rank, tokens, deadline_ns, memory_fd_out, call_out);
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
    return failure == ECONNREFUSED ? WEFTI_OUTCOME_ELSEWHERE
                                   : WEFTI_OUTCOME_SYSTEM;
}
