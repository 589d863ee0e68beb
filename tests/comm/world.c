/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/world.c - ranks as threads and as processes.
 */
#include "tests/comm/world.h"

#include "base/clock.h"
#include "tests/comm/spread.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CREATE_FAILED = 77 };

typedef struct rank_thread {
    const struct world *world;
    weft_unique_id id;
    int rank;
    int failures;
    pthread_t thread;
} rank_thread;

static int call_rank(const struct world *world, int rank,
                     weft_comm_config *config)
{
    weft_comm *comm;
    config->size_bytes = sizeof(*config);
    if (world->before) {
        world->before(rank, world->context);
    }
    if (world->configure) {
        world->configure(rank, config, world->context);
    }
    weft_status status = weft_comm_create(config, &comm);
    if (status != WEFT_OK && world->refused) {
        return world->refused(rank, status, world->context);
    }
    if (status != WEFT_OK) {
        fprintf(stderr, "create: %s: %s\n", weft_status_text(status),
                weft_error_text());
        return CREATE_FAILED;
    }
    int failures = world->call(comm, world->context);
    weft_comm_destroy(comm);
    return failures;
}

static int run_rank(const struct world *world, int rank,
                    weft_comm_config *config)
{
    int failures = call_rank(world, rank, config);
    return world->after ? failures + world->after(rank, world->context)
                        : failures;
}

static void *thread_main(void *argument)
{
    rank_thread *self = argument;
    weft_comm_config config = self->world->config;
    config.id = &self->id;
    config.rank = self->rank;
    config.nranks = self->world->nranks;
    self->failures = run_rank(self->world, self->rank, &config);
    return NULL;
}

/* What a machine is made of and what its network takes is no business of most
 * tests: reading it takes time, and choices would differ from run to run.
 * tests/comm/test_hosts.c and test_net_measure.c ask for it. */
static void spare_machines(void)
{
    setenv("WEFT_NET_RATES", "usual", 0);
    setenv("WEFT_MACHINES", "off", 0);
}

int world_run_threads(const struct world *world)
{
    const char *spread = spread_get();
    rank_thread *ranks = calloc((size_t)world->nranks, sizeof(*ranks));
    weft_unique_id id;
    if (!ranks || weft_unique_id_create(&id) != WEFT_OK) {
        fprintf(stderr, "no unique id: %s\n", weft_error_text());
        free(ranks);
        return 1;
    }
    if (spread_has_nodes(spread)) {
        fprintf(stderr, "%s: hosts have processes, not threads\n", spread);
        abort();
    }
    int failures = 0;
    spare_machines();
    spread_set_domains(spread, world->nranks);
    for (int rank = 0; rank < world->nranks; rank++) {
        ranks[rank].world = world;
        ranks[rank].id = id;
        ranks[rank].rank = rank;
        if (pthread_create(&ranks[rank].thread, NULL, thread_main,
                           &ranks[rank]) != 0) {
            abort();
        }
    }
    for (int rank = 0; rank < world->nranks; rank++) {
        pthread_join(ranks[rank].thread, NULL);
        failures += ranks[rank].failures;
    }
    spread_unset_domains(spread);
    free(ranks);
    return failures;
}

/* A listening socket on a host's address, and both as text. */
static int listen_somewhere(const char *host, char *address,
                            size_t address_bytes)
{
    struct sockaddr_in where = {.sin_family = AF_INET,
                                .sin_addr.s_addr = inet_addr(host)};
    socklen_t length = sizeof(where);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 ||
        bind(listener, (struct sockaddr *)&where, sizeof(where)) != 0 ||
        listen(listener, 128) != 0 ||
        getsockname(listener, (struct sockaddr *)&where, &length) != 0) {
        perror("listening socket");
        abort();
    }
    snprintf(address, address_bytes, "%s:%d", host, ntohs(where.sin_port));
    return listener;
}

