/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The formulas of attention.h, term by term in double.
 */
#include "tests/kernels/attention_problem.h"

enum { PAD = 2 };

/* What dq, dk and dv hold before the first block adds to them. */
static const real start = WEFTI_REAL(0.25);

size_t problem_q_elems(const problem *p)
{
    return p->shape.q_tokens * p->shape.q_stride;
}

size_t problem_kv_elems(const problem *p)
{
    return p->shape.kv_tokens * p->shape.kv_stride;
}

size_t problem_o_elems(const problem *p)
{
    return p->shape.q_tokens * p->shape.o_stride;
}

static double *alloc_doubles(size_t elems)
{
    double *made = calloc(elems, sizeof(double));

    assert_non_null(made);
    return made;
}

problem problem_init(check_random *random, const extent *e)
{
    size_t q_row = e->heads * e->head_size;
    size_t kv_row = e->kv_heads * e->head_size;
    size_t rows = e->q_tokens * e->heads;
    problem p = {.shape = {.q_tokens = e->q_tokens,
                           .kv_tokens = e->kv_tokens,
                           .heads = e->heads,
                           .kv_heads = e->kv_heads,
                           .head_size = e->head_size,
                           .q_stride = q_row + PAD,
                           .kv_stride = kv_row + 2 * (size_t)PAD,
                           .o_stride = q_row + 3 * (size_t)PAD,
                           .scale = (real)(1 / sqrt((double)e->head_size)),
                           .causal = e->causal,
                           .causal_offset = e->offset}};
    size_t q = problem_q_elems(&p), kv = problem_kv_elems(&p);
    size_t o = problem_o_elems(&p);

    p.q = check_alloc_random(random, q, 2);
    p.k = check_alloc_random(random, kv, 2);
    p.v = check_alloc_random(random, kv, 1);
    p.dout = check_alloc_random(random, o, 1);
    p.o = check_alloc(o);
    p.lse = check_alloc(rows);
    p.delta = check_alloc(rows);
    p.dq = check_alloc(q);
    p.dk = check_alloc(kv);
    p.dv = check_alloc(kv);
    p.scratch = check_alloc(wefti_attention_scratch_elems(&p.shape));
    p.score = alloc_doubles(rows * e->kv_tokens);
    p.want_o = alloc_doubles(o);
    p.want_lse = alloc_doubles(rows);
    p.want_dq = alloc_doubles(q);
    p.want_dk = alloc_doubles(kv);
    p.want_dv = alloc_doubles(kv);
    problem_reset(&p);
    return p;
}

void problem_fini(problem *p)
{
    real *reals[] = {p->q,     p->k,  p->v,  p->dout, p->o,      p->lse,
                     p->delta, p->dq, p->dk, p->dv,   p->scratch};
    double *doubles[] = {p->score,   p->want_o,  p->want_lse,
                         p->want_dq, p->want_dk, p->want_dv};

    assert_true(isnan(p->scratch[wefti_attention_scratch_elems(&p->shape)]));
    for (size_t n = 0; n < sizeof(reals) / sizeof(reals[0]); n++)
        free(reals[n]);
    for (size_t n = 0; n < sizeof(doubles) / sizeof(doubles[0]); n++)
        free(doubles[n]);
}

static void fill(real *to, size_t elems)
{
    for (size_t n = 0; n < elems; n++)
        to[n] = start;
}

void problem_reset(problem *p)
{
    size_t rows = p->shape.q_tokens * p->shape.heads;

    check_poison(p->o, problem_o_elems(p));
    check_poison(p->lse, rows);
    check_poison(p->delta, rows);
    check_poison(p->scratch, wefti_attention_scratch_elems(&p->shape));
    fill(p->dq, problem_q_elems(p));
    fill(p->dk, problem_kv_elems(p));
    fill(p->dv, problem_kv_elems(p));
}

static bool sees(const wefti_attention *s, size_t i, size_t j)
{
    return !s->causal || (ptrdiff_t)j <= (ptrdiff_t)i + s->causal_offset;
}

/* Scores of one query of one head; -INFINITY where it sees nothing. */
static void solve_scores(problem *p, size_t i, size_t h)
{
    const wefti_attention *s = &p->shape;
    size_t size = s->head_size, g = h / (s->heads / s->kv_heads);
    const real *q = p->q + i * s->q_stride + h * size;
    double *score = p->score + (i * s->heads + h) * s->kv_tokens;

    for (size_t j = 0; j < s->kv_tokens; j++) {
        const real *k = p->k + j * s->kv_stride + g * size;
        double sum = 0;

        for (size_t d = 0; d < size; d++)
            sum += (double)q[d] * (double)k[d];
        score[j] = sees(s, i, j) ? sum * (double)s->scale : -(double)INFINITY;
    }
}

