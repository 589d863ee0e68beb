/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a stopped process is known as such, one that runs, sleeps or has ended
 * is not, whatever its name.
 *
 * Method: a child that waits for a byte; the kernel says by waitid when it has
 * stopped, gone on, ended.
 */
#include "base/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void await(pid_t pid, int what)
{
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, what), 0);
}

static void test_process_stopped_is_known(void **state)
{
    (void)state;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_NAME, "a) T (b)");
        for (;;) {
            pause();
        }
    }
    const int pidfd = pidfd_open(pid, 0);
    assert_true(pidfd >= 0);
    for (int i = 0; i < 3; i++) {
        assert_false(wefti_process_is_stopped(pidfd));
        assert_int_equal(kill(pid, SIGSTOP), 0);
        await(pid, WSTOPPED);
        assert_true(wefti_process_is_stopped(pidfd));
        assert_int_equal(kill(pid, SIGCONT), 0);
        await(pid, WCONTINUED);
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    await(pid, WEXITED | WNOWAIT);
    assert_false(wefti_process_is_stopped(pidfd)); /* a zombie */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(wefti_process_is_stopped(pidfd));
    close(pidfd);
    assert_false(wefti_process_is_stopped(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_process_stopped_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
