// SPDX-License-Identifier: BSD-3-Clause
/*
 * The list of questions, and the run: each one asked in its order while there
 * is time, then one JSON file.
 */
#include "facts.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TOTAL_S 180.0
/* What the total keeps back for the daemon's end and the file. */
#define REST_S 12.0
/* What a daemon that does not start can cost, and be ended again. */
#define MPS_S 18.0

#define COUNT(list) (sizeof(list) / sizeof(*(list)))

static const struct question questions[] = {
    {"card", "what the card and its driver are", q_card, 0, 8, false},
    {"memops", "what a stream's memory operations compare and order", q_memops,
     0, 8, false},
    {"held_up", "calls and streams beside one that stands at a wait", q_held_up,
     0, 5, false},
    {"held_up_32", "the streams, with 32 connections", q_held_up, 1, 3, false},
    {"queue", "how much fits behind a wait, and how many streams may stand",
     q_queue, 0, 8, false},
    {"queue_32", "the streams, with 32 connections", q_queue, 1, 4, false},
    {"green", "green contexts: granularity, groups, two at once", q_green, 0, 8,
     false},
    {"gemm_beside", "SM_COUNT_TARGET beside a communication kernel",
     q_gemm_beside, 0, 8, false},
    {"attention_forward", "cuDNN's engines for the composite forward graph",
     q_attention, 0, 10, false},
    {"attention_backward", "the same, backward", q_attention, 1, 10, false},
    {"attention_node_forward", "cuDNN's engines for the single forward node",
     q_attention, 2, 8, false},
    {"attention_node_backward", "the same, backward", q_attention, 3, 8, false},
    {"ipc", "memory, events and memory operations between processes", q_ipc, 0,
     8, false},
    {"vmm", "memory by file descriptor between processes", q_vmm, 0, 6, false},
    {"pair", "kernels, copies and green contexts of two processes", q_pair, 0,
     8, false},
    {"nccl_hostid", "NCCL: two ranks, a NCCL_HOSTID each, loopback", q_nccl, 1,
     10, false},
    {"nccl_plain", "NCCL: two ranks on one GPU as it is", q_nccl, 0, 8, false},
    {"nccl_multi", "NCCL: two ranks, NCCL_MULTI_RANK_GPU_ENABLE", q_nccl, 2, 8,
     false},
    {"copies", "copy rates within the device, up, down", q_copies, 0, 8, false},
    {"gemm", "the ceiling of a matrix product", q_gemm, 0, 6, false},
    {"gemm_forms", "which products cublasLt has algorithms for", q_gemm_forms,
     0, 6, false},
    {"launch", "launch attributes, and what priority does", q_launch, 0, 6,
     false},
    {"latency", "from a kernel's end to the next copy, by five ways", q_latency,
     0, 8, false},
    {"host_calls", "host calls: serialised, how soon, after an error",
     q_host_calls, 0, 6, false},
    {"pair_mps", "as pair, under MPS", q_pair, 0, 10, true},
    {"ipc_mps", "as ipc, under MPS", q_ipc, 0, 8, true},
    {"vmm_mps", "as vmm, under MPS", q_vmm, 0, 6, true},
    {"green_mps", "as green, under MPS", q_green, 0, 8, true},
};

struct run {
    double start_us;
    int log_fd;
    char mps_dir[64], no_mps[256];
    bool mps_tried, mps_runs;
    struct findings all;
    double seconds[COUNT(questions)];
    char outcomes[COUNT(questions)][128];
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

/* --- before the first question --- */

/* Whether there is a driver with a device: asked in a child, for a driver that
 * was opened does not survive a fork. Returns 0, or why nothing can be asked
 * is on stderr. */
static int check_driver(void)
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        union {
            void *address;
            int (*call)(unsigned);
        } init;
        if (!library)
            _exit(1);
        init.address = dlsym(library, "cuInit");
        alarm(20);
        int result = init.address ? init.call(0) : -1;
        if (result != 0) {
            fprintf(stderr,
                    "gpu-facts: libcuda.so.1: cuInit answers %d: nothing "
                    "asked\n",
                    result);
            _exit(2);
        }
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        fprintf(stderr, "gpu-facts: fork: %s\n", strerror(errno));
        return 1;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1)
        fprintf(stderr, "gpu-facts: no libcuda.so.1: nothing asked\n");
    if (WIFSIGNALED(status))
        fprintf(stderr,
                "gpu-facts: libcuda.so.1: cuInit ended by signal %d (%s): "
                "nothing asked\n",
                WTERMSIG(status), strsignal(WTERMSIG(status)));
    return status;
}

/* --- the questions --- */

static double left_s(const struct run *run)
{
    return TOTAL_S - REST_S - (now_us() - run->start_us) / 1e6;
}

static bool ready_for_mps(struct run *run)
{
    if (!run->mps_tried) {
        run->mps_tried = true;
        snprintf(run->mps_dir, sizeof(run->mps_dir), "/tmp/gpu-facts-XXXXXX");
        if (!mkdtemp(run->mps_dir)) {
            snprintf(run->no_mps, sizeof(run->no_mps), "%s: %s", run->mps_dir,
                     strerror(errno));
            run->mps_dir[0] = 0;
        } else {
            run->mps_runs = mps_start(run->mps_dir, run->no_mps);
        }
    }
    return run->mps_runs;
}

