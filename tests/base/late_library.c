/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/base/late_library.c - a library with a thread-local block, for
 * test_late_library to open late.
 */
char *late_library_touch(void);

/* Of the size class 112 of the thread sanitizer's heap: one of 256 such blocks
 * lies 16 bytes into a page. */
static _Thread_local char block[100];

__attribute__((visibility("default"))) char *late_library_touch(void)
{
    block[0]++;
    return block;
}
