/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/sanitizer_options.c - what every sanitized program of weft starts its
 * runtime with, however it is started; no other build contains it.
 *
 * intercept_tls_get_addr: gcc 12's runtimes take a thread-local block of a
 * library opened late (libucs) that lies 16 bytes into a page for one of glibc
 * 2.19, read its begin and size from the two words before it, which are any
 * other heap data, and clear the shadow of that range: "failed to allocate
 * 0x1ed2ffffff000 bytes", where a pointer stood for the size.
 * tests/base/test_late_library.c makes it happen.
 */

/* The runtimes look these names up in the program; one with options of its own
 * replaces them. */
#define SHOWN __attribute__((visibility("default"), weak))

const char *__asan_default_options(void); // NOLINT: the runtimes' names
const char *__tsan_default_options(void); // NOLINT

SHOWN const char *__asan_default_options(void) // NOLINT
{
    return "intercept_tls_get_addr=0";
}

SHOWN const char *__tsan_default_options(void) // NOLINT
{
    return "intercept_tls_get_addr=0";
}
