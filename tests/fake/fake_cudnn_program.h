/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_cudnn_program.h - what the stand-in for cuDNN has made of a
 * graph: tensors and steps, the patterns that its engine knows, and how it
 * carries them out, one by one, on the host.
 */
#ifndef TESTS_FAKE_FAKE_CUDNN_PROGRAM_H
#define TESTS_FAKE_FAKE_CUDNN_PROGRAM_H

#include "tests/fake/fake_cudnn.h"
#include "tests/fake/fake_host_work.h"

#include <stdbool.h>

enum {
    FAKE_DNN_TENSORS = 64,
    FAKE_DNN_STEPS = 24,
    FAKE_DNN_REAL = 10, /* arrays, with ids from 1; then numbers */
    FAKE_DNN_NUMBERS = 3,
    FAKE_DNN_WORKSPACE_BYTES = 256
};

typedef struct fake_dnn_tensor {
    int64_t id, dims[4], strides[4];
    int type;
    bool is_virtual, by_value;
    double *values; /* of a run: those that are nowhere in memory */
} fake_dnn_tensor;

typedef struct fake_dnn_step {
    int kind, mode; /* mode: of what has several, else -1 */
    int64_t axis;
    int x, b, t, y; /* tensors; -1: none */
} fake_dnn_step;

typedef struct fake_dnn_program {
    struct fake_dnn_program *next; /* all, until the process ends */
    int tensor_count, step_count;
    fake_dnn_tensor tensors[FAKE_DNN_TENSORS];
    fake_dnn_step steps[FAKE_DNN_STEPS];
} fake_dnn_program;

/* Of a run; by id, after the arrays'. */
typedef struct fake_dnn_arguments {
    const fake_dnn_program *of;
    float numbers[FAKE_DNN_NUMBERS];
} fake_dnn_arguments;

/* Ends the program with a line. */
void fake_dnn_demand(bool good, const char *what);

/* Whether its steps are attention's forward or backward, in that order. */
bool fake_dnn_is_attention(const fake_dnn_program *p);

size_t fake_dnn_elems(const fake_dnn_tensor *t);

/* As fake_host_work.run: arguments, and real[id - 1], then the workspace. */
void fake_dnn_run(const void *arguments, void *const real[FAKE_HOST_PARTS]);

#endif
