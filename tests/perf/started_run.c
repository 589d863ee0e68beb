/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/perf/started_run.c - started, read, and waited for.
 */
#include "started_run.h"

#include "base/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { ARGS_MOST = 16, LIMIT_MS = 40000 };

static const char RUN[] = WEFT_RUN;

void run_start(run *r, const char *const *args)
{
    int out[2], err[2];
    memset(r, 0, sizeof(*r));
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    fflush(NULL);
    r->pid = fork();
    assert_true(r->pid >= 0);
    if (r->pid == 0) {
        const char *argv[ARGS_MOST + 1] = {"weft-run"};
        for (int i = 0; args[i] && i < ARGS_MOST - 1; i++) {
            argv[i + 1] = args[i];
        }
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        execv(RUN, (char **)(uintptr_t)argv);
        _exit(126);
    }
    close(out[1]);
    close(err[1]);
    r->fds[0] = out[0];
    r->fds[1] = err[0];
}

bool run_read_until(run *r, const char *text, int times)
{
    const int64_t until_ns = wefti_clock_ns() + LIMIT_MS * INT64_C(1000000);
    while (r->fds[0] >= 0 || r->fds[1] >= 0) {
        int seen = 0;
        for (const char *at = r->out; text && (at = strstr(at, text)); at++) {
            seen++;
        }
        if (text && seen >= times) {
            return true;
        }
        struct pollfd wait[2] = {{.fd = r->fds[0], .events = POLLIN},
                                 {.fd = r->fds[1], .events = POLLIN}};
        assert_true(wefti_clock_ns() < until_ns);
        (void)poll(wait, 2, 1000);
        for (int i = 0; i < 2; i++) {
            char *room = i ? r->err : r->out;
            size_t *used = i ? &r->err_bytes : &r->out_bytes;
            if (wait[i].fd < 0 || !wait[i].revents) {
                continue;
            }
            ssize_t got =
                read(wait[i].fd, room + *used, RUN_OUTPUT_BYTES - 1 - *used);
            if (got <= 0) {
                close(r->fds[i]);
                r->fds[i] = -1;
            } else {
                *used += (size_t)got;
            }
        }
    }
    return false;
}

int run_end(run *r)
{
    (void)run_read_until(r, NULL, 0);
    assert_int_equal(waitpid(r->pid, &r->status, 0), r->pid);
    return WIFEXITED(r->status) ? WEXITSTATUS(r->status)
                                : 1000 + WTERMSIG(r->status);
}

int run_all(run *r, const char *const *args)
{
    run_start(r, args);
    return run_end(r);
}

void assert_last_line(const run *r, const char *expected)
{
    size_t bytes = strlen(r->err), wanted = strlen(expected);
    if (bytes <= wanted || r->err[bytes - 1] != '\n' ||
        strncmp(r->err + bytes - 1 - wanted, expected, wanted) != 0) {
        print_message("stderr: %s\nexpected: %s\n", r->err, expected);
        fail();
    }
    /* And nothing before it on its line. */
    assert_true(bytes == wanted + 1 || r->err[bytes - 2 - wanted] == '\n');
}
