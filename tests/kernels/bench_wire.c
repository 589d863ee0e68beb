/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How fast kernels/wire is beside memcpy and plain loops, as ratios of the same
 * run: the competitors take turns, medians are compared.
 *
 *   bench_wire          prints bytes per call, weft's GB/s of payload (bytes
 *                       read and written), and its speed over the plain one's.
 *   bench_wire --types  GB/s of each reduction of two sources of 64 KiB, by
 *                       type; elements are small positive numbers.
 */
#include "base/check.h"
#include "base/clock.h"
#include "kernels/wire/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 15, MOST_SOURCES = 8, LEAST_WORK_BYTES = 8 << 20 };

typedef struct bench_job {
    const void *sources[MOST_SOURCES];
    void *dst;
    size_t bytes; /* of each buffer */
} bench_job;

typedef struct bench_contest {
    const char *name;
    size_t buffers; /* read or written, for the rate */
    void (*weft)(const bench_job *job);
    void (*plain)(const bench_job *job);
} bench_contest;

static void copy_weft(const bench_job *job)
{
    wefti_copy(job->dst, job->sources[0], job->bytes);
}

static void copy_plain(const bench_job *job)
{
    memcpy(job->dst, job->sources[0], job->bytes);
}

static void reduce(const bench_job *job, size_t count, weft_dtype dtype)
{
    wefti_reduce(job->dst, job->sources, count,
                 job->bytes / weft_dtype_bytes(dtype), dtype, WEFT_REDOP_SUM);
}

static void reduce_2(const bench_job *job)
{
    reduce(job, 2, WEFT_DTYPE_F32);
}

static void reduce_4(const bench_job *job)
{
    reduce(job, 4, WEFT_DTYPE_F32);
}

static void reduce_8(const bench_job *job)
{
    reduce(job, 8, WEFT_DTYPE_F32);
}

static void reduce_bf16(const bench_job *job)
{
    reduce(job, 2, WEFT_DTYPE_BF16);
}

static void reduce_f16(const bench_job *job)
{
    reduce(job, 2, WEFT_DTYPE_F16);
}

static void reduce_f16_4(const bench_job *job)
{
    reduce(job, 4, WEFT_DTYPE_F16);
}

static void reduce_e4m3(const bench_job *job)
{
    reduce(job, 2, WEFT_DTYPE_F8E4M3);
}

static void reduce_e5m2(const bench_job *job)
{
    reduce(job, 2, WEFT_DTYPE_F8E5M2);
}

static void reduce_max(const bench_job *job)
{
    wefti_reduce(job->dst, job->sources, 2, job->bytes / 4, WEFT_DTYPE_F32,
                 WEFT_REDOP_MAX);
}

static void reduce_bxor(const bench_job *job)
{
    wefti_reduce(job->dst, job->sources, 2, job->bytes / 4, WEFT_DTYPE_U32,
                 WEFT_REDOP_BXOR);
}

static void scale_f32(const bench_job *job)
{
    float factor = 0.5f;
    wefti_scale(job->dst, job->sources[0], &factor, job->bytes / 4,
                WEFT_DTYPE_F32);
}

static void scale_bf16(const bench_job *job)
{
    uint16_t factor = 0x3f00;
    wefti_scale(job->dst, job->sources[0], &factor, job->bytes / 2,
                WEFT_DTYPE_BF16);
}

static void reduce_in_place(const bench_job *job)
{
    const void *sources[2] = {job->dst, job->sources[0]};
    wefti_reduce(job->dst, sources, 2, job->bytes / 4, WEFT_DTYPE_F32,
                 WEFT_REDOP_SUM);
}

/* What a caller would write, built with the flags of this file. */
static void add_to(float *restrict dst, const float *restrict src, size_t elems)
{
    for (size_t i = 0; i < elems; i++) {
        dst[i] += src[i];
    }
}

static void add(float *restrict dst, const float *restrict a,
                const float *restrict b, size_t elems)
{
    for (size_t i = 0; i < elems; i++) {
        dst[i] = a[i] + b[i];
    }
}

static void plain_in_place(const bench_job *job)
{
    add_to(job->dst, job->sources[0], job->bytes / 4);
}

static void plain_2(const bench_job *job)
{
    add(job->dst, job->sources[0], job->sources[1], job->bytes / 4);
}

static void plain_4(const bench_job *job)
{
    plain_2(job);
    add_to(job->dst, job->sources[2], job->bytes / 4);
    add_to(job->dst, job->sources[3], job->bytes / 4);
}

static void plain_8(const bench_job *job)
{
    plain_2(job);
    for (size_t k = 2; k < 8; k++) {
        add_to(job->dst, job->sources[k], job->bytes / 4);
    }
}

