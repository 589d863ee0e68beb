/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/kernels/attention_problem.h - one attention of any shape with random
 * inputs, and what attention.h's formulas give for it in double.
 */
#ifndef TESTS_KERNELS_ATTENTION_PROBLEM_H
#define TESTS_KERNELS_ATTENTION_PROBLEM_H

#include "tests/kernels/math_check.h"

typedef struct extent {
    size_t q_tokens, kv_tokens, heads, kv_heads, head_size;
    bool causal;
    ptrdiff_t offset;
} extent;

/* Everything one attention reads and writes, rows longer than needed. */
typedef struct problem {
    wefti_attention shape;
    real *q, *k, *v, *dout;
    real *o, *lse, *delta, *dq, *dk, *dv, *scratch;
    double *score; /* [q_tokens][heads][kv_tokens] */
    double *want_o, *want_lse, *want_dq, *want_dk, *want_dv;
} problem;

/* Elements of q and dq; of k, v, dk and dv; of o and dout. */
size_t problem_q_elems(const problem *p);
size_t problem_kv_elems(const problem *p);
size_t problem_o_elems(const problem *p);

/* Inputs filled, outputs reset; fini also checks the guard behind scratch. */
problem problem_init(check_random *random, const extent *e);
void problem_fini(problem *p);

/* Poisons o, lse, delta and scratch; puts what gradients add to in place. */
void problem_reset(problem *p);

/* Fills all want_ arrays from the inputs as they are now. */
void problem_solve(problem *p);

/* Fail the test where outputs are not what was wanted. */
void problem_check_forward(const problem *p);
void problem_check_backward(const problem *p);

#endif
