// SPDX-License-Identifier: BSD-3-Clause
/*
 * A second process of one question. Both are ended with the question's process
 * group, so nothing here has a time limit of its own; when the other end is
 * gone, a question gives up at once.
 */
#include "facts.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

int peer_start(void (*body)(int fd, int variant), int variant)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        give_up("socketpair: %s", strerror(errno));
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        give_up("fork: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0); /* it ended before it could be watched */
        close(ends[0]);
        body(ends[1], variant);
        _exit(0);
    }
    close(ends[1]);
    return ends[0];
}

void peer_send(int fd, const void *data, size_t bytes)
{
    if (send(fd, data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
        give_up("the other process ended: %s", strerror(errno));
}

void peer_recv(int fd, void *data, size_t bytes)
{
    if (recv(fd, data, bytes, MSG_WAITALL) != (ssize_t)bytes)
        give_up("the other process ended before it had answered");
}

void peer_send_descriptor(int fd, int descriptor)
{
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one,
                             .msg_iovlen = 1,
                             .msg_control = room,
                             .msg_controllen = sizeof(room)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &descriptor, sizeof(int));
    if (sendmsg(fd, &message, MSG_NOSIGNAL) != 1)
        give_up("sendmsg of a descriptor: %s", strerror(errno));
}

int peer_recv_descriptor(int fd)
{
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one,
                             .msg_iovlen = 1,
                             .msg_control = room,
                             .msg_controllen = sizeof(room)};
    if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != 1)
        give_up("the other process ended before it had sent a descriptor");
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (!head || head->cmsg_type != SCM_RIGHTS)
        give_up("a message without the descriptor it should carry");
    int descriptor;
    memcpy(&descriptor, CMSG_DATA(head), sizeof(int));
    return descriptor;
}

void peer_meet(int fd)
{
    char byte = 1;
    peer_send(fd, &byte, 1);
    peer_recv(fd, &byte, 1);
}