static void solve_forward(problem *p, size_t i, size_t h)
{
    const wefti_attention *s = &p->shape;
    size_t size = s->head_size, g = h / (s->heads / s->kv_heads);
    const double *score = p->score + (i * s->heads + h) * s->kv_tokens;
    double *o = p->want_o + i * s->o_stride + h * size;
    double top = -(double)INFINITY, sum = 0;

    for (size_t d = 0; d < size; d++)
        o[d] = 0;
    for (size_t j = 0; j < s->kv_tokens; j++)
        top = fmax(top, score[j]);
    for (size_t j = 0; j < s->kv_tokens; j++) {
        const real *v = p->v + j * s->kv_stride + g * size;
        double e = sees(s, i, j) ? exp(score[j] - top) : 0;

        sum += e;
        for (size_t d = 0; d < size; d++)
            o[d] += e * (double)v[d];
    }
    for (size_t d = 0; sum > 0 && d < size; d++)
        o[d] /= sum;
    p->want_lse[i * s->heads + h] =
        sum > 0 ? top + log(sum) : -(double)INFINITY;
}

/* One query of one head's share of the gradients. */
static void solve_backward(problem *p, size_t i, size_t h)
{
    const wefti_attention *s = &p->shape;
    size_t size = s->head_size, g = h / (s->heads / s->kv_heads);
    size_t qi = i * s->q_stride + h * size, oi = i * s->o_stride + h * size;
    const double *score = p->score + (i * s->heads + h) * s->kv_tokens;
    double delta = 0;

    for (size_t d = 0; d < size; d++)
        delta += (double)p->dout[oi + d] * p->want_o[oi + d];
    for (size_t j = 0; j < s->kv_tokens && sees(s, i, j); j++) {
        size_t kj = j * s->kv_stride + g * size;
        double weight = exp(score[j] - p->want_lse[i * s->heads + h]);
        double dp = 0;

        for (size_t d = 0; d < size; d++)
            dp += (double)p->dout[oi + d] * (double)p->v[kj + d];

        double ds = weight * (dp - delta) * (double)s->scale;

        for (size_t d = 0; d < size; d++) {
            p->want_dv[kj + d] += weight * (double)p->dout[oi + d];
            p->want_dq[qi + d] += ds * (double)p->k[kj + d];
            p->want_dk[kj + d] += ds * (double)p->q[qi + d];
        }
    }
}

void problem_solve(problem *p)
{
    const wefti_attention *s = &p->shape;

    for (size_t n = 0; n < problem_q_elems(p); n++)
        p->want_dq[n] = (double)start;
    for (size_t n = 0; n < problem_kv_elems(p); n++)
        p->want_dk[n] = p->want_dv[n] = (double)start;
    for (size_t i = 0; i < s->q_tokens; i++)
        for (size_t h = 0; h < s->heads; h++) {
            solve_scores(p, i, h);
            solve_forward(p, i, h);
            solve_backward(p, i, h);
        }
}

void problem_check_forward(const problem *p)
{
    const wefti_attention *s = &p->shape;
    double near = TOLERANCE(2e-5, 1e-12);

    for (size_t i = 0; i < s->q_tokens; i++) {
        const real *row = p->o + i * s->o_stride;

        for (size_t n = 0; n < s->heads * s->head_size; n++)
            check_near(row[n], p->want_o[i * s->o_stride + n], near, "o",
                       i * s->o_stride + n);
        for (size_t n = s->heads * s->head_size; n < s->o_stride; n++)
            assert_true(isnan(row[n]));
        for (size_t h = 0; h < s->heads; h++) {
            double want = p->want_lse[i * s->heads + h];
            real got = p->lse[i * s->heads + h];

            if (isinf(want))
                assert_true(isinf(got) && got < 0);
            else
                check_near(got, want, near, "lse", i * s->heads + h);
        }
    }
}

void problem_check_backward(const problem *p)
{
    double absolute = TOLERANCE(4e-5, 1e-12), relative = TOLERANCE(2e-5, 1e-12);

    check_all_near(p->dq, p->want_dq, problem_q_elems(p), absolute, relative,
                   "dq");
    check_all_near(p->dk, p->want_dk, problem_kv_elems(p), absolute, relative,
                   "dk");
    check_all_near(p->dv, p->want_dv, problem_kv_elems(p), absolute, relative,
                   "dv");
}
