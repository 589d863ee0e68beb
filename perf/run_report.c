/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/run_report.c - reads the board and the wait statuses.
 */
#include "perf/run_report.h"

#include "base/error.h"
#include "base/json.h"
#include "base/output.h"
#include "comm/oob/ranks.h"
#include "weft/version.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { EXIT_TIMED_OUT = 124, EXIT_CANNOT_RUN = 127 };

static uint64_t op_number(const wefti_board_line *line)
{
    return atomic_load_explicit(&line->op_number, memory_order_relaxed);
}

void run_report_place(const run_job *job, int rank,
                      char text_out[RUN_PLACE_BYTES])
{
    const wefti_board_line *line = &job->board[rank];
    char name[32], text[96];
    const char *what;
    wefti_board_get_name(line, name);
    wefti_board_get_text(line, text, sizeof(text), &what);
    if (op_number(line) == 0) {
        snprintf(text_out, RUN_PLACE_BYTES, "before any operation");
    } else {
        snprintf(text_out, RUN_PLACE_BYTES, "after %s on \"%s\"", text, name);
    }
}

static const char *signal_text(int number, char *room, size_t room_bytes)
{
    const char *name = sigabbrev_np(number);
    if (name) {
        snprintf(room, room_bytes, "SIG%s", name);
    } else {
        snprintf(room, room_bytes, "signal %d", number);
    }
    return room;
}

void run_report_failure(const run_job *job, int index,
                        char text_out[RUN_REPORT_BYTES])
{
    const int per_process = job->options->ranks_per_process;
    const int first = index * per_process;
    const int status = job->processes[index].wait_status;
    char place[RUN_PLACE_BYTES], how[32], who[40];
    run_report_place(job, first, place);
    if (WIFSIGNALED(status)) {
        signal_text(WTERMSIG(status), how, sizeof(how));
    } else {
        snprintf(how, sizeof(how), "exit %d", WEXITSTATUS(status));
    }
    if (per_process == 1) {
        snprintf(who, sizeof(who), "rank %d", first);
    } else {
        snprintf(who, sizeof(who), "ranks %d-%d", first,
                 first + per_process - 1);
    }
    snprintf(text_out, RUN_REPORT_BYTES, "%s: %s %s", who, how, place);
}

/* All ranks that are at the place of rank, and mark them as told. */
static int tell_place(const run_job *job, int rank, bool *told, char *text,
                      size_t room)
{
    char place[RUN_PLACE_BYTES], other[RUN_PLACE_BYTES];
    char who[WEFTI_RANKS_TEXT_BYTES];
    const int nranks = job->options->nranks;
    bool here[RUN_RANKS_MOST] = {false};
    run_report_place(job, rank, place);
    for (int i = rank; i < nranks; i++) {
        run_report_place(job, i, other);
        here[i] = !told[i] && strcmp(place, other) == 0;
        told[i] = told[i] || here[i];
    }
    (void)wefti_ranks_text(here, nranks, true, who);
    return snprintf(text, room, "%s%s %s", rank == 0 ? "" : "; ", who, place);
}

static void describe_timeout(const run_job *job, char *text_out)
{
    bool told[RUN_RANKS_MOST] = {false};
    size_t used = (size_t)snprintf(
        text_out, RUN_REPORT_BYTES,
        "timeout after %g s: ", (double)job->options->timeout_ms / 1000);
    for (int rank = 0; rank < job->options->nranks; rank++) {
        size_t room = RUN_REPORT_BYTES - used;
        if (!told[rank] && room > 2 * RUN_PLACE_BYTES) {
            used += (size_t)tell_place(job, rank, told, text_out + used, room);
        }
    }
}

/* An elastic job has not, once a rank has ended well. */
static bool has_failed(const run_job *job)
{
    return job->first_failed >= 0 &&
           !(job->options->elastic && run_job_has_good(job));
}

/*
 * Who began it: a rank that has failed because another one did says which. One
 * that was killed has no say, and one that did not fail of itself no fault.
 */
static int find_first(const run_job *job)
{
    const int per_process = job->options->ranks_per_process;
    int index = job->first_failed;
    for (int i = 0; i < job->process_count; i++) {
        const wefti_board_line *line = &job->board[index * per_process];
        uint32_t blamed =
            atomic_load_explicit(&line->blamed, memory_order_relaxed);
        if (WIFSIGNALED(job->processes[index].wait_status) || blamed == 0 ||
            blamed > (uint32_t)job->options->nranks) {
            break;
        }
        int next = (int)(blamed - 1) / per_process;
        int status = job->processes[next].wait_status;
        if (WIFSIGNALED(status) || !run_job_is_failure(status)) {
            break;
        }
        index = next;
    }
    return index;
}

