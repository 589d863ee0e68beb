// SPDX-License-Identifier: BSD-3-Clause
/*
 * Ceilings of copies: within the device by the driver's copy and by a kernel,
 * to and from pinned host memory, one way and both.
 */
#include "cu.h"

#define DEVICE_BYTES ((size_t)2 << 30)
#define HOST_BYTES   ((size_t)512 << 20)
#define REPEATS      7

struct copies {
    CUdeviceptr a, b;
    void *up, *down;
    CUstream other;
    CUevent fork, join;
};

static void within(CUstream stream, void *arg)
{
    struct copies *c = arg;
    CU(cuMemcpyDtoDAsync(c->b, c->a, DEVICE_BYTES, stream));
}

static void by_kernel(CUstream stream, void *arg)
{
    struct copies *c = arg;
    unsigned long long n = DEVICE_BYTES / 16;
    LAUNCH(stream, "copy", 16 * gpu_sms(), 256, &c->b, &c->a, &n);
}

static void up(CUstream stream, void *arg)
{
    struct copies *c = arg;
    CU(cuMemcpyHtoDAsync(c->a, c->up, HOST_BYTES, stream));
}

static void down(CUstream stream, void *arg)
{
    struct copies *c = arg;
    CU(cuMemcpyDtoHAsync(c->down, c->b, HOST_BYTES, stream));
}

static void both(CUstream stream, void *arg)
{
    struct copies *c = arg;
    CU(cuEventRecord(c->fork, stream));
    CU(cuStreamWaitEvent(c->other, c->fork, 0));
    up(stream, c);
    down(c->other, c);
    CU(cuEventRecord(c->join, c->other));
    CU(cuStreamWaitEvent(stream, c->join, 0));
}

static void rate(struct copies *c, const char *name,
                 void (*run)(CUstream, void *), double bytes, const char *how)
{
    double values[REPEATS];
    gpu_time_ms(gpu_stream(), run, c, REPEATS, values);
    for (int i = 0; i < REPEATS; i++)
        values[i] = bytes / values[i] / 1e6;
    char text[160];
    snprintf(text, sizeof(text), "median of %d by events: %s", REPEATS, how);
    fact_number(name, quantile(values, REPEATS, 0.5), "GB/s", text);
}

void q_copies(int variant)
{
    (void)variant;
    gpu_open();
    struct copies c = {.a = gpu_alloc(DEVICE_BYTES),
                       .b = gpu_alloc(DEVICE_BYTES),
                       .up = gpu_pinned(HOST_BYTES, NULL),
                       .down = gpu_pinned(HOST_BYTES, NULL),
                       .other = gpu_stream(),
                       .fork = gpu_event(false),
                       .join = gpu_event(false)};
    gpu_fill(c.a, DEVICE_BYTES, 1);
    rate(&c, "device_copy", within, 2.0 * DEVICE_BYTES,
         "cuMemcpyDtoDAsync of 2 GiB, bytes read and written");
    rate(&c, "device_copy_by_kernel", by_kernel, 2.0 * DEVICE_BYTES,
         "16-byte loads and stores, 2 GiB, bytes read and written");
    rate(&c, "host_to_device", up, HOST_BYTES, "512 MiB pinned");
    rate(&c, "device_to_host", down, HOST_BYTES, "512 MiB pinned");
    rate(&c, "both_ways", both, 2.0 * HOST_BYTES,
         "512 MiB up and 512 MiB down at once, bytes of both");
}