/* The same where rank 0 will be. */
static int listen_at_root(const char *spread, int nranks, char *address,
                          size_t address_bytes)
{
    if (!spread_has_nodes(spread)) {
        return listen_somewhere("127.0.0.1", address, address_bytes);
    }
    spread_make_nodes(spread, nranks);
    const char *host = spread_enter_network(spread_domain(spread, 0));
    int listener = listen_somewhere(host, address, address_bytes);
    spread_leave_network();
    return listener;
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

void world_start_processes(const struct world *world, world_processes *started)
{
    const char *spread = spread_get();
    spare_machines();
    char address[32];
    int listener =
        listen_at_root(spread, world->nranks, address, sizeof(address));
    memset(started, 0, sizeof(*started));
    started->nranks = world->nranks;
    fflush(NULL);
    for (int rank = 0; rank < world->nranks; rank++) {
        pid_t parent = getpid();
        pid_t pid = fork();
        if (pid != 0) {
            started->pids[rank] = pid;
            continue;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        if (spread_has_nodes(spread)) {
            spread_move_in(spread_domain(spread, rank));
        }
        spread_set_domains(spread, world->nranks);
        set_number("WEFT_RANK", rank);
        set_number("WEFT_NRANKS", world->nranks);
        setenv("WEFT_RENDEZVOUS", address, 1);
        setenv("WEFT_SECRET", "a secret of the tests only", 1);
        if (rank == 0) {
            set_number("WEFT_RENDEZVOUS_FD", listener);
        } else {
            close(listener);
        }
        weft_comm_config config = world->config;
        int failures = run_rank(world, rank, &config);
        fflush(NULL);
        _exit(failures);
    }
    close(listener);
}

int world_finish_survivors(world_processes *started, int deadline_s)
{
    const int64_t begin_ns = wefti_clock_ns();
    const int64_t end_ns = begin_ns + (int64_t)deadline_s * 1000000000;
    int left = 0, killed = 0;
    for (int rank = 0; rank < started->nranks; rank++) {
        left += started->pids[rank] != 0;
    }
    while (left > 0) {
        bool late = wefti_clock_ns() > end_ns;
        for (int rank = 0; rank < started->nranks; rank++) {
            if (started->pids[rank] == 0) {
                continue;
            }
            if (late) {
                fprintf(stderr, "rank %d is late and is killed\n", rank);
                kill(started->pids[rank], SIGKILL);
                killed++;
            }
            int status;
            if (waitpid(started->pids[rank], &status, late ? 0 : WNOHANG) > 0) {
                started->exit_status[rank] = status;
                started->pids[rank] = 0;
                left--;
            }
        }
        /* The longer it has taken, the longer until the next look. */
        const int64_t nap_ns = (wefti_clock_ns() - begin_ns) / 32;
        struct timespec nap = {0, nap_ns < 300000     ? 300000
                                  : nap_ns < 10000000 ? nap_ns
                                                      : 10000000};
        nanosleep(&nap, NULL);
    }
    return killed;
}

int world_finish_processes(world_processes *started, int deadline_s)
{
    int failures = world_finish_survivors(started, deadline_s);
    for (int rank = 0; rank < started->nranks; rank++) {
        failures += started->exit_status[rank] != 0;
    }
    return failures;
}

int world_run_processes(const struct world *world)
{
    world_processes started;
    world_start_processes(world, &started);
    return world_finish_processes(&started,
                                  world->deadline_s ? world->deadline_s : 60);
}

int world_run_killed(const struct world *world, int killed)
{
    world_processes started;
    world_start_processes(world, &started);
    int failures = world_finish_survivors(
        &started, world->deadline_s ? world->deadline_s : 60);
    for (int rank = 0; rank < world->nranks; rank++) {
        const int ended = started.exit_status[rank];
        if (rank == killed ? !WIFSIGNALED(ended) : ended != 0) {
            fprintf(stderr, "rank %d has ended with %#x\n", rank,
                    (unsigned)ended);
            failures++;
        }
    }
    return failures;
}

int world_run_as(const char *mode, int nranks, world_rank_call call)
{
    const bool processes = strcmp(mode, "processes") == 0;
    weft_device *device = NULL;
    if (!processes && strcmp(mode, "threads") != 0 &&
        weft_device_open(mode, 0, &device) != WEFT_OK) {
        fprintf(stderr, "%s: %s\n", mode, weft_error_text());
        return 1;
    }
    const struct world world = {.nranks = nranks,
                                .config = {.device = device},
                                .call = call,
                                .context = &device};
    const int failures =
        processes ? world_run_processes(&world) : world_run_threads(&world);
    weft_device_close(device);
    return failures;
}

weft_comm *world_create_another(weft_comm *comm, const char *name)
{
    weft_unique_id id = {0};
    weft_comm *made = NULL;
    const int rank = weft_comm_get_rank(comm);
    if ((rank == 0 && weft_unique_id_create(&id) != WEFT_OK) ||
        weft_broadcast(&id, &id, sizeof(id), WEFT_DTYPE_U8, 0, comm, NULL) !=
            WEFT_OK) {
        return NULL;
    }
    const weft_comm_config config = {.size_bytes = sizeof(config),
                                     .id = &id,
                                     .name = name,
                                     .rank = rank,
                                     .nranks = weft_comm_get_nranks(comm)};
    return weft_comm_create(&config, &made) == WEFT_OK ? made : NULL;
}
