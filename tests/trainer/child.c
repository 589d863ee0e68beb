/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/trainer/child.c - jobs in child processes.
 */
#include "tests/trainer/child.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static uint64_t hash(const void *bytes, size_t count)
{
    uint64_t value = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < count; i++) {
        value = (value ^ ((const unsigned char *)bytes)[i]) *
                UINT64_C(0x100000001b3);
    }
    return value;
}

static ending conclude(job_result *result)
{
    ending end = {.status = result->status,
                  .val_loss = result->val_loss,
                  .steps = result->steps,
                  .parameters = hash(result->parameters,
                                     result->parameter_count * sizeof(real))};
    end.loss = result->steps ? result->loss[result->steps - 1] : 0;
    snprintf(end.error, sizeof(end.error), "%.511s", result->error);
    job_result_fini(result);
    return end;
}

child child_start(scratch *own, const job *what)
{
    int ends[2];
    child out = {.pid = -1};
    scratch_require(pipe(ends) == 0, "pipe");
    out.pid = fork();
    scratch_require(out.pid >= 0, "fork");
    if (out.pid == 0) {
        close(ends[0]);
        job_result result = job_run(own, what);
        ending end = conclude(&result);
        ssize_t written = write(ends[1], &end, sizeof(end));
        _exit(written == (ssize_t)sizeof(end) ? 0 : 1);
    }
    close(ends[1]);
    out.pipe = ends[0];
    return out;
}

bool child_finish(child *process, ending *end_out)
{
    int status;
    ssize_t got = read(process->pipe, end_out, sizeof(*end_out));
    close(process->pipe);
    scratch_require(waitpid(process->pid, &status, 0) == process->pid,
                    "waitpid");
    return got == (ssize_t)sizeof(*end_out);
}

ending child_run(scratch *own, const job *what)
{
    ending end;
    child process = child_start(own, what);
    scratch_require(child_finish(&process, &end), "a job has died");
    return end;
}

void child_kill_after(scratch *own, const job *what, int64_t ns)
{
    struct timespec time = {ns / 1000000000, ns % 1000000000};
    ending ignored;
    child process = child_start(own, what);
    nanosleep(&time, NULL);
    kill(process.pid, SIGKILL);
    (void)child_finish(&process, &ignored);
}
