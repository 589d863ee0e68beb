/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/peer/peer_mode.c - bin/peers-mode: in which mode the machine is.
 *
 * Virtual cores are moved between physical ones, and what one core has written
 * then takes longer to reach the other. Two threads on the first two cores that
 * this process may use measure just that: the round trip of a cache line, and
 * the hand-over of 64 KiB that one has written and the other reads. Printed as
 * JSON, medians in microseconds; null where there is one core only.
 */
#include "base/clock.h"
#include "base/json.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE_BYTES = 128, /* two lines: processors fetch neighbours in pairs */
    HAND_BYTES = 65536,
    BATCHES = 400,
    TRIPS = 20, /* in a batch */
    HANDS = 200,
    SPINS = 2000,  /* before yielding: another process may have the core */
    LIMIT_MS = 150 /* for each figure */
};

/* The asking thread raises ask, the other answers with the same value. */
typedef struct handshake {
    _Alignas(LINE_BYTES) _Atomic int ask;
    _Alignas(LINE_BYTES) _Atomic int answer;
    _Alignas(LINE_BYTES) _Atomic int hands; /* the asker hands data over */
    _Atomic int ends;
    int core; /* of the answering thread */
    _Alignas(LINE_BYTES) unsigned char data[HAND_BYTES];
    _Alignas(LINE_BYTES) unsigned char taken[HAND_BYTES];
} handshake;

static void bind_to(int core)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one); /* else the figures say so */
}

static void pause_or_yield(int spins)
{
    if (spins >= SPINS) {
        sched_yield();
        return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void *answer(void *argument)
{
    handshake *self = argument;
    bind_to(self->core);
    for (int next = 1;; next++) {
        for (int spins = 0;
             atomic_load_explicit(&self->ask, memory_order_acquire) < next;
             spins += spins < SPINS) {
            if (atomic_load_explicit(&self->ends, memory_order_relaxed)) {
                return NULL;
            }
            pause_or_yield(spins);
        }
        if (atomic_load_explicit(&self->hands, memory_order_relaxed)) {
            memcpy(self->taken, self->data, HAND_BYTES);
        }
        atomic_store_explicit(&self->answer, next, memory_order_release);
    }
}

static void trip(handshake *self, int number)
{
    atomic_store_explicit(&self->ask, number, memory_order_release);
    for (int spins = 0;
         atomic_load_explicit(&self->answer, memory_order_acquire) < number;
         spins += spins < SPINS) {
        pause_or_yield(spins);
    }
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double median_us(int64_t *times_ns, size_t count, int trips)
{
    qsort(times_ns, count, sizeof(*times_ns), by_value);
    size_t middle = count / 2;
    return (double)times_ns[middle] / 1e3 / trips;
}

/* Both figures, of fewer trips where there is no time for all. */
static void measure(handshake *self, double *line_us, double *hand_us)
{
    int64_t times_ns[BATCHES > HANDS ? BATCHES : HANDS];
    int64_t limit_ns = wefti_clock_ns() + (int64_t)LIMIT_MS * 1000000;
    int number = 0;
    size_t taken = 0;
    while (taken < BATCHES && (!taken || wefti_clock_ns() < limit_ns)) {
        int64_t begin_ns = wefti_clock_ns();
        for (int i = 0; i < TRIPS; i++) {
            trip(self, ++number);
        }
        times_ns[taken++] = wefti_clock_ns() - begin_ns;
    }
    *line_us = median_us(times_ns, taken, TRIPS);
    atomic_store_explicit(&self->hands, 1, memory_order_relaxed);
    limit_ns = wefti_clock_ns() + (int64_t)LIMIT_MS * 1000000;
    for (taken = 0; taken < HANDS && (!taken || wefti_clock_ns() < limit_ns);) {
        memset(self->data, number, HAND_BYTES);
        int64_t begin_ns = wefti_clock_ns();
        trip(self, ++number);
        times_ns[taken++] = wefti_clock_ns() - begin_ns;
    }
    *hand_us = median_us(times_ns, taken, 1);
}

static int find_cores(int cores[2])
{
    cpu_set_t set;
    int found = 0;
    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        return 0;
    }
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++) {
        if (CPU_ISSET(core, &set)) {
            cores[found++] = core;
        }
    }
    return found;
}

int main(void)
{
    static handshake shared;
    int cores[2];
    double line_us = NAN, hand_us = NAN;
    if (find_cores(cores) == 2) {
        pthread_t other;
        shared.core = cores[1];
        bind_to(cores[0]);
        if (pthread_create(&other, NULL, answer, &shared) != 0) {
            fprintf(stderr, "peers-mode: no second thread\n");
            return EXIT_FAILURE;
        }
        measure(&shared, &line_us, &hand_us);
        atomic_store_explicit(&shared.ends, 1, memory_order_relaxed);
        pthread_join(other, NULL);
    }
    wefti_json json;
    wefti_json_init(&json, stdout);
    wefti_json_object_open(&json, NULL);
    wefti_json_real(&json, "line_us", line_us);
    wefti_json_real(&json, "hand_us", hand_us);
    wefti_json_object_close(&json);
    return wefti_json_fini(&json) == WEFT_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