static void not_asked(struct run *run, int i, const char *why)
{
    struct fact *fact = findings_add(&run->all);
    snprintf(run->outcomes[i], sizeof(run->outcomes[i]), "not asked");
    snprintf(fact->question, sizeof(fact->question), "%s", questions[i].name);
    snprintf(fact->name, sizeof(fact->name), "all");
    snprintf(fact->why_not, sizeof(fact->why_not), "%s", why);
    fact_print(fact, stdout);
}

static void run_one(struct run *run, int i)
{
    const struct question *q = &questions[i];
    if (stopped)
        not_asked(run, i, "stopped by a signal");
    else if (left_s(run) <
             q->limit_s / 2.0 + (q->with_mps && !run->mps_tried ? MPS_S : 0))
        not_asked(run, i, "the time of the whole run was over");
    else if (q->with_mps && !ready_for_mps(run))
        not_asked(run, i, run->no_mps);
    else {
        double limit_s = left_s(run) < q->limit_s ? left_s(run) : q->limit_s;
        run->seconds[i] =
            ask_question(q, limit_s, run->log_fd, &run->all, run->outcomes[i]);
    }
}

/* --- the file --- */

static void json_member(FILE *out, const char *name, const char *value)
{
    fprintf(out, "  \"%s\": ", name);
    json_string(out, value);
    fprintf(out, ",\n");
}

static void json_all(FILE *out, const struct run *run)
{
    char date[32], host[256] = "";
    time_t now = time(NULL);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    gethostname(host, sizeof(host) - 1);
    fprintf(out, "{\n");
    json_member(out, "date", date);
    json_member(out, "host", host);
    json_member(out, "gpu", findings_value(&run->all, "gpu"));
    json_member(out, "driver", findings_value(&run->all, "driver"));
    json_member(out, "driver_cuda_version",
                findings_value(&run->all, "driver_cuda_version"));
    fprintf(out, "  \"seconds\": %.1f,\n  \"questions\": [\n",
            (now_us() - run->start_us) / 1e6);
    for (size_t i = 0; i < COUNT(questions); i++) {
        fprintf(out, "    {\"name\": ");
        json_string(out, questions[i].name);
        fprintf(out, ", \"asks\": ");
        json_string(out, questions[i].asks);
        fprintf(out, ", \"outcome\": ");
        json_string(out, run->outcomes[i]);
        fprintf(out, ", \"seconds\": %.2f}%s\n", run->seconds[i],
                i + 1 < COUNT(questions) ? "," : "");
    }
    fprintf(out, "  ],\n  \"facts\": [\n");
    for (int i = 0; i < run->all.nfacts; i++) {
        fprintf(out, "    ");
        json_fact(out, &run->all.facts[i]);
        fprintf(out, "%s\n", i + 1 < run->all.nfacts ? "," : "");
    }
    fprintf(out, "  ]\n}\n");
}

static int write_json(const char *path, const struct run *run)
{
    FILE *out = fopen(path, "w");
    if (!out) {
        fprintf(stderr, "gpu-facts: %s: %s\n", path, strerror(errno));
        return 1;
    }
    json_all(out, run);
    if (fclose(out) != 0) {
        fprintf(stderr, "gpu-facts: %s: %s\n", path, strerror(errno));
        return 1;
    }
    return 0;
}

static void remove_folder(const char *dir)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf -- '%s'", dir);
    if (dir[0] && system(command) != 0)
        fprintf(stderr, "gpu-facts: %s could not be removed\n", dir);
}

/* ONLY: that question alone; NULL: all. */
static int ask_all(const char *json_path, const char *log_path,
                   const char *only)
{
    static struct run run;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    run.start_us = now_us();
    if (check_driver() != 0)
        return 2;
    run.log_fd = open(log_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (run.log_fd < 0) {
        fprintf(stderr, "gpu-facts: %s: %s\n", log_path, strerror(errno));
        return 1;
    }
    for (size_t i = 0; i < COUNT(questions); i++) {
        if (!only || strcmp(only, questions[i].name) == 0)
            run_one(&run, (int)i);
        else
            snprintf(run.outcomes[i], sizeof(run.outcomes[i]), "left out");
    }
    if (run.mps_runs)
        mps_stop();
    remove_folder(run.mps_dir);
    int status = write_json(json_path, &run);
    free(run.all.facts);
    return stopped ? 1 : status;
}

static int list_questions(void)
{
    int limits_s = 0;
    for (size_t i = 0; i < COUNT(questions); i++) {
        printf("%-24s %3d s  %s\n", questions[i].name, questions[i].limit_s,
               questions[i].asks);
        limits_s += questions[i].limit_s;
    }
    printf("%zu questions, limits %d s together, stopped after %.0f s\n",
           COUNT(questions), limits_s, TOTAL_S);
    return 0;
}

static bool is_question(const char *name)
{
    for (size_t i = 0; i < COUNT(questions); i++) {
        if (strcmp(questions[i].name, name) == 0)
            return true;
    }
    fprintf(stderr, "gpu-facts: %s: no such question (see --list)\n", name);
    return false;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0)
        return list_questions();
    if (argc == 2 && strcmp(argv[1], "--self-test") == 0)
        return self_test(questions, (int)COUNT(questions)) ? 1 : 0;
    if ((argc == 3 || (argc == 4 && is_question(argv[3]))) && argv[1][0] != '-')
        return ask_all(argv[1], argv[2], argc == 4 ? argv[3] : NULL);
    fprintf(stderr, "usage: gpu_facts JSON_FILE LOG_FILE [QUESTION] | --list | "
                    "--self-test\n");
    return 2;
}
