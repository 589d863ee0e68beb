/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/process.h - what the kernel says of another process.
 */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stdbool.h>

/*
 * wefti_process_is_stopped - whether a signal (SIGSTOP, SIGTSTP) or a debugger
 * has stopped the process of pidfd.
 *
 * Returns     false as well where /proc is not there or does not show it.
 * Threads     any.  Blocks: no.  Allocates: what stdio does.
 */
bool wefti_process_is_stopped(int pidfd);

#endif
