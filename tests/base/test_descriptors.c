/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: closed standard descriptors are taken by /dev/null, open ones are left
 * alone, and neither reads nor writes succeed where they failed before.
 *
 * Method: a child for each subset of the three, which closes them and checks.
 */
#include "base/descriptors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_dead_end(int fd)
{
    char byte = 0;
    struct stat about, null;
    bool same = fstat(fd, &about) == 0 && stat("/dev/null", &null) == 0 &&
                S_ISCHR(about.st_mode) && about.st_rdev == null.st_rdev;
    ssize_t moved = fd == 0 ? read(fd, &byte, 1) : write(fd, &byte, 1);
    return same && moved < 0 && errno == EBADF;
}

/* The child's exit status: 0 if all is as it should be. */
static int close_and_check(int closed_mask)
{
    struct stat before[3], after;
    for (int fd = 0; fd < 3; fd++) {
        if (fstat(fd, &before[fd]) != 0) {
            return 10 + fd;
        }
        if (closed_mask >> fd & 1) {
            close(fd);
        }
    }
    if (wefti_descriptors_reserve() != WEFT_OK) {
        return 20;
    }
    for (int fd = 0; fd < 3; fd++) {
        if (closed_mask >> fd & 1
                ? !is_dead_end(fd)
                : fstat(fd, &after) != 0 || after.st_ino != before[fd].st_ino ||
                      after.st_dev != before[fd].st_dev) {
            return 30 + fd;
        }
    }
    return dup(0) > 2 && wefti_descriptors_reserve() == WEFT_OK ? 0 : 40;
}

static void test_descriptors_closed_ones_are_reserved(void **state)
{
    (void)state;
    for (int mask = 0; mask < 8; mask++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            _exit(close_and_check(mask));
        }
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptors_closed_ones_are_reserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
