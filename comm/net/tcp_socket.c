/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/tcp_socket.c - IPv4, as comm/net/interface.h lists addresses.
 */
#include "comm/net/tcp_socket.h"

#include "comm/net/interface.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* false: the interface has no address; errno says why. */
static bool find_address(const char *interface_name, uint32_t *address_out)
{
    wefti_interface list[WEFTI_INTERFACES_MOST];
    int count;
    if (wefti_interface_list(list, &count) != WEFT_OK) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (strcmp(list[i].name, interface_name) == 0) {
            *address_out = list[i].address;
            return true;
        }
    }
    errno = ENODEV;
    return false;
}

static int send_at_once(int fd)
{
    const int on = 1;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static int create(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && send_at_once(fd) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

const char *wefti_tcp_socket_listen(const char *interface_name, int *fd_out,
                                    wefti_tcp_address *address_out)
{
    struct sockaddr_in own = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(own);
    *fd_out = -1;
    if (!find_address(interface_name, &own.sin_addr.s_addr)) {
        return "getifaddrs";
    }
    const int fd = create();
    if (fd < 0) {
        return "socket";
    }
    *fd_out = fd;
    if (bind(fd, (const void *)&own, sizeof(own)) != 0) {
        return "bind";
    }
    if (listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, (void *)&own, &bytes) != 0) {
        return "listen";
    }
    *address_out = (wefti_tcp_address){.magic = WEFTI_TCP_MAGIC,
                                       .address = own.sin_addr.s_addr,
                                       .port = own.sin_port};
    return NULL;
}

int wefti_tcp_socket_connect(const wefti_tcp_address *from,
                             const wefti_tcp_address *to)
{
    const struct sockaddr_in there = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = to->address,
                                      .sin_port = to->port};
    const struct sockaddr_in here = {.sin_family = AF_INET,
                                     .sin_addr.s_addr = from->address};
    const int fd = create();
    if (fd >= 0 && (bind(fd, (const void *)&here, sizeof(here)) != 0 ||
                    (connect(fd, (const void *)&there, sizeof(there)) != 0 &&
                     errno != EINPROGRESS))) {
        const int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

int wefti_tcp_socket_accept(int listen_fd)
{
    const int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        (void)send_at_once(fd); /* else it is slower, and works */
    }
    return fd;
}
