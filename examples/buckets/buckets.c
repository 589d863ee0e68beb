/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * buckets - gradients that are reduced behind the backward pass: eight buckets,
 * made last to first; each is on its way while the next is computed.
 *
 *     cc buckets.c $(pkg-config --cflags --libs weft) -o buckets
 *     weft-run -n 2 ./buckets
 */
#include <weft/weft.h>

#include <stdio.h>
#include <stdlib.h>

enum { BUCKETS = 8, SHARE = 64 * 1024, STEPS = 3 };

static void must(weft_status status, const char *what)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "buckets: %s: %s\n", what, weft_error_text());
        exit(1);
    }
}

/* Stands for a layer's backward pass: what rank adds to element i. */
static float gradient(int rank, size_t i, int step)
{
    return (float)((i + (size_t)step) % 7 + (size_t)rank);
}

static weft_bucket_set *make_set(weft_comm *comm, weft_device *device,
                                 float *gradients)
{
    const size_t nranks = (size_t)weft_comm_get_nranks(comm);
    weft_bucket_extent extents[BUCKETS];
    for (size_t b = 0; b < BUCKETS; b++) {
        extents[b] = (weft_bucket_extent){b * nranks * SHARE, SHARE};
    }
    const weft_bucket_config config = {.size_bytes = sizeof(config),
                                       .comm = comm,
                                       .device = device,
                                       .collective =
                                           WEFT_COLLECTIVE_REDUCESCATTER,
                                       .dtype = WEFT_DTYPE_F32,
                                       .buffer = gradients,
                                       .extents = extents,
                                       .count = BUCKETS,
                                       .backwards = true,
                                       .class_id = WEFT_CLASS_DP,
                                       .label = "gradients"};
    weft_bucket_set *set;
    must(weft_bucket_create(&config, &set), "weft_bucket_create");
    return set;
}

/* One step: makes the gradients, bucket by bucket, and counts wrong sums. */
static size_t run_step(weft_comm *comm, weft_bucket_set *set, float *gradients,
                       int step)
{
    const int rank = weft_comm_get_rank(comm);
    const int nranks = weft_comm_get_nranks(comm);
    const size_t bucket_elems = (size_t)nranks * SHARE;
    size_t wrong = 0;
    must(weft_bucket_begin(set, WEFT_BUCKET_OVERLAPPED), "weft_bucket_begin");
    for (size_t b = BUCKETS; b-- > 0;) {
        for (size_t i = b * bucket_elems; i < (b + 1) * bucket_elems; i++) {
            gradients[i] = gradient(rank, i, step);
        }
        must(weft_bucket_ready(set, b), "weft_bucket_ready");
    }
    for (size_t b = BUCKETS; b-- > 0;) {
        must(weft_bucket_wait(set, b), "weft_bucket_wait");
        const size_t own = b * bucket_elems + (size_t)rank * SHARE;
        for (size_t i = own; i < own + SHARE; i++) {
            float sum = 0;
            for (int r = 0; r < nranks; r++) {
                sum += gradient(r, i, step);
            }
            wrong += gradients[i] != sum;
        }
    }
    return wrong;
}

int main(void)
{
    weft_comm *comm;
    weft_device *device;
    must(weft_comm_create(NULL, &comm), "weft_comm_create");
    must(weft_device_open("host", 0, &device), "weft_device_open");
    const size_t elems =
        (size_t)BUCKETS * SHARE * (size_t)weft_comm_get_nranks(comm);
    float *gradients = malloc(elems * sizeof(*gradients));
    if (!gradients) {
        fprintf(stderr, "buckets: no memory for %zu elements\n", elems);
        return 1;
    }
    weft_bucket_set *set = make_set(comm, device, gradients);
    size_t wrong = 0;
    for (int step = 0; step < STEPS; step++) {
        wrong += run_step(comm, set, gradients, step);
    }
    printf("rank %d of %d: %d steps of %d buckets, %zu sums wrong\n",
           weft_comm_get_rank(comm), weft_comm_get_nranks(comm), STEPS, BUCKETS,
           wrong);
    weft_bucket_destroy(set);
    free(gradients);
    weft_device_close(device);
    weft_comm_destroy(comm);
    return wrong > 0;
}
