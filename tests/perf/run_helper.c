/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/perf/run_helper.c - a program for weft-run to run.
 *
 *     run_helper join      all ranks of the process meet, and exit 0
 *     run_helper wait      meet, note an operation, wait for a signal
 *     run_helper die       as wait, but the last rank dies by SIGKILL
 *     run_helper stop      meet; the last rank stops itself, rank 0 lets it go
 * on
 *     run_helper split     rank 1 dies amid operations of a part of the world
 *     run_helper list      rank 1 dies after its fifth list of two messages
 *     run_helper put       rank 1 dies after a put into rank 0's memory
 *     run_helper watch     meet; the last process leaves, the others see it go
 */
#include "base/settings.h"
#include "comm/core/board.h"
#include "comm/oob/bootstrap.h"
#include "weft/mem.h"
#include "weft/op.h"
#include "weft/p2p.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS_MOST = 16 };

typedef struct rank_thread {
    pthread_t thread;
    wefti_bootstrap_request request;
    wefti_membership membership;
    weft_status status;
} rank_thread;

static void *join(void *argument)
{
    rank_thread *rank = argument;
    rank->status = wefti_bootstrap_join(&rank->request, &rank->membership);
    if (rank->status != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
    }
    return NULL;
}

static int setting(wefti_setting which)
{
    int64_t value;
    if (wefti_setting_int(which, &value) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
        exit(9);
    }
    return (int)value;
}

/* Meets as all ranks of this process; the first one's threads array. */
static bool meet(rank_thread *ranks, int first, int count, int nranks)
{
    bool good = true;
    for (int i = 0; i < count; i++) {
        ranks[i].request = (wefti_bootstrap_request){.rank = first + i,
                                                     .nranks = nranks,
                                                     .warn_ms = 10000,
                                                     .timeout_ms = 50000};
        pthread_create(&ranks[i].thread, NULL, join, &ranks[i]);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(ranks[i].thread, NULL);
        good = good && ranks[i].status == WEFT_OK;
    }
    return good;
}

static void note_operation(int rank, uint64_t number)
{
    wefti_board_line *line;
    if (wefti_board_open(rank, &line) != WEFT_OK || !line) {
        fprintf(stderr, "no board: %s\n", weft_error_text());
        exit(9);
    }
    wefti_board_set_name(line, "world");
    wefti_board_note(line, number, WEFT_COLLECTIVE_ALLREDUCE);
    wefti_board_close(line);
}

static void stop_and_go(const wefti_membership *membership)
{
    const pid_t last = membership->members[membership->nranks - 1].pid;
    char path[64], text[256];
    if (membership->rank == membership->nranks - 1) {
        raise(SIGSTOP);
        return;
    }
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)last);
    /* Seen stopped (state T), and let go on. */
    for (bool stopped = false; membership->rank == 0 && !stopped;) {
        FILE *file = fopen(path, "r");
        size_t got = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
        text[got] = '\0';
        stopped = strstr(text, ") T ") || got == 0;
        if (file) {
            fclose(file);
        }
    }
    kill(last, SIGCONT);
}

/* Whether exactly the members' processes are watched, each by one pidfd. */
static bool check_watched(const wefti_membership *membership)
{
    for (int i = 0; i < membership->nranks; i++) {
        const wefti_member *member = &membership->members[i];
        if ((member->pidfd < 0) != (member->pid == getpid())) {
            return false;
        }
        for (int j = 0; j < i; j++) {
            const wefti_member *other = &membership->members[j];
            if (member->pidfd >= 0 && (member->pidfd == other->pidfd) !=
                                          (member->pid == other->pid)) {
                return false;
            }
        }
    }
    return true;
}

/* The last process ends, and only its pidfd says so. */
static bool see_last_leave(const wefti_membership *membership)
{
    const wefti_member *last = &membership->members[membership->nranks - 1];
    if (last->pid == getpid()) {
        return true;
    }
    struct pollfd wait = {.fd = last->pidfd, .events = POLLIN};
    return poll(&wait, 1, 40000) == 1 && (wait.revents & POLLIN);
}