static const bench_contest contests[] = {
    {"copy / memcpy", 2, copy_weft, copy_plain},
    {"f32 a += b / loop", 3, reduce_in_place, plain_in_place},
    {"f32 c = a + b / loop", 3, reduce_2, plain_2},
    {"bf16 c = a + b / f32 loop", 3, reduce_bf16, plain_2},
    {"f16 c = a + b / f32 loop", 3, reduce_f16, plain_2},
    {"f16 4 sources / f32 loops", 5, reduce_f16_4, plain_4},
    {"f8e4m3 c = a + b / f32 loop", 3, reduce_e4m3, plain_2},
    {"f8e5m2 c = a + b / f32 loop", 3, reduce_e5m2, plain_2},
    {"f32 c = max(a, b) / loop", 3, reduce_max, plain_2},
    {"u32 c = a ^ b / f32 loop", 3, reduce_bxor, plain_2},
    {"f32 c = s a / memcpy", 2, scale_f32, copy_plain},
    {"bf16 c = s a / memcpy", 2, scale_bf16, copy_plain},
    {"f32 4 sources / loops", 5, reduce_4, plain_4},
    {"f32 8 sources / loops", 9, reduce_8, plain_8},
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double time_one(void (*call)(const bench_job *job), const bench_job *job)
{
    size_t repeats = LEAST_WORK_BYTES / job->bytes + 1;
    int64_t start_ns = wefti_clock_ns();
    for (size_t i = 0; i < repeats; i++) {
        call(job);
    }
    return (double)(wefti_clock_ns() - start_ns) / (double)repeats;
}

static void run(const bench_contest *contest, const bench_job *job)
{
    double weft_ns[ROUNDS];
    double plain_ns[ROUNDS];
    for (size_t r = 0; r < ROUNDS; r++) {
        weft_ns[r] = time_one(contest->weft, job);
        plain_ns[r] = time_one(contest->plain, job);
    }
    qsort(weft_ns, ROUNDS, sizeof(double), compare);
    qsort(plain_ns, ROUNDS, sizeof(double), compare);
    double ns = weft_ns[ROUNDS / 2];
    printf("%-28s %9zu %8.1f GB/s %6.2f\n", contest->name, job->bytes,
           (double)(contest->buffers * job->bytes) / ns,
           plain_ns[ROUNDS / 2] / ns);
}

/* Of the whole buffers: 3/4, 1 or 3/2, whichever the type. */
static void fill(unsigned char *at, size_t bytes, weft_dtype dtype)
{
    static const float values[] = {0.75f, 1, 1.5f};
    const size_t width = weft_dtype_bytes(dtype),
                 wide = wefti_wide_bytes(dtype);
    for (size_t i = 0; i < bytes / width; i++) {
        const float value = values[i % WEFTI_COUNT_OF(values)];
        const double longer = (double)value;
        if (weft_dtype_kind(dtype) != WEFT_KIND_FLOAT) {
            memset(at + i * width, 0, width);
            at[i * width] = (unsigned char)(i % 7);
        } else if (wide == sizeof(longer)) {
            memcpy(at + i * width, &longer, width);
        } else {
            wefti_narrow(at + i * width, &value, 1, 1, dtype, WEFT_REDOP_SUM);
        }
    }
}

static int64_t time_reduce(const bench_job *job, weft_dtype dtype,
                           weft_redop redop)
{
    enum { REPEATS = 64 };
    int64_t start_ns = wefti_clock_ns();
    for (int i = 0; i < REPEATS; i++) {
        wefti_reduce(job->dst, job->sources, 2,
                     job->bytes / weft_dtype_bytes(dtype), dtype, redop);
    }
    return (wefti_clock_ns() - start_ns) / REPEATS;
}

static void run_types(const bench_job *job, unsigned char *memory, size_t bytes)
{
    for (int d = 0; d < WEFT_DTYPE_COUNT; d++) {
        fill(memory, bytes, (weft_dtype)d);
        printf("%-8s", weft_dtype_text((weft_dtype)d));
        for (int o = 0; o < WEFT_REDOP_COUNT; o++) {
            int64_t least_ns = INT64_MAX;
            if (!weft_redop_applies((weft_redop)o, (weft_dtype)d)) {
                continue;
            }
            for (int r = 0; r < ROUNDS; r++) {
                int64_t ns = time_reduce(job, (weft_dtype)d, (weft_redop)o);
                least_ns = ns < least_ns ? ns : least_ns;
            }
            printf("  %s %.1f", weft_redop_text((weft_redop)o),
                   (double)(3 * job->bytes) / (double)least_ns);
        }
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {4096, 65536, 1 << 20, 16 << 20};
    const size_t most = sizes[WEFTI_COUNT_OF(sizes) - 1];
    unsigned char *memory = aligned_alloc(4096, most * (MOST_SOURCES + 1));
    bench_job job = {.dst = memory};

    if (memory == NULL) {
        fprintf(stderr, "bench_wire: no memory\n");
        return 1;
    }
    memset(memory, 0, most * (MOST_SOURCES + 1)); /* map it */
    if (argc == 2 && strcmp(argv[1], "--types") == 0) {
        job.bytes = sizes[1];
        job.sources[0] = memory + sizes[1];
        job.sources[1] = memory + 2 * sizes[1];
        run_types(&job, memory, 3 * sizes[1]);
        free(memory);
        return 0;
    }
    for (size_t s = 0; s < WEFTI_COUNT_OF(sizes); s++) {
        job.bytes = sizes[s];
        for (size_t k = 0; k < MOST_SOURCES; k++) {
            job.sources[k] = memory + (k + 1) * most;
        }
        for (size_t c = 0; c < WEFTI_COUNT_OF(contests); c++) {
            run(&contests[c], &job);
        }
    }
    free(memory);
    return 0;
}
