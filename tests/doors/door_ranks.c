/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/doors/door_ranks.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct door_rank {
    pthread_t thread;
    int rank, nranks;
    wefti_door_id id;
    door_rank_call call;
    void *context;
    int failures;
} door_rank;

void (*door_before)(int rank);

static _Thread_local bool kept_out;

void door_keep_out(void)
{
    kept_out = true;
}

int door_check(bool good, const char *what, const char *file, int line)
{
    if (!good) {
        fprintf(stderr, "%s:%d: %s (last: %s)\n", file, line, what,
                ncclGetLastError(NULL));
    }
    return !good;
}

int door_check_result(int wanted, int got, const char *what, const char *file,
                      int line)
{
    if (got != wanted) {
        fprintf(stderr, "%s:%d: %s: %d, not %d (last: %s)\n", file, line, what,
                got, wanted, ncclGetLastError(NULL));
    }
    return got != wanted;
}

bool door_said(const char *words)
{
    return strstr(ncclGetLastError(NULL), words) != NULL;
}

int door_await(struct ncclComm *comm)
{
    int result = WEFTI_DOOR_IN_PROGRESS;
    while (result == WEFTI_DOOR_IN_PROGRESS) {
        if (ncclCommGetAsyncError(comm, &result) != WEFTI_DOOR_SUCCESS) {
            return -1;
        }
        sched_yield();
    }
    return result;
}

wefti_door_config door_config(void)
{
    const int none = WEFTI_DOOR_UNDEFINED;
    return (wefti_door_config){sizeof(wefti_door_config),
                               WEFTI_DOOR_CONFIG_MAGIC,
                               WEFTI_DOOR_VERSION,
                               none,
                               none,
                               none,
                               none,
                               NULL,
                               none,
                               none,
                               NULL,
                               none,
                               none,
                               none,
                               none,
                               none,
                               none};
}

static int run_rank(door_rank *own)
{
    struct ncclComm *comm = NULL;
    int failures = 0;
    kept_out = false;
    if (door_before) {
        door_before(own->rank);
    }
    EXPECT_RESULT(SUCCESS,
                  ncclCommInitRank(&comm, own->nranks, own->id, own->rank));
    if (failures == 0) {
        failures += own->call(comm, own->rank, own->nranks, own->context);
    }
    if (!kept_out) {
        EXPECT_RESULT(SUCCESS, ncclCommDestroy(comm));
    }
    return failures;
}

static void *run_thread(void *argument)
{
    door_rank *own = argument;
    own->failures = run_rank(own);
    return NULL;
}

int door_run_threads(int nranks, door_rank_call call, void *context)
{
    door_rank ranks[DOOR_RANKS];
    wefti_door_id id;
    int failures = 0;
    EXPECT_RESULT(SUCCESS, ncclGetUniqueId(&id));
    for (int i = 0; i < nranks; i++) {
        ranks[i] = (door_rank){.rank = i,
                               .nranks = nranks,
                               .id = id,
                               .call = call,
                               .context = context};
        if (pthread_create(&ranks[i].thread, NULL, run_thread, &ranks[i])) {
            abort();
        }
    }
    for (int i = 0; i < nranks; i++) {
        pthread_join(ranks[i].thread, NULL);
        failures += ranks[i].failures;
    }
    return failures;
}

/* Rank 0 makes the id, and a pipe carries it to the others. */
static int run_process(door_rank *own, const int ends[2])
{
    const size_t bytes = sizeof(own->id);
    alarm(DOOR_DEADLINE_S);
    if (own->rank > 0) {
        if (read(ends[0], &own->id, bytes) != (ssize_t)bytes) {
            return 1;
        }
        return run_rank(own);
    }
    if (ncclGetUniqueId(&own->id) != WEFTI_DOOR_SUCCESS) {
        return 1;
    }
    for (int i = 1; i < own->nranks; i++) {
        if (write(ends[1], &own->id, bytes) != (ssize_t)bytes) {
            return 1;
        }
    }
    return run_rank(own);
}

int door_run_killed(int nranks, int killed, door_rank_call call, void *context)
{
    int ends[2], failures = 0;
    pid_t children[DOOR_RANKS];
    if (pipe(ends) != 0) {
        abort();
    }
    for (int i = 0; i < nranks; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            door_rank own = {
                .rank = i, .nranks = nranks, .call = call, .context = context};
            const int failed = run_process(&own, ends);
            exit(failed > 63 ? 63 : failed);
        }
    }
    for (int i = 0; i < nranks; i++) {
        int status = 0;
        waitpid(children[i], &status, 0);
        const bool by_signal =
            WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (i == killed) {
            failures += !by_signal;
        } else {
            failures += WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        }
    }
    close(ends[0]);
    close(ends[1]);
    return failures;
}

int door_run_processes(int nranks, door_rank_call call, void *context)
{
    return door_run_killed(nranks, -1, call, context);
}
