/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/run_watch.c - sees a job through to its end.
 *
 *     RUN   all is well, or has ended well
 *     WAIT  a rank has failed: the others may still report what they saw
 *     TERM  SIGTERM has been sent: they may clean up
 *     KILL  SIGKILL has been sent
 *
 * Which rank failed first: the kernel keeps the sender of the first SIGCHLD
 * that is pending, so of several that are found dead at once it is that one;
 * failing that one killed by a signal, for survivors leave by exit. One that
 * left by exit may then blame another on the board (run_report_blame).
 */
#include "perf/run_job.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/oob/launcher.h"
#include "perf/run_label.h"
#include "perf/run_report.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WAIT_MS = 2000,
    TERM_MS = 2000,
    STAND_IN_TRIES = 100,
    STAND_IN_MS = 20 /* between tries */
};

typedef enum stage { STAGE_RUN, STAGE_WAIT, STAGE_TERM, STAGE_KILL } stage;

typedef struct watch {
    run_job *job;
    stage stage;
    bool ending;         /* the ranks have been asked to end */
    int64_t due_ns;      /* of the next stage; INT64_MAX: never */
    run_outlet *outlets; /* stdout, stderr; NULL without --label */
    run_feed *feeds;     /* two per process */
    int feed_count;
    struct pollfd *polled; /* signals, starts, outlets, feeds */
    int stand_in_tries;    /* that are left to serve in rank 0's place */
} watch;

enum { POLL_SIGNALS, POLL_STARTS, POLL_OUTLETS, POLL_FEEDS = POLL_OUTLETS + 2 };

static void enter_stage(watch *self, stage next, int64_t for_ms)
{
    self->stage = next;
    self->due_ns =
        for_ms < 0 ? INT64_MAX : wefti_clock_ns() + for_ms * INT64_C(1000000);
}

static void enter_term(watch *self)
{
    run_job_signal(self->job, SIGTERM);
    enter_stage(self, STAGE_TERM, TERM_MS);
}

/* The time of a stage is over. */
static void advance(watch *self)
{
    switch (self->stage) {
    case STAGE_RUN:
        self->job->timed_out = true;
        enter_term(self);
        break;
    case STAGE_WAIT:
        enter_term(self);
        break;
    case STAGE_TERM:
        run_job_signal(self->job, SIGKILL);
        enter_stage(self, STAGE_KILL, -1);
        break;
    case STAGE_KILL:
        break;
    }
}

static int find_process(const run_job *job, pid_t pid)
{
    for (int i = 0; i < job->process_count; i++) {
        if (job->processes[i].running && job->processes[i].pid == pid) {
            return i;
        }
    }
    return -1;
}

/* Whether process a is a better answer than b to "who failed first". */
static bool failed_before(const run_job *job, int a, int b, pid_t first_pid)
{
    if (b < 0 || job->processes[a].pid == first_pid) {
        return true;
    }
    return job->processes[b].pid != first_pid &&
           WIFSIGNALED(job->processes[a].wait_status) &&
           WIFEXITED(job->processes[b].wait_status);
}

/* One of an elastic job is lost. */
static void tell_loss(const run_job *job, int index)
{
    char text[RUN_REPORT_BYTES];
    run_report_failure(job, index, text);
    fprintf(stderr, "weft-run: %s%s\n", text,
            job->running_count > 0 ? "; the others go on" : "");
}

/* Rank 0 has ended, and nobody serves the meeting any more, unless it has left
 * somebody behind: then the address stays taken, and all is as it was. It is
 * also while others stand between fork and exec. */
static void stand_in(watch *self)
{
    run_job *job = self->job;
    const run_options *options = job->options;
    weft_status status =
        options->emulates
            ? net_emulation_enter_network(&job->net, options->node_of[0])
            : WEFT_OK;
    if (status == WEFT_OK) {
        status = run_stand_in_start(&job->stand_in, options->nranks,
                                    job->ended_fds[0]);
    }
    if (options->emulates) {
        weft_status back = net_emulation_return(&job->net);
        status = status == WEFT_OK ? back : status;
    }
    self->stand_in_tries = status == WEFT_OK ? 0 : self->stand_in_tries - 1;
}