/* Rank 1 dies between real operations of a communicator split off the world. */
static int die_in_split(void)
{
    weft_comm *world, *part;
    weft_comm_config config = {.size_bytes = sizeof(config), .name = "dp"};
    float data[2] = {1, 2};
    if (weft_comm_create(NULL, &world) != WEFT_OK ||
        weft_comm_split(world, 0, 0, &config, &part) != WEFT_OK) {
        return 9;
    }
    weft_status status = WEFT_OK;
    for (int i = 1; status == WEFT_OK && i <= 9; i++) {
        status = weft_allreduce(data, data, 2, WEFT_DTYPE_F32, WEFT_REDOP_SUM,
                                part, NULL);
        if (i == 7 && weft_comm_get_rank(world) == 1) {
            raise(SIGKILL);
        }
    }
    weft_comm_destroy(part);
    weft_comm_destroy(world);
    return status == WEFT_ERR_PEER ? 3 : 9;
}

/* Rank 1 dies between what is no collective. */
static int die_beside(bool list)
{
    weft_comm *world;
    weft_mem *mem;
    if (weft_comm_create(NULL, &world) != WEFT_OK ||
        weft_mem_create(world, 64, &mem) != WEFT_OK) {
        return 9;
    }
    float out = 1, in;
    int rank = weft_comm_get_rank(world);
    weft_status status = WEFT_OK;
    weft_p2p both[2] = {{.size_bytes = sizeof(both[0]),
                         .kind = WEFT_P2P_SEND,
                         .peer = 1 - rank,
                         .buffer = &out,
                         .count = 1,
                         .dtype = WEFT_DTYPE_F32}};
    both[1] = both[0];
    both[1].kind = WEFT_P2P_RECV;
    both[1].buffer = &in;
    for (int i = 0; list && i < 5 && status == WEFT_OK; i++) {
        status = weft_p2p_post(both, 2, world, NULL);
    }
    if (!list && rank == 1) {
        status = weft_mem_put(mem, 0, &out, 1, WEFT_DTYPE_F32, 0, NULL);
    }
    if (rank == 1) {
        raise(SIGKILL);
    }
    return status == WEFT_OK && weft_barrier(world, NULL) == WEFT_ERR_PEER ? 3
                                                                           : 9;
}

int main(int argc, char **argv)
{
    static rank_thread ranks[THREADS_MOST];
    const char *task = argc == 2 ? argv[1] : "";
    const int first = setting(WEFTI_SETTING_RANK);
    const int nranks = setting(WEFTI_SETTING_NRANKS);
    const int count = setting(WEFTI_SETTING_RANKS_PER_PROCESS);
    if (strcmp(task, "split") == 0) {
        return die_in_split();
    }
    if (strcmp(task, "list") == 0 || strcmp(task, "put") == 0) {
        return die_beside(strcmp(task, "list") == 0);
    }
    if (count > THREADS_MOST || !meet(ranks, first, count, nranks)) {
        return 9;
    }
    for (int i = 0; i < count; i++) {
        note_operation(first + i, 417);
    }
    if (strcmp(task, "stop") == 0) {
        stop_and_go(&ranks[0].membership);
    }
    if (strcmp(task, "watch") == 0 && !(check_watched(&ranks[0].membership) &&
                                        see_last_leave(&ranks[0].membership))) {
        fprintf(stderr, "rank %d: watched wrongly\n", first);
        return 9;
    }
    if (strcmp(task, "die") == 0 && first + count == nranks) {
        raise(SIGKILL);
    }
    if (strcmp(task, "die") == 0 || strcmp(task, "wait") == 0) {
        printf("ready\n");
        fflush(stdout);
        pause();
    }
    for (int i = 0; i < count; i++) {
        wefti_membership_fini(&ranks[i].membership);
    }
    return 0;
}
