/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/run_job.h - a job of weft-run: its processes, and how each has ended.
 */
#ifndef PERF_RUN_JOB_H
#define PERF_RUN_JOB_H

#include "base/memory_limit.h"
#include "comm/core/board.h"
#include "perf/run_options.h"
#include "perf/run_orphans.h"
#include "perf/run_stand_in.h"

#include <sys/types.h>

/*
 * pid          0: not started
 * out_fd       with --label: what it prints; -1: closed, or not piped
 * running      started and not yet waited for
 * wait_status  of waitpid, once it has ended
 */
typedef struct run_process {
    pid_t pid;
    int out_fd, err_fd;
    bool running;
    int wait_status;
} run_process;

/*
 * failure_stage  of a child that never became PROGRAM: what it was doing;
 *                NULL: none failed so
 */
typedef struct run_job {
    const run_options *options;
    int process_count;
    run_process *processes;
    wefti_board_line *board; /* [nranks] */
    int board_fd;
    net_emulation net; /* with options->emulates */
    int signal_fd;     /* SIGCHLD and those that are forwarded */
    int start_fd;      /* children report here that they could not start */
    int ended_fds[2];  /* a pipe, from which rank 0 reads who has ended */
    run_stand_in stand_in;
    int running_count;
    int first_failed; /* a process; -1: none */
    bool timed_out;
    const char *failure_stage;
    int failure_errno;
    int output_errno; /* why labelled output was lost; 0: it was not */
    run_strangers strangers;
    int64_t start_ns, end_ns;
    wefti_memory_limit memory; /* as it was at the start */
} run_job;

/*
 * run_job_start - start all processes.
 *
 * From here on the forwarded signals and SIGCHLD are blocked in this process.
 *
 * Returns     OK | ERR_SYSTEM | ERR_NO_MEMORY: no process is left behind.
 */
WEFT_NODISCARD weft_status run_job_start(const run_options *options,
                                         run_job *job_out);

/* Sees the job through: returns when every process has ended. */
WEFT_NODISCARD weft_status run_job_watch(run_job *job);

void run_job_fini(run_job *job);

/* Sends a signal to all that run. */
void run_job_signal(const run_job *job, int number);

/* Whether a wait status is a failure. */
bool run_job_is_failure(int wait_status);

/* Whether a process that has ended has ended well. */
bool run_job_has_good(const run_job *job);

#endif
