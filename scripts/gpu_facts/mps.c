// SPDX-License-Identifier: BSD-3-Clause
/*
 * An MPS daemon of our own, with pipes and logs in a private folder, so that
 * no other daemon is disturbed; it changes no setting of the card. It is asked
 * to quit at the end, and ended by its process group if it does not.
 */
#include "facts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM  "nvidia-cuda-mps-control"
#define START_US 8e6
#define QUIT_US  3e6

static pid_t daemon_pid;

/* Runs the control program with FLAG (or NULL) and INPUT on its stdin. OUT is
 * the descriptor of a pipe that ends when the program has ended. */
static pid_t run_control(const char *flag, const char *input, int *out)
{
    int in[2], ends[2];
    if (pipe2(in, O_CLOEXEC) != 0)
        return -1;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return -1;
    }
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
            _exit(127); /* it ended before it could be watched */
        setpgid(0, 0);
        dup2(in[0], 0);
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        execlp(PROGRAM, PROGRAM, flag, (char *)NULL);
        dprintf(2, "%s: %s", PROGRAM, strerror(errno));
        _exit(127);
    }
    close(in[0]);
    close(ends[1]);
    if (pid > 0 && write(in[1], input, strlen(input)) < 0)
        fprintf(stderr, "gpu-facts: " PROGRAM ": %s\n", strerror(errno));
    close(in[1]);
    *out = ends[0];
    if (pid < 0)
        close(ends[0]);
    return pid;
}

/* Reads the first bytes of FD into TEXT until it ends or LIMIT_US have passed.
 * Returns whether it ended. */
static bool read_all(int fd, double limit_us, char text[256])
{
    double deadline_us = now_us() + limit_us;
    size_t used = 0;
    text[0] = 0;
    for (;;) {
        double left_us = deadline_us - now_us();
        struct pollfd one = {fd, POLLIN, 0};
        char more[256];
        if (left_us <= 0 || poll(&one, 1, (int)(left_us / 1e3) + 1) <= 0)
            return false;
        ssize_t got = read(fd, more, sizeof(more));
        if (got <= 0)
            return true;
        for (ssize_t i = 0; i < got && used < 255; i++)
            text[used++] = more[i];
        text[used] = 0;
    }
}

/* Waits for PID, which LIMIT_US ends. The pipe from it tells when. */
static bool end_of(pid_t pid, int fd, double limit_us, char text[256])
{
    bool ended = read_all(fd, limit_us, text);
    close(fd);
    if (!ended)
        kill(-pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return ended;
}

static int daemon_out = -1;

bool mps_start(const char *dir, char why[256])
{
    char first[256];
    setenv("CUDA_MPS_PIPE_DIRECTORY", dir, 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", dir, 1);
    daemon_pid = run_control("-f", "", &daemon_out);
    if (daemon_pid < 0) {
        snprintf(why, 256, "%s: %s", PROGRAM, strerror(errno));
        goto err_env;
    }
    /* It is up once it answers; in the foreground it says nothing itself. */
    double deadline_us = now_us() + START_US;
    for (;;) {
        int out;
        if (read_all(daemon_out, 2e5, first)) {
            snprintf(why, 256, "%s", first[0] ? first : "it ended at once");
            goto err_daemon;
        }
        pid_t pid =
            run_control(NULL, "get_default_active_thread_percentage\n", &out);
        if (pid > 0 && end_of(pid, out, 2e6, why) && atof(why) > 0)
            return true;
        if (now_us() > deadline_us)
            break;
    }
    snprintf(why, 256, "the daemon did not answer within %.0f s",
             START_US / 1e6);
err_daemon:
    mps_stop();
err_env:
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    unsetenv("CUDA_MPS_LOG_DIRECTORY");
    return false;
}

void mps_stop(void)
{
    char text[256];
    int out;
    if (daemon_pid <= 0)
        return;
    pid_t pid = run_control(NULL, "quit -t 2\n", &out);
    if (pid > 0)
        end_of(pid, out, 3e6, text);
    if (!read_all(daemon_out, QUIT_US, text))
        kill(-daemon_pid, SIGTERM);
    end_of(daemon_pid, daemon_out, 1e6, text);
    daemon_pid = 0;
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    unsetenv("CUDA_MPS_LOG_DIRECTORY");
}