/* The ranks that meet do not wait for one that has gone before. */
static void tell_ended(const run_job *job, int index)
{
    const int count = job->options->ranks_per_process;
    const wefti_ended ended = {.first = index * count,
                               .count = count,
                               .wait_status =
                                   job->processes[index].wait_status};
    /* A pipe that is full is one that nobody reads: rank 0 has gone. */
    (void)wefti_launcher_write(job->ended_fds[1], &ended);
}

/* first_pid: who died first of those not yet waited for; 0: not known. */
static void reap(watch *self, pid_t first_pid)
{
    run_job *job = self->job;
    int failed = -1, wait_status;
    pid_t pid;
    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        int index = find_process(job, pid);
        if (index < 0) {
            continue; /* a child from before weft-run's own exec */
        }
        job->processes[index].running = false;
        job->processes[index].wait_status = wait_status;
        job->running_count--;
        tell_ended(job, index);
        if (index == 0) {
            self->stand_in_tries = STAND_IN_TRIES;
        }
        if (!run_job_is_failure(wait_status)) {
            continue;
        }
        if (failed_before(job, index, failed, first_pid)) {
            failed = index;
        }
        /* Where nobody ends well the last line tells of the last one. */
        bool only = job->first_failed < 0 && job->running_count == 0 &&
                    !run_job_has_good(job);
        if (job->options->elastic && self->stage == STAGE_RUN &&
            !self->ending && !only) {
            tell_loss(job, index);
        }
    }
    if (failed < 0 || self->stage != STAGE_RUN) {
        return;
    }
    if (job->first_failed < 0) {
        job->first_failed = failed;
    }
    if (!job->options->elastic) {
        enter_stage(self, STAGE_WAIT, WAIT_MS);
    }
}

static void hear_signals(watch *self)
{
    struct signalfd_siginfo info;
    while (read(self->job->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGCHLD) {
            reap(self, (pid_t)info.ssi_pid);
        } else if (info.ssi_code != SI_KERNEL) {
            /* What the terminal sends, it sends to the ranks as well. */
            run_job_signal(self->job, (int)info.ssi_signo);
            self->ending = self->ending || info.ssi_signo == SIGTERM ||
                           info.ssi_signo == SIGINT || info.ssi_signo == SIGHUP;
        }
    }
}

/* A child could not become PROGRAM: neither will the others. */
static void hear_starts(watch *self)
{
    struct {
        const char *stage;
        int error_number;
    } failure;
    ssize_t got = read(self->job->start_fd, &failure, sizeof(failure));
    if (got == sizeof(failure) && !self->job->failure_stage) {
        self->job->failure_stage = failure.stage;
        self->job->failure_errno = failure.error_number;
        enter_term(self);
    } else if (got == 0) {
        close(self->job->start_fd);
        self->job->start_fd = -1;
    }
}

static nfds_t fill_polled(watch *self)
{
    struct pollfd *polled = self->polled;
    polled[POLL_SIGNALS] =
        (struct pollfd){.fd = self->job->signal_fd, .events = POLLIN};
    polled[POLL_STARTS] =
        (struct pollfd){.fd = self->job->start_fd, .events = POLLIN};
    for (int i = 0; i < 2; i++) {
        bool idle = !self->outlets || run_outlet_is_empty(&self->outlets[i]);
        polled[POLL_OUTLETS + i] = (struct pollfd){
            .fd = idle ? -1 : self->outlets[i].fd, .events = POLLOUT};
    }
    for (int i = 0; i < self->feed_count; i++) {
        const run_feed *feed = &self->feeds[i];
        polled[POLL_FEEDS + i] = (struct pollfd){
            .fd = run_outlet_has_room(feed->outlet) ? *feed->fd : -1,
            .events = POLLIN};
    }
    return (nfds_t)(POLL_FEEDS + self->feed_count);
}

