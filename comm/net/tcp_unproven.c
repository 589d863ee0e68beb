/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/tcp_unproven.c - accepting, and reading a greeting.
 */
#include "comm/net/tcp_unproven.h"

#include "comm/net/tcp_socket.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

void wefti_tcp_unproven_init(wefti_tcp_unproven *unproven)
{
    unproven->seen = 0;
    for (int i = 0; i < WEFTI_TCP_UNPROVEN_MOST; i++) {
        unproven->list[i] = (wefti_tcp_unproven_peer){.fd = -1};
    }
}

void wefti_tcp_unproven_fini(wefti_tcp_unproven *unproven)
{
    for (int i = 0; i < WEFTI_TCP_UNPROVEN_MOST; i++) {
        wefti_tcp_unproven_close(unproven, i);
    }
}

/* A free place, or that of the oldest. */
static int make_room(wefti_tcp_unproven *unproven)
{
    int oldest = 0;
    for (int i = 0; i < WEFTI_TCP_UNPROVEN_MOST; i++) {
        if (unproven->list[i].fd < 0) {
            return i;
        }
        if (unproven->list[i].number < unproven->list[oldest].number) {
            oldest = i;
        }
    }
    wefti_tcp_unproven_close(unproven, oldest);
    return oldest;
}

int wefti_tcp_unproven_accept(wefti_tcp_unproven *unproven, int listen_fd)
{
    const int fd = wefti_tcp_socket_accept(listen_fd);
    if (fd < 0) {
        return -1;
    }
    const int index = make_room(unproven);
    unproven->list[index] =
        (wefti_tcp_unproven_peer){.fd = fd, .number = ++unproven->seen};
    return index;
}

const wefti_tcp_hello *wefti_tcp_unproven_read(wefti_tcp_unproven *unproven,
                                               int index)
{
    wefti_tcp_unproven_peer *one = &unproven->list[index];
    if (one->fd < 0) {
        return NULL; /* closed since it became readable */
    }
    unsigned char *at = (unsigned char *)&one->hello + one->got_bytes;
    ssize_t got =
        recv(one->fd, at, sizeof(one->hello) - one->got_bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return NULL;
    }
    if (got <= 0) {
        wefti_tcp_unproven_close(unproven, index);
        return NULL;
    }
    one->got_bytes += (size_t)got;
    return one->got_bytes == sizeof(one->hello) ? &one->hello : NULL;
}

int wefti_tcp_unproven_take(wefti_tcp_unproven *unproven, int index)
{
    const int fd = unproven->list[index].fd;
    unproven->list[index].fd = -1;
    return fd;
}

void wefti_tcp_unproven_close(wefti_tcp_unproven *unproven, int index)
{
    wefti_tcp_unproven_peer *one = &unproven->list[index];
    if (one->fd >= 0) {
        close(one->fd);
        one->fd = -1;
    }
}
