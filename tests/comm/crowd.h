/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/crowd.h - ranks as threads that join a job at the same time.
 */
#ifndef TESTS_COMM_CROWD_H
#define TESTS_COMM_CROWD_H

#include "comm/oob/bootstrap.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CROWD_MOST = 64 };

typedef struct crowd_rank {
    wefti_bootstrap_request request;
    bool absent;
    pthread_t thread;
    weft_status status;
    char text[512];
    wefti_membership membership;
} crowd_rank;

typedef struct crowd {
    int count;
    crowd_rank ranks[CROWD_MOST];
} crowd;

/* Tuning of rank r is all 0xa0 + r. */
static inline void crowd_init(crowd *all, int count, const weft_unique_id *id)
{
    memset(all, 0, sizeof(*all));
    all->count = count;
    for (int i = 0; i < count; i++) {
        wefti_bootstrap_request *request = &all->ranks[i].request;
        *request = (wefti_bootstrap_request){.id = id,
                                             .rank = i,
                                             .nranks = count,
                                             .warn_ms = 10000,
                                             .timeout_ms = 30000};
        memset(request->tuning, 0xa0 + i, sizeof(request->tuning));
    }
}

static inline void *crowd_run(void *argument)
{
    crowd_rank *rank = argument;
    memset(&rank->membership, 0x5a, sizeof(rank->membership));
    rank->status = wefti_bootstrap_join(&rank->request, &rank->membership);
    snprintf(rank->text, sizeof(rank->text), "%s", weft_error_text());
    return NULL;
}

static inline void crowd_start(crowd *all)
{
    for (int i = 0; i < all->count; i++) {
        crowd_rank *rank = &all->ranks[i];
        if (!rank->absent &&
            pthread_create(&rank->thread, NULL, crowd_run, rank) != 0) {
            abort();
        }
    }
}

static inline void crowd_wait(crowd *all)
{
    for (int i = 0; i < all->count; i++) {
        if (!all->ranks[i].absent) {
            pthread_join(all->ranks[i].thread, NULL);
        }
    }
}

static inline void crowd_join(crowd *all)
{
    crowd_start(all);
    crowd_wait(all);
}

static inline void crowd_fini(crowd *all)
{
    for (int i = 0; i < all->count; i++) {
        if (!all->ranks[i].absent && all->ranks[i].status == WEFT_OK) {
            wefti_membership_fini(&all->ranks[i].membership);
        }
    }
}

/* A loopback port that was free a moment ago. */
static inline int crowd_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0) {
        abort();
    }
    close(fd);
    return ntohs(address.sin_port);
}

/* WEFT_RENDEZVOUS at a free port, and a secret. */
static inline void crowd_set_environment(void)
{
    char rendezvous[32];
    snprintf(rendezvous, sizeof(rendezvous), "127.0.0.1:%d", crowd_free_port());
    setenv("WEFT_RENDEZVOUS", rendezvous, 1);
    setenv("WEFT_SECRET", "a secret of the tests", 1);
}

static inline void crowd_clear_environment(void)
{
    unsetenv("WEFT_RENDEZVOUS");
    unsetenv("WEFT_SECRET");
}

#endif