static void attend_output(watch *self)
{
    for (int i = 0; i < 2; i++) {
        if (self->polled[POLL_OUTLETS + i].revents) {
            run_outlet_flush(&self->outlets[i]);
        }
    }
    for (int i = 0; i < self->feed_count; i++) {
        run_feed *feed = &self->feeds[i];
        if (self->polled[POLL_FEEDS + i].revents &&
            run_outlet_has_room(feed->outlet)) {
            run_feed_pump(feed);
        }
    }
}

static void attend(watch *self, int timeout_ms)
{
    if (poll(self->polled, fill_polled(self), timeout_ms) <= 0) {
        return;
    }
    if (self->polled[POLL_STARTS].revents) {
        hear_starts(self);
    }
    if (self->polled[POLL_SIGNALS].revents) {
        hear_signals(self);
    }
    attend_output(self);
}

static int wait_ms(const watch *self)
{
    if (self->stand_in_tries > 0) {
        return STAND_IN_MS;
    }
    if (self->due_ns == INT64_MAX) {
        return -1;
    }
    int64_t left_ns = self->due_ns - wefti_clock_ns();
    int64_t left_ms = left_ns > 0 ? left_ns / 1000000 + 1 : 0;
    return left_ms < 3600000 ? (int)left_ms : 3600000;
}

/* All ranks have ended, and what they left behind: what the pipes still hold.
 */
static void drain(watch *self)
{
    bool more = true;
    while (more) {
        attend(self, 0);
        more = false;
        for (int i = 0; i < self->feed_count; i++) {
            more = more || (self->polled[POLL_FEEDS + i].revents &&
                            *self->feeds[i].fd >= 0);
        }
        for (int i = 0; i < 2 && self->outlets; i++) {
            if (!run_outlet_is_empty(&self->outlets[i])) {
                struct pollfd wait = {.fd = self->outlets[i].fd,
                                      .events = POLLOUT};
                (void)poll(&wait, 1, -1);
                more = true;
            }
        }
    }
}

static bool make_labels(watch *self)
{
    run_job *job = self->job;
    const int per_process = job->options->ranks_per_process;
    if (!job->options->label) {
        return true;
    }
    self->outlets = calloc(2, sizeof(*self->outlets));
    self->feeds = calloc(2 * (size_t)job->process_count, sizeof(*self->feeds));
    if (!self->outlets || !self->feeds) {
        return false;
    }
    self->outlets[0].fd = STDOUT_FILENO;
    self->outlets[1].fd = STDERR_FILENO;
    self->feed_count = 2 * job->process_count;
    WEFTI_ASSERT(job->process_count > 0);
    for (int i = 0; i < job->process_count; i++) {
        run_process *process = &job->processes[i];
        const int first = i * per_process, last = first + per_process - 1;
        run_feed_init(&self->feeds[2 * i], &process->out_fd, &self->outlets[0],
                      first, last);
        run_feed_init(&self->feeds[2 * i + 1], &process->err_fd,
                      &self->outlets[1], first, last);
    }
    return true;
}

weft_status run_job_watch(run_job *job)
{
    watch self = {.job = job};
    const size_t polled_most = POLL_FEEDS + 2 * (size_t)job->process_count;
    const int64_t limit_ms = job->options->timeout_ms;
    weft_status status = WEFT_OK;
    enter_stage(&self, STAGE_RUN, limit_ms > 0 ? limit_ms : -1);
    self.polled = calloc(polled_most, sizeof(*self.polled));
    if (!self.polled || !make_labels(&self)) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "labels of %d processes",
                             job->process_count);
        run_job_signal(job, SIGKILL);
    }
    while (status == WEFT_OK && job->running_count > 0) {
        if (self.stand_in_tries > 0) {
            stand_in(&self);
        }
        attend(&self, wait_ms(&self));
        if (wefti_clock_ns() >= self.due_ns) {
            advance(&self);
        }
    }
    run_orphans_end(&job->strangers);
    if (status == WEFT_OK) {
        drain(&self);
        if (job->start_fd >= 0) {
            hear_starts(&self);
        }
    }
    if (self.outlets) {
        job->output_errno = self.outlets[0].lost_errno;
    }
    job->end_ns = wefti_clock_ns();
    free(self.polled);
    free(self.outlets);
    free(self.feeds);
    return status;
}
