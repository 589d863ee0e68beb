/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/copy.c - copies that pass the cache by where that pays.
 *
 * An ordinary store to a line that is not cached first reads the line, and
 * later writes it out again: past the last-level cache that is three movements
 * for two. Non-temporal stores write whole lines from the store buffers. GB/s
 * of 64 KiB calls that walk through a destination of the size in front, source
 * cached, memcpy / non-temporal (EPYC with 32 MiB of L3, both cores busy):
 *
 *      256 KiB  56 / 23      4 MiB  28 / 25      16 MiB  1.3 / 22
 *
 * and of single calls on a Xeon: 16 MiB 14 / 13, 64 MiB 7 / 12. Stores of 16
 * and of 64 bytes were equally fast, so one version serves all of x86-64.
 *
 * What is written past the cache is read from memory, so that a transfer ends
 * sooner may only put time off. Two ranks of that Xeon, an all-to-all through
 * 512 KiB of staging, ms until it ended / until its result was read too, with
 * the non-temporal stores in front:
 *
 *                 1 MiB       4 MiB       8 MiB     16 MiB     64 MiB
 *   none        .11 / .12   .50 / .65   1.1 / 1.5  3.3 / 4.3  14 / 19
 *   peer's part .10 / .14   .48 / .70   1.1 / 1.5  2.9 / 4.0  12 / 17
 *   whole       .10 / .17   .47 / .75   1.0 / 1.6  2.5 / 3.8  11 / 16
 */
#include "kernels/wire/reduce.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    STREAM_LEAST_BYTES = 4096,            /* below, the fence costs too much */
    STREAM_WHOLE_BYTES = 16 * 1024 * 1024 /* below, caches may hold it */
};

#ifdef __SSE2__
enum { LINE_BYTES = 64 };

/* bytes is at least LINE_BYTES. */
static void copy_stream(unsigned char *dst, const unsigned char *src,
                        size_t bytes)
{
    size_t head_bytes = -(uintptr_t)dst % LINE_BYTES;
    if (head_bytes != 0) {
        memcpy(dst, src, head_bytes);
    }
    dst += head_bytes;
    src += head_bytes;
    bytes -= head_bytes;

    for (; bytes >= LINE_BYTES; bytes -= LINE_BYTES) {
        const __m128i *from = (const __m128i *)(const void *)src;
        __m128i *to = (__m128i *)(void *)dst;
        __m128i a = _mm_loadu_si128(from);
        __m128i b = _mm_loadu_si128(from + 1);
        __m128i c = _mm_loadu_si128(from + 2);
        __m128i d = _mm_loadu_si128(from + 3);
        _mm_stream_si128(to, a);
        _mm_stream_si128(to + 1, b);
        _mm_stream_si128(to + 2, c);
        _mm_stream_si128(to + 3, d);
        dst += LINE_BYTES;
        src += LINE_BYTES;
    }
    if (bytes != 0) {
        memcpy(dst, src, bytes);
    }
    /* A release store does not wait for these stores on x86; this does. */
    _mm_sfence();
}
#endif

void wefti_copy_past(void *dst, const void *src, size_t bytes)
{
#ifdef __SSE2__
    if (bytes >= LINE_BYTES) {
        copy_stream(dst, src, bytes);
        return;
    }
#endif
    if (bytes != 0) {
        memcpy(dst, src, bytes);
    }
}

void wefti_copy_part(void *dst, const void *src, size_t bytes,
                     size_t whole_bytes)
{
    if (whole_bytes >= STREAM_WHOLE_BYTES && bytes >= STREAM_LEAST_BYTES) {
        wefti_copy_past(dst, src, bytes);
    } else if (bytes != 0) {
        memcpy(dst, src, bytes);
    }
}

void wefti_copy(void *dst, const void *src, size_t bytes)
{
    wefti_copy_part(dst, src, bytes, bytes);
}
