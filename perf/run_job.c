/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/run_job.c - starts the processes of a job.
 *
 * A child stands between fork and exec: it binds itself, sets its environment,
 * keeps only the descriptors that are meant for it, and asks the kernel to be
 * killed with its parent. What fails there comes back through a pipe that exec
 * closes.
 */
#include "perf/run_job.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/oob/endpoint.h"
#include "perf/run_binding.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SECRET_RAW_BYTES = 32,
    EXIT_CANNOT_RUN = 127,
    NODE_PORT = 4711 /* in a network of our own nobody else has it */
};

/* What all children of a job get. */
typedef struct nursery {
    run_job *job;
    pid_t parent;
    sigset_t mask; /* from before the job */
    wefti_endpoint endpoint;
    int listen_fd;
    char secret[2 * SECRET_RAW_BYTES + 1];
    int start_fd;        /* the children's end */
    wefti_bound *bounds; /* of each process; NULL: --bind none */
} nursery;

/* What a child says when it cannot start; stages are literals, so the same
 * address names the same text on both sides of fork. */
typedef struct start_failure {
    const char *stage;
    int error_number;
} start_failure;

bool run_job_is_failure(int wait_status)
{
    return !WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0;
}

bool run_job_has_good(const run_job *job)
{
    bool good = false;
    for (int i = 0; i < job->process_count; i++) {
        const run_process *one = &job->processes[i];
        good = good || (!one->running && !run_job_is_failure(one->wait_status));
    }
    return good;
}

void run_job_signal(const run_job *job, int number)
{
    for (int i = 0; i < job->process_count; i++) {
        if (job->processes[i].running) {
            (void)kill(job->processes[i].pid, number);
        }
    }
}

static _Noreturn void give_up(const nursery *home, const char *stage)
{
    const start_failure failure = {stage, errno};
    ssize_t written = write(home->start_fd, &failure, sizeof(failure));
    (void)written;
    _exit(EXIT_CANNOT_RUN);
}

static bool set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    return setenv(name, text, 1) == 0;
}

static bool keep_open(int fd)
{
    return fcntl(fd, F_SETFD, 0) == 0;
}

static void set_environment(const nursery *home, int process)
{
    const run_options *options = home->job->options;
    bool good =
        set_number("WEFT_RANK", process * options->ranks_per_process) &&
        set_number("WEFT_NRANKS", options->nranks) &&
        set_number("WEFT_RANKS_PER_PROCESS", options->ranks_per_process) &&
        set_number("WEFT_BOARD_FD", home->job->board_fd) &&
        setenv("WEFT_RENDEZVOUS", home->endpoint.text, 1) == 0 &&
        setenv("WEFT_SECRET", home->secret, 1) == 0 &&
        /* As many as there can be, for a rank has more streams than the 8 that
         * it is by default (docs/gpu.md); what is set already stays. */
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0) == 0 &&
        unsetenv("WEFT_SECRET_FILE") == 0 &&
        unsetenv("WEFT_RENDEZVOUS_FD") == 0 &&
        unsetenv("WEFT_LAUNCHER_FD") == 0 && keep_open(home->job->board_fd);
    if (good && process == 0) {
        good = set_number("WEFT_RENDEZVOUS_FD", home->listen_fd) &&
               set_number("WEFT_LAUNCHER_FD", home->job->ended_fds[0]) &&
               keep_open(home->listen_fd) && keep_open(home->job->ended_fds[0]);
    }
    if (!good) {
        give_up(home, "set the environment of");
    }
}

static void redirect(const nursery *home, int process, int out_fd, int err_fd)
{
    if (process > 0) {
        int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) {
            give_up(home, "open /dev/null for");
        }
    }
    if ((out_fd >= 0 && dup2(out_fd, STDOUT_FILENO) < 0) ||
        (err_fd >= 0 && dup2(err_fd, STDERR_FILENO) < 0)) {
        give_up(home, "redirect the output of");
    }
}

