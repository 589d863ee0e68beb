/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/bench_post.c - what a post costs its caller while 16 MiB are in
 * flight, beside the bare cost of waking a thread. Not a test: prints.
 *
 *   weft-run -n 2 --bind core bench_post
 *
 * The caller computes for 100 us between posts, as a trainer does. A post may
 * have to wake weft's thread; "bare" is a futex call that wakes a thread which
 * sleeps on the same processors, the caller's share of it.
 */
#include "base/clock.h"
#include "base/doorbell.h"
#include "base/relax.h"
#include "tests/comm/all_reduce_op.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <sys/resource.h>

enum {
    POSTS = 4000,
    SMALL = 1024,
    LARGE = 4 << 20,
    COMPUTE_NS = 100000,
    SLOW_NS = 2000
};

static void must(weft_status status)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "bench_post: %s\n", weft_error_text());
        exit(1);
    }
}

static void compute(void)
{
    const int64_t until_ns = wefti_clock_ns() + COMPUTE_NS;
    while (wefti_clock_ns() < until_ns) {
        wefti_relax();
    }
}

static int by_size(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

/* Of the posts that took longer than SLOW_NS: how many gave the processor up,
 * as they waited for a lock; how many it was taken from; and the others, which
 * woke a thread. */
typedef struct slow {
    int count, slept, preempted;
} slow;

static void count_slow(slow *counts, const struct rusage *before,
                       int64_t took_ns)
{
    struct rusage now;
    if (took_ns > SLOW_NS) {
        (void)getrusage(RUSAGE_THREAD, &now);
        counts->count++;
        counts->slept += now.ru_nvcsw > before->ru_nvcsw;
        counts->preempted += now.ru_nivcsw > before->ru_nivcsw;
    }
}

static void print(int rank, const char *what, int64_t *took_ns)
{
    qsort(took_ns, POSTS, sizeof(*took_ns), by_size);
    printf("rank %d: %s: median %.2f us, 90%% %.2f, 99%% %.2f, most %.2f\n",
           rank, what, (double)took_ns[POSTS / 2] / 1e3,
           (double)took_ns[POSTS * 9 / 10] / 1e3,
           (double)took_ns[POSTS * 99 / 100] / 1e3,
           (double)took_ns[POSTS - 1] / 1e3);
}

typedef struct sleeper {
    wefti_doorbell bell;
    _Atomic bool over;
} sleeper;

static void *sleep_again(void *argument)
{
    sleeper *self = argument;
    while (!atomic_load(&self->over)) {
        const uint32_t seen = wefti_doorbell_arm(&self->bell);
        wefti_doorbell_sleep(&self->bell, seen, 1000000000);
        wefti_doorbell_disarm(&self->bell, seen);
    }
    return NULL;
}

static void measure_bare(int64_t *took_ns)
{
    sleeper self = {.over = false};
    pthread_t thread;
    wefti_doorbell_init(&self.bell);
    if (pthread_create(&thread, NULL, sleep_again, &self) != 0) {
        exit(1);
    }
    for (int i = 0; i < POSTS; i++) {
        compute();
        const int64_t begin_ns = wefti_clock_ns();
        wefti_doorbell_ring(&self.bell);
        took_ns[i] = wefti_clock_ns() - begin_ns;
    }
    atomic_store(&self.over, true);
    wefti_doorbell_wake(&self.bell);
    pthread_join(thread, NULL);
}

/* Waits for the large ones and begins them again: one runs, one waits. */
static void keep_large(weft_comm *comm, float **buffers,
                       weft_request **requests)
{
    for (int i = 0; i < 2; i++) {
        if (requests[i]) {
            must(weft_request_wait(requests[i]));
            weft_request_destroy(requests[i]);
        }
    }
    for (int i = 0; i < 2; i++) {
        const weft_op op = all_reduce_op(buffers[i], LARGE, WEFT_DTYPE_F32);
        must(weft_op_begin(&op, 0, comm, &requests[i]));
    }
}

static void measure_posts(weft_comm *comm, weft_comm *other,
                          weft_stream *stream, bool large, int64_t *took_ns)
{
    float *small = calloc(SMALL, sizeof(*small));
    float *buffers[2] = {calloc(LARGE, sizeof(float)),
                         calloc(LARGE, sizeof(float))};
    weft_request *requests[2] = {NULL, NULL};
    weft_op op = all_reduce_op(small, SMALL, WEFT_DTYPE_F32);
    slow counts = {0, 0, 0};
    op.class_id = WEFT_CLASS_TP;
    for (int i = 0; i < POSTS; i++) {
        if (large && i % 40 == 0) {
            keep_large(comm, buffers, requests);
        }
        compute();
        struct rusage before;
        (void)getrusage(RUSAGE_THREAD, &before);
        const int64_t begin_ns = wefti_clock_ns();
        must(weft_op_post(&op, 0, other, stream));
        took_ns[i] = wefti_clock_ns() - begin_ns;
        count_slow(&counts, &before, took_ns[i]);
    }
    printf("rank %d: of %d posts %d took more than 2 us: %d waited for a lock, "
           "%d were preempted\n",
           weft_comm_get_rank(comm), POSTS, counts.count, counts.slept,
           counts.preempted);
    must(weft_stream_wait(stream));
    for (int k = 0; k < 2; k++) {
        if (requests[k]) {
            must(weft_request_wait(requests[k]));
            weft_request_destroy(requests[k]);
        }
        free(buffers[k]);
    }
    free(small);
}

int main(void)
{
    static int64_t took_ns[POSTS];
    weft_comm *comm, *other;
    weft_device *device;
    weft_stream *stream;
    must(weft_comm_create(NULL, &comm));
    const int rank = weft_comm_get_rank(comm);
    must(weft_comm_split(comm, 0, rank, NULL, &other));
    must(weft_device_open("host", 0, &device));
    must(weft_stream_create(device, 0, &stream));
    measure_posts(comm, other, stream, false, took_ns);
    print(rank, "post, nothing else", took_ns);
    measure_posts(comm, other, stream, true, took_ns);
    print(rank, "post beside 16 MiB", took_ns);
    must(weft_barrier(comm, NULL));
    measure_bare(took_ns);
    print(rank, "bare wake-up", took_ns);
    weft_stream_destroy(stream);
    weft_device_close(device);
    weft_comm_destroy(other);
    weft_comm_destroy(comm);
    return 0;
}