void run_report_blame(run_job *job)
{
    if (job->first_failed >= 0 && !job->options->elastic) {
        job->first_failed = find_first(job);
    }
}

void run_report_last_line(const run_job *job, char text_out[RUN_REPORT_BYTES])
{
    char reason[96];
    text_out[0] = '\0';
    if (job->failure_stage) {
        snprintf(text_out, RUN_REPORT_BYTES, "cannot %s %s: %s",
                 job->failure_stage, job->options->program[0],
                 strerror_r(job->failure_errno, reason, sizeof(reason)));
    } else if (has_failed(job)) {
        run_report_failure(job, job->first_failed, text_out);
    } else if (job->timed_out) {
        describe_timeout(job, text_out);
    }
}

void run_report_memory(const run_job *job, char text_out[RUN_REPORT_BYTES])
{
    wefti_memory_limit now;
    wefti_memory_limit_read("", &now);
    text_out[0] = '\0';
    if (now.file[0] && now.kills > job->memory.kills) {
        snprintf(text_out, RUN_REPORT_BYTES,
                 "the kernel has ended processes for want of memory: raise %s, "
                 "now %llu bytes",
                 now.file, (unsigned long long)now.bytes);
    }
}

int run_report_exit_status(const run_job *job)
{
    if (job->failure_stage) {
        return EXIT_CANNOT_RUN;
    }
    if (has_failed(job)) {
        int status = job->processes[job->first_failed].wait_status;
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                   : WEXITSTATUS(status);
    }
    return job->timed_out ? EXIT_TIMED_OUT : 0;
}

static void write_rank(wefti_json *json, const run_job *job, int rank)
{
    const run_process *process =
        &job->processes[rank / job->options->ranks_per_process];
    const wefti_board_line *line = &job->board[rank];
    const bool exited = WIFEXITED(process->wait_status);
    char name[32], how[32], text[96];
    const char *what;
    wefti_board_get_name(line, name);
    wefti_board_get_text(line, text, sizeof(text), &what);
    wefti_json_object_open(json, NULL);
    wefti_json_int(json, "rank", rank);
    wefti_json_int(json, "pid", process->pid);
    if (exited) {
        wefti_json_int(json, "exit", WEXITSTATUS(process->wait_status));
        wefti_json_null(json, "signal");
    } else {
        wefti_json_null(json, "exit");
        wefti_json_text(
            json, "signal",
            signal_text(WTERMSIG(process->wait_status), how, sizeof(how)));
    }
    wefti_json_uint(json, "op_number", op_number(line));
    wefti_json_text(json, "op", op_number(line) ? what : NULL);
    wefti_json_text(json, "comm", op_number(line) ? name : NULL);
    wefti_json_object_close(json);
}

static void write_job(wefti_json *json, const run_job *job)
{
    char last_line[RUN_REPORT_BYTES];
    run_report_last_line(job, last_line);
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "weft", weft_version_text());
    wefti_json_text(json, "program", job->options->program[0]);
    wefti_json_int(json, "nranks", job->options->nranks);
    wefti_json_int(json, "ranks_per_process", job->options->ranks_per_process);
    wefti_json_int(json, "exit_status", run_report_exit_status(job));
    if (job->first_failed >= 0) {
        wefti_json_int(json, "first_failed",
                       job->first_failed * job->options->ranks_per_process);
    } else {
        wefti_json_null(json, "first_failed");
    }
    wefti_json_bool(json, "timed_out", job->timed_out);
    wefti_json_text(json, "text", last_line[0] ? last_line : NULL);
    wefti_json_real(json, "wall_ms",
                    (double)(job->end_ns - job->start_ns) / 1e6);
    wefti_json_array_open(json, "ranks");
    for (int rank = 0; rank < job->options->nranks; rank++) {
        write_rank(json, job, rank);
    }
    wefti_json_array_close(json);
    wefti_json_object_close(json);
}

weft_status run_report_json(const run_job *job)
{
    const char *path = job->options->json_path;
    wefti_json json;
    wefti_output out;
    if (!path) {
        return WEFT_OK;
    }
    weft_status status = wefti_output_open(&out, "--json", path);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_json_init(&json, out.file);
    write_job(&json, job);
    return wefti_output_end(&out, wefti_json_fini(&json));
}
