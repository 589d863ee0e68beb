// SPDX-License-Identifier: BSD-3-Clause
// The kernels of gpu-facts. The program carries this text and compiles it with
// nvrtc on the machine it asks. Each one that waits has a limit of its own.

typedef unsigned long long u64;

static __device__ u64 gpu_ns(void)
{
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

// Two random bf16 in [-1, 1) a word.
extern "C" __global__ void fill(unsigned *words, u64 n, unsigned seed)
{
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        unsigned x = ((unsigned)i ^ seed) * 2654435761u;
        x ^= x >> 15;
        x *= 2246822519u;
        x ^= x >> 13;
        unsigned low = __float_as_uint((x & 0xffff) / 32768.0f - 1.0f);
        unsigned high = __float_as_uint((x >> 16) / 32768.0f - 1.0f);
        words[i] = low >> 16 | (high & 0xffff0000u);
    }
}

// Random e4m3 bytes without NaN.
extern "C" __global__ void fill_e4m3(unsigned char *bytes, u64 n, unsigned seed)
{
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        unsigned x = ((unsigned)i ^ seed) * 2654435761u;
        bytes[i] = (unsigned char)((x >> 24) & 0xb7);
    }
}

extern "C" __global__ void copy(uint4 *to, const uint4 *from, u64 n)
{
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        to[i] = from[i];
}

// What a reducing collective does: to = a + b, over and over, until *stop or
// the limit. out[2 b], out[2 b + 1]: bytes and ns of block b.
extern "C" __global__ void reduce(float4 *to, const float4 *a, const float4 *b,
                                  u64 n, volatile unsigned *started,
                                  volatile unsigned *stop, u64 limit_ns,
                                  u64 *out)
{
    __shared__ int done;
    u64 begin = gpu_ns(), rounds = 0;
    u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 step = (u64)gridDim.x * blockDim.x, at = first;
    if (first == 0)
        *started = 1;
    for (;;) {
        if (threadIdx.x == 0)
            done = *stop || gpu_ns() - begin > limit_ns;
        __syncthreads();
        if (done)
            break;
        for (int i = 0; i < 64; i++) {
            float4 x[4], y[4];
            if (at + 3 * step >= n)
                at = first;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                x[j] = a[at + j * step];
                y[j] = b[at + j * step];
            }
#pragma unroll
            for (int j = 0; j < 4; j++)
                to[at + j * step] =
                    make_float4(x[j].x + y[j].x, x[j].y + y[j].y,
                                x[j].z + y[j].z, x[j].w + y[j].w);
            at += 4 * step;
        }
        rounds += 256;
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        out[2 * blockIdx.x] = rounds * blockDim.x * 48;
        out[2 * blockIdx.x + 1] = gpu_ns() - begin;
    }
}

// Waits until *flag is WANT or beyond, or the limit. out: ns at begin, ns at
// end, whether it was seen.
extern "C" __global__ void spin(volatile unsigned *flag, unsigned want,
                                volatile unsigned *started, u64 limit_ns,
                                u64 *out)
{
    u64 begin = gpu_ns(), now = begin;
    *started = want;
    int seen = 0;
    while (!seen && now - begin < limit_ns) {
        seen = (int)(*flag - want) >= 0;
        now = gpu_ns();
    }
    out[0] = begin;
    out[1] = now;
    out[2] = seen;
    __threadfence_system();
}

// Writes the time, then the flag.
extern "C" __global__ void mark(volatile unsigned *flag, unsigned value,
                                u64 *out)
{
    out[0] = gpu_ns();
    __threadfence_system();
    *flag = value;
    __threadfence_system();
}

// Each block notes its multiprocessor, begin and end, and holds for a while.
extern "C" __global__ void hold(u64 *out, u64 hold_ns)
{
    u64 begin = gpu_ns(), now = begin;
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    while (now - begin < hold_ns)
        now = gpu_ns();
    if (threadIdx.x == 0) {
        out[3 * blockIdx.x] = sm;
        out[3 * blockIdx.x + 1] = begin;
        out[3 * blockIdx.x + 2] = now;
    }
}

// Counts its own turns until the limit: out: turns, the longest time between
// two (how long another context had the machine), ns at begin.
extern "C" __global__ void beat(volatile unsigned *started, u64 limit_ns,
                                u64 *out)
{
    u64 begin = gpu_ns(), last = begin, turns = 0, longest = 0;
    *started = 1;
    while (last - begin < limit_ns) {
        u64 now = gpu_ns();
        if (now - last > longest)
            longest = now - last;
        last = now;
        turns++;
    }
    out[0] = turns;
    out[1] = longest;
    out[2] = begin;
}

// How finely the clock ticks: the smallest step seen.
extern "C" __global__ void ticks(u64 *out)
{
    u64 smallest = ~0ull, last = gpu_ns();
    for (int i = 0; i < 100000; i++) {
        u64 now = gpu_ns();
        if (now != last && now - last < smallest)
            smallest = now - last;
        last = now;
    }
    out[0] = smallest;
}

extern "C" __global__ void fail(void)
{
    asm volatile("trap;");
}
