// SPDX-License-Identifier: BSD-3-Clause
/*
 * Two processes on one device: do their kernels run at once, does a kernel that
 * spins on the other's memory get its answer, do copies run beside the other's
 * kernel, do green contexts of both run at once.
 *
 * A kernel that counts its turns for a fixed time tells whether it had the
 * device to itself: half the turns and long gaps mean that the two took turns.
 */
#include "cu.h"

#define BEAT_NS    100000000ull
#define COPY_BYTES ((size_t)256 << 20)
#define ROUNDS     20
#define LIMIT_US   3e6

struct side {
    int fd;
    CUstream stream;
    CUdeviceptr started, out;
    unsigned *started_host;
    unsigned long long *out_host;
};

static struct side open_side(int fd)
{
    struct side s = {.fd = fd};
    gpu_open();
    s.stream = gpu_stream();
    s.started_host = gpu_pinned(64, &s.started);
    s.out_host = gpu_pinned(64, &s.out);
    gpu_kernel("beat");
    return s;
}

static unsigned long long run_beat(struct side *s, CUstream stream)
{
    unsigned long long limit_ns = BEAT_NS;
    LAUNCH(stream, "beat", 1, 1, &s->started, &limit_ns, &s->out);
    CU(cuStreamSynchronize(stream));
    return s->out_host[0];
}

static CUstream half_stream(int which)
{
    CUdevResource all, groups[2], rest;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CUstream stream;
    unsigned made = 2, sms = (unsigned)gpu_sms() / 16 * 8;
    CU(cuDeviceGetDevResource(gpu_device(), &all, CU_DEV_RESOURCE_TYPE_SM));
    CU(cuDevSmResourceSplitByCount(groups, &made, &all, &rest, 0, sms));
    if (made != 2)
        give_up("a split into two halves made %u groups", made);
    CU(cuDevResourceGenerateDesc(&desc, &groups[which], 1));
    CU(cuGreenCtxCreate(&green, desc, gpu_device(),
                        CU_GREEN_CTX_DEFAULT_STREAM));
    CU(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

static double copy_ms(struct side *s, CUdeviceptr from, void *to)
{
    double start_us = now_us();
    CU(cuMemcpyDtoHAsync(to, from, COPY_BYTES, s->stream));
    CU(cuStreamSynchronize(s->stream));
    return (now_us() - start_us) / 1e3;
}

static void spin_on_peer(struct side *s, CUdeviceptr flag)
{
    double us[ROUNDS];
    unsigned long long limit_ns = 2000000000, marked_ns;
    *s->started_host = 0;
    for (unsigned i = 1; i <= ROUNDS; i++) {
        LAUNCH(s->stream, "spin", 1, 1, &flag, &i, &s->started, &limit_ns,
               &s->out);
        if (!host_await(s->started_host, i, LIMIT_US))
            give_up("a kernel did not start in %.0f s beside the other process",
                    LIMIT_US / 1e6);
        peer_meet(s->fd);
        CU(cuStreamSynchronize(s->stream));
        peer_recv(s->fd, &marked_ns, sizeof(marked_ns));
        if (!s->out_host[2])
            give_up("spinning_on_other: not released in 2 s");
        us[i - 1] = ((double)s->out_host[1] - (double)marked_ns) / 1e3;
    }
    fact_spread("spinning_on_other", us, ROUNDS, "us",
                "the other process's kernel writes, ours spins; device clock");
}

static void mark_for_peer(struct side *s, CUdeviceptr flag)
{
    for (unsigned i = 1; i <= ROUNDS; i++) {
        peer_meet(s->fd);
        LAUNCH(s->stream, "mark", 1, 1, &flag, &i, &s->out);
        CU(cuStreamSynchronize(s->stream));
        peer_send(s->fd, &s->out_host[0], sizeof(s->out_host[0]));
    }
}

static void other(int fd, int variant)
{
    (void)variant;
    struct side s = open_side(fd);
    CUipcMemHandle handle;
    CUdeviceptr flag = gpu_alloc(64);
    unsigned long long limit_ns = BEAT_NS;
    peer_meet(fd); /* first has run alone */
    peer_meet(fd);
    run_beat(&s, s.stream); /* at once with the first */
    CUstream half = half_stream(1);
    peer_meet(fd);
    run_beat(&s, half);
    peer_meet(fd); /* the first has copied alone */
    *s.started_host = 0;
    LAUNCH(s.stream, "beat", 1, 1, &s.started, &limit_ns, &s.out);
    host_await(s.started_host, 1, LIMIT_US);
    peer_meet(fd); /* the first copies beside it */
    CU(cuStreamSynchronize(s.stream));
    CU(cuIpcGetMemHandle(&handle, flag));
    peer_send(fd, &handle, sizeof(handle));
    mark_for_peer(&s, flag);
    peer_meet(fd);
}

static void report_turns(const char *name, const struct side *s,
                         unsigned long long alone)
{
    char longest[72];
    fact_number(name, (double)s->out_host[0] / (double)alone, "of alone",
                "turns of a counting kernel in 100 ms beside the other's");
    snprintf(longest, sizeof(longest), "%s_longest_gap", name);
    fact_number(longest, (double)s->out_host[1] / 1e3, "us",
                "longest time between two turns");
}

void q_pair(int variant)
{
    int fd = peer_start(other, variant);
    struct side s = open_side(fd);
    CUipcMemHandle handle;
    CUdeviceptr flag, from = gpu_alloc(COPY_BYTES);
    void *to = gpu_pinned(COPY_BYTES, NULL);
    fact_text("under_mps", "device attribute 133", "%s",
              gpu_attribute(CU_DEVICE_ATTRIBUTE_MPS_ENABLED) ? "yes" : "no");
    unsigned long long alone = run_beat(&s, s.stream);
    peer_meet(fd);
    peer_meet(fd);
    run_beat(&s, s.stream);
    report_turns("kernels_at_once", &s, alone);
    CUstream half = half_stream(0);
    peer_meet(fd);
    run_beat(&s, half);
    report_turns("green_contexts_at_once", &s, alone);
    copy_ms(&s, from, to);
    double alone_ms = copy_ms(&s, from, to);
    peer_meet(fd);
    peer_meet(fd);
    fact_number("copy_beside_other_kernel", copy_ms(&s, from, to) / alone_ms,
                "times alone", "256 MiB down while the other runs a kernel");
    peer_recv(fd, &handle, sizeof(handle));
    CU(cuIpcOpenMemHandle(&flag, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    spin_on_peer(&s, flag);
    peer_meet(fd);
}
