/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peak multiply-adds in registers, and the bandwidth of a copy.
 */
#include "tests/kernels/roofline.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHAINS = 12, ROUNDS = 20000, TRIES = 12 };

double roofline_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/*
 * CHAINS independent chains of dependent multiply-adds hide their latency; the
 * empty asm keeps every chain alive and in a register.
 */
#define PEAK(name, bytes, attribute, constraint)                               \
    attribute static void name(void)                                           \
    {                                                                          \
        typedef real wide __attribute__((vector_size(bytes)));                 \
        wide chain[CHAINS];                                                    \
        wide factor = (wide){0} + WEFTI_REAL(0.5), term = factor;              \
                                                                               \
        _Pragma("GCC unroll 16") for (size_t c = 0; c < CHAINS; c++)           \
            chain[c] = (wide){0} + (real)c;                                    \
        for (size_t n = 0; n < ROUNDS; n++)                                    \
            _Pragma("GCC unroll 16") for (size_t c = 0; c < CHAINS; c++)       \
            {                                                                  \
                chain[c] = chain[c] * factor + term;                           \
                __asm__ volatile("" : "+" constraint(chain[c]));               \
            }                                                                  \
    }

#if defined(__x86_64__)
PEAK(peak_16, 16, , "x")
PEAK(peak_32, 32, __attribute__((target("avx2,fma"))), "x")
PEAK(peak_64, 64, __attribute__((target("avx512f,fma"))), "v")
#else
PEAK(peak_16, 16, , "w")
#endif

static double best_rate(void (*run)(void), size_t bytes)
{
    double best = 0;
    double flops = 2.0 * CHAINS * ROUNDS * (double)(bytes / sizeof(real));

    for (int n = 0; n < TRIES; n++) {
        double start = roofline_clock();

        run();

        double rate = flops / (roofline_clock() - start);

        best = rate > best ? rate : best;
    }
    return best;
}

double roofline_base_flops(void)
{
    return best_rate(peak_16, 16);
}

double roofline_flops(void)
{
    double best = roofline_base_flops();

#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        double rate = best_rate(peak_32, 32);

        best = rate > best ? rate : best;
    }
    if (__builtin_cpu_supports("avx512f")) {
        double rate = best_rate(peak_64, 64);

        best = rate > best ? rate : best;
    }
#endif
    return best;
}

double roofline_bandwidth(size_t working_set_bytes)
{
    size_t half = (working_set_bytes / 2 + 63) / 64 * 64;
    size_t passes = 1 + (4u << 20) / half;
    char *from = aligned_alloc(64, half), *to = aligned_alloc(64, half);
    double best = 0;

    if (!from || !to)
        abort();
    memset(from, 1, half);
    memset(to, 2, half);
    for (int n = 0; n < TRIES; n++) {
        double start = roofline_clock();

        for (size_t pass = 0; pass < passes; pass++) {
            memcpy(to, from, half);
            __asm__ volatile("" : : "r"(to), "r"(from) : "memory");
        }

        double rate =
            2.0 * (double)half * (double)passes / (roofline_clock() - start);

        best = rate > best ? rate : best;
    }
    free(from);
    free(to);
    return best;
}
