// SPDX-License-Identifier: BSD-3-Clause
/*
 * One question in a child process of its own process group: reads its facts
 * until the pipe ends, or the time is up and the group is killed. Processes
 * hold the pipe until they are gone, so its end means that all have ended.
 */
#include "facts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* For how long a killed question may take to be gone. */
#define GONE_US 3e6

struct intake {
    int fd;
    char line[2048];
    size_t used;
};

struct fact *findings_add(struct findings *all)
{
    if (all->nfacts == all->capacity) {
        all->capacity = all->capacity ? 2 * all->capacity : 64;
        all->facts =
            realloc(all->facts, (size_t)all->capacity * sizeof(*all->facts));
        if (!all->facts) {
            fprintf(stderr, "gpu-facts: out of memory\n");
            exit(1);
        }
    }
    struct fact *fact = &all->facts[all->nfacts++];
    memset(fact, 0, sizeof(*fact));
    return fact;
}

const char *findings_value(const struct findings *all, const char *name)
{
    for (int i = 0; i < all->nfacts; i++)
        if (strcmp(all->facts[i].name, name) == 0)
            return all->facts[i].value;
    return "";
}

static void take_line(const struct question *q, char *line,
                      struct findings *all)
{
    struct fact *fact = findings_add(all);
    struct {
        char *to;
        size_t room;
    } fields[] = {{fact->name, sizeof(fact->name)},
                  {fact->value, sizeof(fact->value)},
                  {fact->unit, sizeof(fact->unit)},
                  {fact->how, sizeof(fact->how)},
                  {fact->why_not, sizeof(fact->why_not)}};
    snprintf(fact->question, sizeof(fact->question), "%s", q->name);
    for (int i = 0; i < 5 && line; i++) {
        char *field = strsep(&line, "\t");
        snprintf(fields[i].to, fields[i].room, "%s", field);
    }
    fact_print(fact, stdout);
    fflush(stdout);
}

/* Takes what has arrived. Returns false once the pipe has ended. */
static bool take_facts(const struct question *q, struct intake *in,
                       struct findings *all)
{
    ssize_t got =
        read(in->fd, in->line + in->used, sizeof(in->line) - 1 - in->used);
    if (got <= 0)
        return got < 0 && errno == EINTR;
    in->used += (size_t)got;
    in->line[in->used] = 0;
    char *start = in->line, *end;
    while ((end = strchr(start, '\n'))) {
        *end = 0;
        take_line(q, start, all);
        start = end + 1;
    }
    in->used = strlen(start);
    memmove(in->line, start, in->used + 1);
    if (in->used == sizeof(in->line) - 1)
        in->used = 0; /* no fact is that long: what follows is its own line */
    return true;
}

/* Returns true once the pipe has ended, false once it is DEADLINE_US or a
 * signal has asked the whole program to stop. */
static bool take_until(const struct question *q, struct intake *in,
                       double deadline_us, struct findings *all)
{
    for (;;) {
        double left_us = deadline_us - now_us();
        if (left_us <= 0)
            return false;
        struct pollfd one = {in->fd, POLLIN, 0};
        int ready = poll(&one, 1, (int)(left_us / 1e3) + 1);
        if (ready < 0)
            return false;
        if (ready > 0 && !take_facts(q, in, all))
            return true;
    }
}

static _Noreturn void run_child(const struct question *q, int fd, int log_fd,
                                pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0); /* it ended before it could be watched */
    setpgid(0, 0);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    dup2(log_fd, 1);
    dup2(log_fd, 2);
    fact_open(fd);
    q->ask(q->variant);
    _exit(0);
}

static void describe_end(int status, bool in_time, double limit_s,
                         char outcome[128])
{
    if (!in_time)
        snprintf(outcome, 128, "stopped after its limit of %.0f s", limit_s);
    else if (WIFSIGNALED(status))
        snprintf(outcome, 128, "ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) == EXIT_GAVE_UP)
        snprintf(outcome, 128, "gave up");
    else if (WEXITSTATUS(status) != 0)
        snprintf(outcome, 128, "exit status %d", WEXITSTATUS(status));
    else
        snprintf(outcome, 128, "answered");
}

static void add_why_not(const struct question *q, const char *why,
                        struct findings *all)
{
    struct fact *fact = findings_add(all);
    snprintf(fact->question, sizeof(fact->question), "%s", q->name);
    snprintf(fact->name, sizeof(fact->name), "the_rest");
    snprintf(fact->why_not, sizeof(fact->why_not), "%s", why);
    fact_print(fact, stdout);
}

double ask_question(const struct question *q, double limit_s, int log_fd,
                    struct findings *all, char outcome[128])
{
    double start_us = now_us();
    int ends[2], status = 0;
    fflush(stdout);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        snprintf(outcome, 128, "pipe: %s", strerror(errno));
        return 0;
    }
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        run_child(q, ends[1], log_fd, parent);
    close(ends[1]);
    if (pid < 0) {
        snprintf(outcome, 128, "fork: %s", strerror(errno));
        close(ends[0]);
        return 0;
    }
    setpgid(pid, pid); /* as the child does: whoever comes first */
    struct intake in = {.fd = ends[0]};
    bool in_time = take_until(q, &in, start_us + limit_s * 1e6, all);
    kill(-pid, SIGKILL); /* a zombie keeps the group's number until then */
    bool gone = in_time || take_until(q, &in, now_us() + GONE_US, all);
    close(ends[0]);
    if (gone && waitpid(pid, &status, 0) == pid)
        describe_end(status, in_time, limit_s, outcome);
    else
        snprintf(outcome, 128, "process %d could not be ended", (int)pid);
    if (strcmp(outcome, "answered") != 0 && strcmp(outcome, "gave up") != 0)
        add_why_not(q, outcome, all);
    return (now_us() - start_us) / 1e6;
}
