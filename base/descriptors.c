/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/descriptors.c - what a program that was started with closed standard
 * descriptors would otherwise have there; the soft limit, read anew each time.
 */
#include "base/descriptors.h"

#include "base/error.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

weft_status wefti_descriptors_reserve(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) {
            continue;
        }
        /* Inherited by what is executed: it would be as badly off. */
        int opened =
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        if (opened < 0) {
            return wefti_error_system("descriptor %d is closed, and /dev/null "
                                      "cannot take its place",
                                      fd);
        }
        if (opened != fd) { /* another thread was quicker */
            close(opened);
        }
    }
    return WEFT_OK;
}

weft_status wefti_descriptors_check(const char *what, int nranks,
                                    unsigned long long needed)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) {
        return WEFT_OK;
    }
    return wefti_error(WEFT_ERR_SYSTEM,
                       "the limit on open files (RLIMIT_NOFILE, ulimit -n) is "
                       "%llu; %s of %d ranks needs %llu",
                       (unsigned long long)limit.rlim_cur, what, nranks,
                       needed);
}
