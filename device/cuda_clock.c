/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_clock.c - when an event of a GPU happened, on the host's clock.
 *
 * The driver only says how many milliseconds lie between two events, in a
 * float. So there is an event whose time on the host is known, the base, and
 * the others are so much later or earlier. A float that counts a second is
 * exact to 60 ns, and the clocks of GPU and host drift apart by some
 * microseconds in that time: a base is used for a tenth of it.
 *
 *      host    before |------- base happened -------| after
 *      device                     ^ taken as the middle
 *
 * Of some tries the one with the least between before and after is kept: half
 * of it is the error. A new base takes the place of an older one only where it
 * is the better one of the two, the drift of the older counted.
 */
#include "base/clock.h"
#include "base/error.h"
#include "device/cuda_gpu.h"

#include <math.h>
#include <stdlib.h>

enum {
    TRIES = 8,
    GOOD_NS = 20 * 1000,       /* no try is much better than this */
    PATIENCE_NS = 2000 * 1000, /* for all tries, but for the first base, */
    FIRST_PATIENCE_NS = 200 * 1000 * 1000, /* each try of which has so long */
    DRIFT_PPM = 100,                       /* of two clocks, at most */
    FRESH_NS = 100 * 1000 * 1000
};

struct wefti_cuda_clock {
    pthread_mutex_t lock; /* guards all */
    struct CUevent_st *base, *spare;
    int64_t base_ns;  /* of base, on the host; 0: not yet */
    int64_t error_ns; /* of base_ns */
};

weft_status wefti_cuda_clock_create(wefti_cuda_gpu *gpu)
{
    struct wefti_cuda_clock *clock = calloc(1, sizeof(*clock));
    if (!clock) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a device");
    }
    weft_status status = wefti_cuda_check(
        gpu, gpu->api->cuEventCreate(&clock->base, WEFTI_CU_EVENT_DEFAULT),
        "cuEventCreate");
    if (status < 0) {
        goto err_free;
    }
    status = wefti_cuda_check(
        gpu, gpu->api->cuEventCreate(&clock->spare, WEFTI_CU_EVENT_DEFAULT),
        "cuEventCreate");
    if (status < 0) {
        goto err_base;
    }
    pthread_mutex_init(&clock->lock, NULL);
    gpu->clock = clock;
    return WEFT_OK;

err_base:
    wefti_cuda_note(gpu, gpu->api->cuEventDestroy(clock->base));
err_free:
    free(clock);
    return status;
}

void wefti_cuda_clock_destroy(wefti_cuda_gpu *gpu)
{
    struct wefti_cuda_clock *clock = gpu->clock;
    wefti_cuda_note(gpu, gpu->api->cuEventDestroy(clock->spare));
    wefti_cuda_note(gpu, gpu->api->cuEventDestroy(clock->base));
    pthread_mutex_destroy(&clock->lock);
    free(clock);
}

/* Records the spare event; *error_out is how uncertain its time is. INPROGRESS:
 * it has not happened in time. The stream is idle, but the GPU may have put it
 * on one connection with a stream that stands at a gate, perhaps for this very
 * thread (CUDA_DEVICE_MAX_CONNECTIONS). */
static weft_status try_base(wefti_cuda_gpu *gpu, int64_t patience_ns,
                            int64_t *ns_out, int64_t *error_out)
{
    const int64_t before = wefti_clock_ns();
    int64_t after = before;
    int result = gpu->api->cuEventRecord(gpu->clock->spare, gpu->stream);
    if (result == WEFTI_CUDA_SUCCESS) {
        do {
            result = gpu->api->cuEventQuery(gpu->clock->spare);
            after = wefti_clock_ns();
        } while (result == WEFTI_CUDA_ERROR_NOT_READY &&
                 after - before < patience_ns);
    }
    *ns_out = before + (after - before) / 2;
    *error_out = (after - before) / 2;
    return result == WEFTI_CUDA_ERROR_NOT_READY
               ? WEFT_INPROGRESS
               : wefti_cuda_check(gpu, result, "base of event times");
}

static int64_t get_drift(int64_t distance)
{
    return (distance < 0 ? -distance : distance) / 1000000 * DRIFT_PPM;
}

/* A new base, the best of some tries, if it is better than that of now.
 * INPROGRESS: there is none yet. */
static weft_status renew_locked(wefti_cuda_gpu *gpu, int64_t distance)
{
    struct wefti_cuda_clock *clock = gpu->clock;
    const bool first = clock->base_ns == 0;
    const int64_t end_ns = wefti_clock_ns() + PATIENCE_NS;
    int64_t best = first ? INT64_MAX : clock->error_ns + get_drift(distance);
    int64_t ns = 0, error = INT64_MAX;
    weft_status status = WEFT_OK;
    for (int i = 0; status == WEFT_OK && i < TRIES && error > GOOD_NS &&
                    (i == 0 || first || wefti_clock_ns() < end_ns);
         i++) {
        status =
            try_base(gpu, first ? FIRST_PATIENCE_NS : PATIENCE_NS, &ns, &error);
        if (status == WEFT_OK && error <= best) {
            struct CUevent_st *older = clock->base;
            clock->base = clock->spare;
            clock->spare = older;
            clock->base_ns = ns;
            clock->error_ns = best = error;
        }
    }
    return status == WEFT_INPROGRESS && clock->base_ns ? WEFT_OK : status;
}

static weft_status read_locked(wefti_cuda_gpu *gpu, struct CUevent_st *event,
                               int64_t *distance_out)
{
    float ms = 0;
    const int result =
        gpu->api->cuEventElapsedTime(&ms, gpu->clock->base, event);
    *distance_out = (int64_t)llround((double)ms * 1e6);
    return result == WEFTI_CUDA_ERROR_NOT_READY
               ? WEFT_INPROGRESS
               : wefti_cuda_check(gpu, result, "cuEventElapsedTime");
}

/* The base is renewed once an event is far from it, not behind each. */
weft_status wefti_cuda_clock_read(wefti_cuda_gpu *gpu, struct CUevent_st *event,
                                  int64_t *ns_out, int64_t *error_ns_out)
{
    struct wefti_cuda_clock *clock = gpu->clock;
    int64_t distance = 0;
    pthread_mutex_lock(&clock->lock);
    weft_status status = clock->base_ns ? WEFT_OK : renew_locked(gpu, 0);
    if (status == WEFT_OK) {
        status = read_locked(gpu, event, &distance);
    }
    if (status == WEFT_OK && distance > FRESH_NS) {
        status = renew_locked(gpu, distance);
        if (status == WEFT_OK) {
            status = read_locked(gpu, event, &distance);
        }
    }
    *ns_out = clock->base_ns + distance;
    if (error_ns_out) {
        *error_ns_out = clock->error_ns + get_drift(distance);
    }
    pthread_mutex_unlock(&clock->lock);
    return status;
}
