/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/flight.c - the thread that waits for SIGUSR1.
 *
 * The lock is held while it dumps, so that no rank destroys a communicator
 * under it: unwatch comes first.
 */
#include "comm/watch/flight.h"

#include "base/error.h"
#include "base/thread.h"
#include "comm/control/fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WATCHED_MOST = 1024,   /* ranks that are threads of one process */
    TEXT_BYTES = 256 << 10 /* of one dump; a longer one is cut */
};

struct wefti_flight {
    pthread_t thread;
    _Atomic bool closing; /* alone; stored before the signal that wakes run */
    pthread_mutex_t lock; /* guards comms */
    weft_comm *comms[WATCHED_MOST];
    char text[TEXT_BYTES];
};

static void dump_all(wefti_flight *flight)
{
    pthread_mutex_lock(&flight->lock);
    for (int i = 0; i < WATCHED_MOST; i++) {
        if (flight->comms[i] && weft_comm_dump(flight->comms[i], flight->text,
                                               TEXT_BYTES) == WEFT_OK) {
            size_t bytes = strlen(flight->text);
            /* A lost record must not end the program. */
            ssize_t written = write(STDERR_FILENO, flight->text, bytes);
            (void)written;
        }
    }
    pthread_mutex_unlock(&flight->lock);
}

static void *run(void *argument)
{
    wefti_flight *flight = argument;
    sigset_t wanted;
    int number;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    while (sigwait(&wanted, &number) == 0 && !atomic_load(&flight->closing)) {
        dump_all(flight);
    }
    return NULL;
}

weft_status wefti_flight_open(wefti_flight **flight_out)
{
    sigset_t usr1;
    wefti_flight *flight = calloc(1, sizeof(*flight));
    if (!flight) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for flight records");
    }
    pthread_mutex_init(&flight->lock, NULL);
    if (wefti_thread_start(run, flight, &flight->thread) != 0) {
        weft_status status =
            wefti_error_system("no thread to wait for SIGUSR1");
        pthread_mutex_destroy(&flight->lock);
        free(flight);
        return status;
    }
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
    *flight_out = flight;
    return WEFT_OK;
}

void wefti_flight_close(wefti_flight *flight)
{
    if (!flight) {
        return;
    }
    atomic_store(&flight->closing, true);
    pthread_kill(flight->thread, SIGUSR1);
    pthread_join(flight->thread, NULL);
    pthread_mutex_destroy(&flight->lock);
    free(flight);
}

/* Puts to where from is; at most one place for each communicator. */
static void replace(wefti_flight *flight, weft_comm *from, weft_comm *to)
{
    pthread_mutex_lock(&flight->lock);
    for (int i = 0; i < WATCHED_MOST; i++) {
        if (flight->comms[i] == from) {
            flight->comms[i] = to;
            break;
        }
    }
    pthread_mutex_unlock(&flight->lock);
}

void wefti_flight_watch(wefti_flight *flight, weft_comm *comm)
{
    if (flight && comm) {
        replace(flight, NULL, comm);
    }
}

void wefti_flight_unwatch(wefti_flight *flight, weft_comm *comm)
{
    if (flight && comm) {
        replace(flight, comm, NULL);
    }
}

void wefti_flight_blame(weft_comm *comm, int rank)
{
    wefti_fault_blame(comm, rank);
}
