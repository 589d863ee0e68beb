/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/confine.c - confine ptrace|pidfd|futex PROGRAM ARGS...: runs
 * PROGRAM as a container's seccomp profile would: system calls that look into
 * other processes (ptrace: ptrace, process_vm_readv, process_vm_writev,
 * pidfd_getfd, kcmp; pidfd: pidfd_open too), or that older profiles do not know
 * (futex: futex_waitv), fail with EPERM.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CALLS_MOST = 8, FAILED = 126 };

int main(int argc, char **argv)
{
    int calls[CALLS_MOST] = {SYS_ptrace, SYS_process_vm_readv,
                             SYS_process_vm_writev, SYS_pidfd_getfd, SYS_kcmp};
    size_t count = 5;
    if (argc < 3) {
        fprintf(stderr, "usage: confine ptrace|pidfd|futex PROGRAM ARGS...\n");
        return FAILED;
    }
    if (strcmp(argv[1], "pidfd") == 0) {
        calls[count++] = SYS_pidfd_open;
    } else if (strcmp(argv[1], "futex") == 0) {
        calls[0] = SYS_futex_waitv;
        count = 1;
    }
    struct sock_filter rules[2 * CALLS_MOST + 2] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    size_t used = 1;
    for (size_t i = 0; i < count; i++) {
        rules[used++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                                     (unsigned)calls[i], 0, 1);
        rules[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
                                                     SECCOMP_RET_ERRNO | EPERM);
    }
    rules[used++] =
        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)used, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("seccomp");
        return FAILED;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return FAILED;
}
