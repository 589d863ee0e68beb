/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/tcp_visitors.c - accepting, and hearing a greeting out.
 */
#include "comm/net/tcp_visitors.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

void wefti_tcp_visitors_init(wefti_tcp_visitors *visitors)
{
    visitors->seen = 0;
    for (int i = 0; i < WEFTI_TCP_VISITORS; i++) {
        visitors->list[i] = (wefti_tcp_visitor){.fd = -1};
    }
}

void wefti_tcp_visitors_fini(wefti_tcp_visitors *visitors)
{
    for (int i = 0; i < WEFTI_TCP_VISITORS; i++) {
        wefti_tcp_visitors_dismiss(visitors, i);
    }
}

/* A free place, or that of the oldest. */
static int make_room(wefti_tcp_visitors *visitors)
{
    int oldest = 0;
    for (int i = 0; i < WEFTI_TCP_VISITORS; i++) {
        if (visitors->list[i].fd < 0) {
            return i;
        }
        if (visitors->list[i].number < visitors->list[oldest].number) {
            oldest = i;
        }
    }
    wefti_tcp_visitors_dismiss(visitors, oldest);
    return oldest;
}

int wefti_tcp_visitors_accept(wefti_tcp_visitors *visitors, int listen_fd)
{
    const int on = 1;
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return -1;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const int index = make_room(visitors);
    visitors->list[index] =
        (wefti_tcp_visitor){.fd = fd, .number = ++visitors->seen};
    return index;
}

const wefti_tcp_hello *wefti_tcp_visitors_hear(wefti_tcp_visitors *visitors,
                                               int index)
{
    wefti_tcp_visitor *one = &visitors->list[index];
    if (one->fd < 0) {
        return NULL; /* dismissed since it was called */
    }
    unsigned char *at = (unsigned char *)&one->said + one->got_bytes;
    ssize_t got =
        recv(one->fd, at, sizeof(one->said) - one->got_bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return NULL;
    }
    if (got <= 0) {
        wefti_tcp_visitors_dismiss(visitors, index);
        return NULL;
    }
    one->got_bytes += (size_t)got;
    return one->got_bytes == sizeof(one->said) ? &one->said : NULL;
}

int wefti_tcp_visitors_take(wefti_tcp_visitors *visitors, int index)
{
    const int fd = visitors->list[index].fd;
    visitors->list[index].fd = -1;
    return fd;
}

void wefti_tcp_visitors_dismiss(wefti_tcp_visitors *visitors, int index)
{
    wefti_tcp_visitor *one = &visitors->list[index];
    if (one->fd >= 0) {
        close(one->fd);
        one->fd = -1;
    }
}
