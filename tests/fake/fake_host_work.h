/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_host_work.h - work of a stream that is a function of the
 * host, on memory of the device: what a library's kernel is to its stand-in.
 */
#ifndef TESTS_FAKE_FAKE_HOST_WORK_H
#define TESTS_FAKE_FAKE_HOST_WORK_H

#include "tests/fake/fake_functions.h"

enum { FAKE_HOST_PARTS = 11, FAKE_HOST_ARGS_BYTES = 192 };

typedef struct fake_host_part {
    CUdeviceptr address;
    size_t bytes; /* 0: it has none here */
} fake_host_part;

typedef struct fake_host_work {
    const char *what; /* for the line about an illegal address */
    int loads; /* its first: the call waits until the GPU has nothing to do */
    void (*run)(const void *args, void *const at[FAKE_HOST_PARTS]);
    fake_host_part parts[FAKE_HOST_PARTS]; /* found in at, when it runs */
    _Alignas(16) unsigned char args[FAKE_HOST_ARGS_BYTES];
} fake_host_work;

/* Queues it, or has it captured, as cuLaunchKernel does a kernel; copied. */
__attribute__((visibility("default"))) CUresult
fake_host_launch(CUstream stream, const fake_host_work *work);

#endif
