/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/process_read.h - read the memory of another process of this host
 * (process_vm_readv, "CMA"), and be sure that it is that process.
 */
#ifndef COMM_FABRIC_PROCESS_READ_H
#define COMM_FABRIC_PROCESS_READ_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { WEFTI_WITNESS_WORDS = 2 };

/*
 * Random words at an address of a process, in a page that its forked children
 * do not have. A pid may belong to another process by the time it is used:
 * the rank that reads these words with the data has read the process that it
 * meant.
 */
typedef struct wefti_witness {
    pid_t pid;
    uint64_t address;
    uint64_t words[WEFTI_WITNESS_WORDS];
} wefti_witness;

/*
 * wefti_process_read - dst = bytes from src on, an address of that process.
 *
 * Returns     0 | errno. ESRCH: the process has ended, or the pid is another
 *             one's by now; EFAULT: not all of it is memory that can be read
 *             so. dst then holds anything.
 */
int wefti_process_read(const wefti_witness *witness, void *dst, const void *src,
                       size_t bytes);

#endif
