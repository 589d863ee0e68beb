/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/launcher.c - the pipe of ended ranks, both ends.
 */
#include "comm/oob/launcher.h"

#include "base/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(wefti_ended) <= _POSIX_PIPE_BUF, "written whole");

/* As with the socket, the number may name anything by now: so it is checked,
 * and what is no pipe is not weft-run's. */
int wefti_launcher_find(void)
{
    int64_t fd = -1;
    struct stat about;
    if (!wefti_setting_given(WEFTI_SETTING_LAUNCHER_FD) ||
        wefti_setting_int(WEFTI_SETTING_LAUNCHER_FD, &fd) != WEFT_OK ||
        fstat((int)fd, &about) != 0 || !S_ISFIFO(about.st_mode)) {
        return -1;
    }
    (void)fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    (void)fcntl((int)fd, F_SETFL, O_NONBLOCK);
    return (int)fd;
}

bool wefti_launcher_next(int *fd, wefti_ended *ended_out)
{
    if (*fd < 0) {
        return false;
    }
    ssize_t got = read(*fd, ended_out, sizeof(*ended_out));
    if (got == (ssize_t)sizeof(*ended_out)) {
        return true;
    }
    if (got >= 0 || (errno != EAGAIN && errno != EINTR)) {
        *fd = -1;
    }
    return false;
}

bool wefti_launcher_write(int fd, const wefti_ended *ended)
{
    return write(fd, ended, sizeof(*ended)) == (ssize_t)sizeof(*ended);
}