static _Noreturn void become_program(const nursery *home, int process,
                                     int out_fd, int err_fd)
{
    const run_options *options = home->job->options;
    /* The parent may have died before the kernel was asked. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != home->parent) {
        _exit(EXIT_CANNOT_RUN);
    }
    redirect(home, process, out_fd, err_fd);
    if (options->emulates) {
        errno = net_emulation_move_in(
            &home->job->net,
            options->node_of[process * options->ranks_per_process]);
        if (errno != 0) {
            give_up(home, "enter the emulated node of");
        }
    }
    if (home->bounds &&
        wefti_binding_apply(&home->bounds[process]) != WEFT_OK) {
        give_up(home, "bind to its cores");
    }
    set_environment(home, process);
    (void)sigprocmask(SIG_SETMASK, &home->mask, NULL);
    (void)execvp(options->program[0], options->program);
    give_up(home, "run");
}

static void close_both(const int ends[2])
{
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) {
            close(ends[i]);
        }
    }
}

static weft_status start_process(const nursery *home, int index)
{
    run_process *process = &home->job->processes[index];
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    if (home->job->options->label &&
        (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)) {
        weft_status status = wefti_error_system("pipe for rank output");
        close_both(out);
        return status;
    }
    pid_t pid = fork();
    if (pid == 0) {
        become_program(home, index, out[1], err[1]);
    }
    if (pid < 0) {
        weft_status status = wefti_error_system("cannot start a process");
        close_both(out);
        close_both(err);
        return status;
    }
    if (home->job->options->label) {
        close(out[1]);
        close(err[1]);
        (void)fcntl(out[0], F_SETFL, O_NONBLOCK);
        (void)fcntl(err[0], F_SETFL, O_NONBLOCK);
    }
    process->pid = pid;
    process->out_fd = out[0];
    process->err_fd = err[0];
    process->running = true;
    home->job->running_count++;
    return WEFT_OK;
}

/* SIGCHLD and the forwarded ones come through signal_fd from now on. */
static weft_status take_signals(run_job *job, sigset_t *before_out)
{
    static const int taken[] = {SIGCHLD, SIGINT,  SIGTERM,
                                SIGHUP,  SIGUSR1, SIGUSR2};
    /* A stopped rank is no news. */
    const struct sigaction default_action = {.sa_handler = SIG_DFL,
                                             .sa_flags = SA_NOCLDSTOP};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        sigaddset(&set, taken[i]);
    }
    (void)sigaction(SIGCHLD, &default_action, NULL);
    (void)sigprocmask(SIG_BLOCK, &set, before_out);
    job->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return job->signal_fd >= 0 ? WEFT_OK : wefti_error_system("signals");
}

static weft_status make_board(run_job *job)
{
    const size_t bytes = wefti_board_bytes(job->options->nranks);
    job->board_fd = memfd_create("weft-board", MFD_CLOEXEC);
    if (job->board_fd < 0 || ftruncate(job->board_fd, (off_t)bytes) != 0) {
        return wefti_error_system("memory of the board");
    }
    void *board =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, job->board_fd, 0);
    if (board == MAP_FAILED) {
        return wefti_error_system("memory of the board");
    }
    job->board = board;
    return WEFT_OK;
}

static void make_secret(nursery *home)
{
    unsigned char raw[SECRET_RAW_BYTES];
    randombytes_buf(raw, sizeof(raw));
    sodium_bin2hex(home->secret, sizeof(home->secret), raw, sizeof(raw));
    wefti_secret_init(&home->job->stand_in.secret, home->secret,
                      strlen(home->secret));
}

static weft_status start_all(nursery *home)
{
    for (int i = 0; i < home->job->process_count; i++) {
        weft_status status = start_process(home, i);
        if (status != WEFT_OK) {
            run_job_signal(home->job, SIGKILL);
            for (int j = 0; j < i; j++) {
                (void)waitpid(home->job->processes[j].pid, NULL, 0);
            }
            return status;
        }
    }
    return WEFT_OK;
}

/* Where the ranks meet: on the loopback, or on rank 0's emulated node. */
static weft_status listen_for_ranks(nursery *home)
{
    run_job *job = home->job;
    const run_options *options = job->options;
    if (!options->emulates) {
        wefti_endpoint_loopback(0, &home->endpoint);
        return wefti_endpoint_listen(&home->endpoint, &home->listen_fd);
    }
    weft_status status = net_emulation_open(&options->net, &job->net);
    if (status != WEFT_OK) {
        return status;
    }
    const int node = options->node_of[0];
    char text[40];
    snprintf(text, sizeof(text), "%s:%d", job->net.nodes[node].address,
             NODE_PORT);
    status = net_emulation_enter_network(&job->net, node);
    if (status == WEFT_OK) {
        status =
            wefti_endpoint_parse("the emulated node", text, &home->endpoint);
    }
    if (status == WEFT_OK) {
        status = wefti_endpoint_listen(&home->endpoint, &home->listen_fd);
    }
    weft_status back = net_emulation_return(&job->net);
    return status == WEFT_OK ? back : status;
}

