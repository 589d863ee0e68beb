/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/process_read.c - one system call for the data and the witness:
 * the kernel looks the process up once, so both are of the same one.
 */
#include "comm/fabric/process_read.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

int wefti_process_read(const wefti_witness *witness, void *dst, const void *src,
                       size_t bytes)
{
    uint64_t seen[WEFTI_WITNESS_WORDS] = {0};
    const struct iovec local[] = {{dst, bytes}, {seen, sizeof(seen)}};
    const struct iovec remote[] = {
        {(void *)(uintptr_t)src, bytes},
        {(void *)(uintptr_t)witness->address, sizeof(seen)}};
    /* It moves at most 2 GiB at once; no message is that large. */
    const ssize_t moved =
        process_vm_readv(witness->pid, local, 2, remote, 2, 0);
    if (moved < 0) {
        return errno;
    }
    if ((size_t)moved != bytes + sizeof(seen)) {
        return EFAULT;
    }
    return memcmp(seen, witness->words, sizeof(seen)) == 0 ? 0 : ESRCH;
}
