/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/descriptors.c - what a program that was started with closed standard
 * descriptors would otherwise have there.
 */
#include "base/descriptors.h"

#include "base/error.h"

#include <fcntl.h>
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