/* The pipes of failed starts and of ended ranks, the listening socket, then
 * the children. */
static weft_status fill_nursery(nursery *home)
{
    int start[2];
    if (pipe2(start, O_CLOEXEC | O_NONBLOCK) != 0) {
        return wefti_error_system("pipe");
    }
    home->job->start_fd = start[0];
    home->start_fd = start[1];
    /* Both ends stay open here: nobody is killed for writing to the last. */
    if (pipe2(home->job->ended_fds, O_CLOEXEC | O_NONBLOCK) != 0) {
        weft_status status = wefti_error_system("pipe");
        close(home->start_fd);
        return status;
    }
    make_secret(home);
    weft_status status = listen_for_ranks(home);
    home->job->stand_in.endpoint = home->endpoint;
    if (status == WEFT_OK) {
        status = start_all(home);
        close(home->listen_fd);
    }
    close(home->start_fd);
    sodium_memzero(home->secret, sizeof(home->secret));
    return status;
}

static weft_status plan_binding(const run_options *options, nursery *home)
{
    int count = options->nranks / options->ranks_per_process;
    home->bounds = calloc((size_t)count, sizeof(*home->bounds));
    return home->bounds
               ? run_binding_plan(options->nranks, options->ranks_per_process,
                                  home->bounds)
               : wefti_error(WEFT_ERR_NO_MEMORY, "binding %d processes", count);
}

weft_status run_job_start(const run_options *options, run_job *job_out)
{
    *job_out = (run_job){.options = options,
                         .board_fd = -1,
                         .signal_fd = -1,
                         .start_fd = -1,
                         .ended_fds = {-1, -1},
                         .first_failed = -1,
                         .start_ns = wefti_clock_ns()};
    nursery home = {.job = job_out, .parent = getpid()};
    const int count = options->nranks / options->ranks_per_process;
    wefti_memory_limit_read("", &job_out->memory);
    job_out->processes = calloc((size_t)count, sizeof(*job_out->processes));
    if (!job_out->processes) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d processes", count);
    }
    job_out->process_count = count;
    for (int i = 0; i < count; i++) {
        job_out->processes[i].out_fd = -1;
        job_out->processes[i].err_fd = -1;
    }
    weft_status status = WEFT_OK;
    if (sodium_init() < 0) {
        status = wefti_error(WEFT_ERR_SYSTEM, "no random numbers");
    }
    if (status == WEFT_OK && options->bind_core) {
        status = plan_binding(options, &home);
    }
    if (status == WEFT_OK) {
        status = run_orphans_adopt(&job_out->strangers);
    }
    if (status == WEFT_OK) {
        status = make_board(job_out);
    }
    if (status == WEFT_OK) {
        status = take_signals(job_out, &home.mask);
    }
    if (status == WEFT_OK) {
        status = fill_nursery(&home);
    }
    free(home.bounds);
    if (status != WEFT_OK) {
        run_job_fini(job_out);
    }
    return status;
}

static void close_open(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

void run_job_fini(run_job *job)
{
    for (int i = 0; i < job->process_count; i++) {
        close_open(job->processes[i].out_fd);
        close_open(job->processes[i].err_fd);
    }
    free(job->processes);
    run_stand_in_fini(&job->stand_in);
    run_orphans_fini(&job->strangers);
    if (job->board) {
        (void)munmap(job->board, wefti_board_bytes(job->options->nranks));
    }
    net_emulation_close(&job->net);
    close_open(job->board_fd);
    close_open(job->signal_fd);
    close_open(job->start_fd);
    close_open(job->ended_fds[0]);
    close_open(job->ended_fds[1]);
    *job = (run_job){
        .board_fd = -1, .signal_fd = -1, .start_fd = -1, .ended_fds = {-1, -1}};
}
