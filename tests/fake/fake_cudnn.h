/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_cudnn.h - a stand-in for libcudnn.so.9 over the fake CUDA
 * driver: its backend descriptors, one engine, which knows attention's forward
 * and its backward by the order of their operations, and carries these out one
 * by one, on the host, as work of the handle's stream. What weft must not do
 * ends the program with a line.
 *
 * Source: NVIDIA, cuDNN documentation, "Graph API", backend descriptor types.
 *
 * WEFT_FAKE_CUDNN_VERSION   what cudnnGetVersion says (91900)
 * WEFT_FAKE_CUDNN_WORKSPACE   bytes that a plan asks for (256)
 * WEFT_FAKE_CUDNN_FAULT     create   cudnnCreate fails
 *                           none     the heuristic knows no engine
 *                           plan     no plan can be made
 *                           launch   cudnnBackendExecute fails
 */
#ifndef TESTS_FAKE_FAKE_CUDNN_H
#define TESTS_FAKE_FAKE_CUDNN_H

#include "device/cudnn_api.h"

/* What has been done in the process; read by dlsym. */
typedef struct fake_cudnn_counts {
    int handles, objects; /* alive */
    int plans, queued;    /* made, executed */
} fake_cudnn_counts;

typedef void fake_cudnn_get_counts_fn(fake_cudnn_counts *out);

#pragma GCC visibility push(default)
size_t cudnnGetVersion(void);
fake_cudnn_get_counts_fn cudnnFakeGetCounts;
#define FAKE_CUDNN_PROTOTYPE(type, name, arguments) type name arguments;
WEFTI_CUDNN_FUNCTIONS(FAKE_CUDNN_PROTOTYPE)
#undef FAKE_CUDNN_PROTOTYPE
#pragma GCC visibility pop

#endif
