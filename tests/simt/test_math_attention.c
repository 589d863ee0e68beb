/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     The CUDA kernels of attention give what the host's give: o and lse,
 *          in one block of keys or merged from two, and all gradients.
 * Method   Shapes around a tile's 64 tokens (32 in f64) and a window's columns,
 *          heads of whole packs and others, groups of heads that share keys,
 *          several sequences, causal offsets that leave queries without a key,
 *          none of either side; rows with gaps, which stay as they are; keys in
 *          two parts. A second launch, of another shape, gives the same bits.
 *
 * Tolerances are the host header's, which both sides have; a bf16 o or gradient
 * is rounded once more. The host's backward gets the kernel's o and lse, so
 * that their rounding is not counted twice.
 */
#include "tests/simt/math_run.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* The shape of a problem but for its strides and scale. */
#define SHAPE(s, q, kv, h, g, size, mask, offset)                              \
    {                                                                          \
        .sequences = (s), .q_tokens = (q), .kv_tokens = (kv), .heads = (h),    \
        .kv_heads = (g), .head_size = (size), .causal = (mask),                \
        .causal_offset = (offset)                                              \
    }

static const wefti_math_attention_shape shapes[] = {
    SHAPE(1, 1, 1, 1, 1, 1, 0, 0),
    SHAPE(1, 33, 40, 4, 2, 20, 0, 0),
    SHAPE(2, 34, 34, 2, 1, 33, 1, 0),
    SHAPE(1, 33, 65, 3, 1, 64, 1, 32),
    SHAPE(2, 40, 33, 1, 1, 16, 1, -10),
    SHAPE(1, 34, 34, 1, 1, 8, 1, -40),
    SHAPE(1, 3, 40, 1, 1, TOLERANCE(256, 128), 0, 0),
    SHAPE(1, 5, 70, 2, 1, TOLERANCE(150, 70), 1, 66),
    SHAPE(1, 70, 131, 2, 1, 40, 1, 61),
    SHAPE(2, 131, 66, 2, 2, 24, 1, 3),
    SHAPE(1, 5, 0, 2, 1, 4, 0, 0),
    SHAPE(3, 0, 5, 2, 1, 4, 0, 0),
};

/* The thread sanitizer is slow, and every third shape has all barriers. */
#ifdef __SANITIZE_THREAD__
#define SHAPE_STEP 3
#else
#define SHAPE_STEP 1
#endif
/* What two parts add to the whole, every third has for either sanitizer. */
#ifdef __SANITIZE_ADDRESS__
#define PARTS_STEP 3
#else
#define PARTS_STEP SHAPE_STEP
#endif

/* out: of o and the gradients. */
typedef struct problem {
    math_kind kind, out;
    wefti_math_attention_shape shape;
    size_t q_elems, kv_elems, o_elems, rows;
    math_array q, k, v, dout, o, lse, delta, dq, dk, dv;
} problem;

static problem problem_init(check_random *random, math_kind kind, math_kind out,
                            wefti_math_attention_shape shape)
{
    problem p = {.kind = kind, .out = out};

    /* Heads of whole packs have rows of such. */
    const bool whole = shape.head_size % 8 == 0;

    shape.q_stride = shape.heads * shape.head_size + (whole ? 8 : 3);
    shape.kv_stride = shape.kv_heads * shape.head_size + (whole ? 16 : 1);
    shape.o_stride = shape.heads * shape.head_size + (whole ? 24 : 2);
    shape.scale = 1 / sqrt((double)shape.head_size);
    p.shape = shape;
    p.q_elems = shape.sequences * shape.q_tokens * shape.q_stride;
    p.kv_elems = shape.sequences * shape.kv_tokens * shape.kv_stride;
    p.o_elems = shape.sequences * shape.q_tokens * shape.o_stride;
    p.rows = shape.sequences * shape.q_tokens * shape.heads;
    p.q = math_random(random, kind, p.q_elems, 2);
    p.k = math_random(random, kind, p.kv_elems, 2);
    p.v = math_random(random, kind, p.kv_elems, 1);
    p.dout = math_random(random, kind, p.o_elems, 1);
    p.o = math_random(random, out, p.o_elems, 1);
    p.lse = math_new(MATH_WIDE, p.rows);
    p.delta = math_new(MATH_WIDE, p.rows);
    p.dq = math_random(random, out, p.q_elems, 1);
    p.dk = math_random(random, out, p.kv_elems, 1);
    p.dv = math_random(random, out, p.kv_elems, 1);
    return p;
}

static void problem_fini(problem *p)
{
    math_array *all[] = {&p->q,   &p->k,     &p->v,  &p->dout, &p->o,
                         &p->lse, &p->delta, &p->dq, &p->dk,   &p->dv};

    for (size_t i = 0; i < COUNT_OF(all); i++)
        math_free(all[i]);
}

/* Kernels of bf16 have a form with f32 results. */
static void launch(const char *op, const problem *p, const void *args,
                   check_random *random)
{
    char name[64];
    bool mixed = p->kind != p->out;
    size_t shared = wefti_math_attention_shared_bytes(sizeof(real));

    snprintf(name, sizeof(name), "attention_%s%s", op, mixed ? "_bf16" : "");
    math_launch_tiled(name, p->out, args, shared, random);
}

static void run_forward(const problem *p, const math_array *o,
                        const math_array *lse, bool merge, check_random *random)
{
    wefti_math_attention_forward args = {.o = o->at,
                                         .lse = lse->at,
                                         .q = p->q.at,
                                         .k = p->k.at,
                                         .v = p->v.at,
                                         .shape = p->shape,
                                         .merge = merge};

    launch("forward", p, &args, random);
}

static void run_backward(const problem *p, bool accumulate,
                         check_random *random)
{
    wefti_math_attention_delta delta = {.delta = p->delta.at,
                                        .o = p->o.at,
                                        .dout = p->dout.at,
                                        .tokens = p->shape.sequences *
                                                  p->shape.q_tokens,
                                        .heads = p->shape.heads,
                                        .head_size = p->shape.head_size,
                                        .o_stride = p->shape.o_stride};
    wefti_math_attention_backward args = {.dq = p->dq.at,
                                          .dk = p->dk.at,
                                          .dv = p->dv.at,
                                          .dout = p->dout.at,
                                          .q = p->q.at,
                                          .k = p->k.at,
                                          .v = p->v.at,
                                          .lse = p->lse.at,
                                          .delta = p->delta.at,
                                          .shape = p->shape,
                                          .accumulate = accumulate};

    launch("delta", p, &delta, random);
    launch("dq", p, &args, random);
    launch("dkdv", p, &args, random);
}

/* The host's arrays, and its shape of one sequence. */
typedef struct host {
    wefti_attention shape;
    real *q, *k, *v, *dout, *o, *lse, *delta, *dq, *dk, *dv, *scratch;
} host;

static host host_init(const problem *p)
{
    const wefti_math_attention_shape *s = &p->shape;
    host h = {.shape = {.q_tokens = s->q_tokens,
                        .kv_tokens = s->kv_tokens,
                        .heads = s->heads,
                        .kv_heads = s->kv_heads,
                        .head_size = s->head_size,
                        .q_stride = s->q_stride,
                        .kv_stride = s->kv_stride,
                        .o_stride = s->o_stride,
                        .scale = (real)s->scale,
                        .causal = s->causal,
                        .causal_offset = (ptrdiff_t)s->causal_offset}};

    h.q = math_values(&p->q);
    h.k = math_values(&p->k);
    h.v = math_values(&p->v);
    h.dout = math_values(&p->dout);
    h.o = math_values(&p->o);
    h.lse = math_values(&p->lse);
    h.delta = math_values(&p->delta);
    h.dq = math_values(&p->dq);
    h.dk = math_values(&p->dk);
    h.dv = math_values(&p->dv);
    h.scratch = check_alloc(wefti_attention_scratch_elems(&h.shape));
    return h;
}

static void host_fini(host *h)
{
    real *all[] = {h->q,  h->k,     h->v,  h->dout, h->o,      h->lse,
                   h->dq, h->delta, h->dk, h->dv,   h->scratch};

    for (size_t i = 0; i < COUNT_OF(all); i++)
        free(all[i]);
}

static void host_forward(const problem *p, host *h)
{
    for (size_t s = 0; s < p->shape.sequences; s++) {
        size_t q = s * p->shape.q_tokens, kv = s * p->shape.kv_tokens;

        wefti_math_get()->attention_forward(
            h->o + q * p->shape.o_stride, h->lse + q * p->shape.heads,
            h->q + q * p->shape.q_stride, h->k + kv * p->shape.kv_stride,
            h->v + kv * p->shape.kv_stride, &h->shape, false, h->scratch);
    }
}

static void host_backward(const problem *p, host *h)
{
    const wefti_math *math = wefti_math_get();

    for (size_t s = 0; s < p->shape.sequences; s++) {
        size_t token = s * p->shape.q_tokens;
        size_t o = token * p->shape.o_stride, q = token * p->shape.q_stride;
        size_t kv = s * p->shape.kv_tokens * p->shape.kv_stride;
        size_t row = token * p->shape.heads;

        math->attention_delta(h->delta + row, h->o + o, h->dout + o, &h->shape);
        math->attention_backward(h->dq + q, h->dk + kv, h->dv + kv, h->dout + o,
                                 h->q + q, h->k + kv, h->v + kv, h->lse + row,
                                 h->delta + row, &h->shape, h->scratch);
    }
}

/* Zeros where gradients are written and not added to; gaps stay. */
static void zero_heads(real *at, size_t tokens, size_t stride, size_t width)
{
    for (size_t t = 0; t < tokens; t++)
        memset(at + t * stride, 0, width * sizeof(real));
}

static void check_lse(const math_array *got, const real *want)
{
    for (size_t i = 0; i < got->elems; i++) {
        double value = math_value(got, i);

        if (want[i] == -(real)INFINITY)
            assert_true(isinf(value) && value < 0);
        else
            check_near(value, want[i], TOLERANCE(4e-5, 2e-12), "lse", i);
    }
}

static void check_shape(check_random *random, math_kind kind, math_kind out,
                        const wefti_math_attention_shape *shape,
                        bool accumulate)
{
    problem p = problem_init(random, kind, out, *shape);
    const wefti_math_attention_shape *s = &p.shape;
    host h = host_init(&p);
    double near = TOLERANCE(8e-5, 2e-12);
    size_t q_tokens = s->sequences * s->q_tokens;
    size_t kv_tokens = s->sequences * s->kv_tokens;

    host_forward(&p, &h);
    run_forward(&p, &p.o, &p.lse, false, random);
    math_all_near(&p.o, h.o, near / 2, near / 2, "o");
    check_lse(&p.lse, h.lse);
    host_fini(&h);
    h = host_init(&p);
    if (!accumulate) {
        zero_heads(h.dq, q_tokens, s->q_stride, s->heads * s->head_size);
        zero_heads(h.dk, kv_tokens, s->kv_stride, s->kv_heads * s->head_size);
        zero_heads(h.dv, kv_tokens, s->kv_stride, s->kv_heads * s->head_size);
    }
    host_backward(&p, &h);
    run_backward(&p, accumulate, random);
    math_all_near(&p.delta, h.delta, near, near, "delta");
    math_all_near(&p.dq, h.dq, near, near, "dq");
    math_all_near(&p.dk, h.dk, near, near, "dk");
    math_all_near(&p.dv, h.dv, near, near, "dv");
    host_fini(&h);
    problem_fini(&p);
}

static void test_attention_any_shape_near_the_hosts(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    for (size_t i = 0; i < COUNT_OF(shapes); i += SHAPE_STEP) {
        bool mixed = kind == MATH_BF16 && i % 2;

        check_shape(&random, kind, mixed ? MATH_F32 : kind, &shapes[i],
                    i % 3 == 0);
    }
}

/* Two launches, whose shapes and orders are drawn. */
static void test_attention_any_launch_gives_the_same_bits(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    {
        problem a = problem_init(&random, kind, kind, shapes[2]), b = a;

        b.o = math_copy(&a.o);
        b.lse = math_copy(&a.lse);
        b.dq = math_copy(&a.dq);
        b.dk = math_copy(&a.dk);
        b.dv = math_copy(&a.dv);
        run_forward(&a, &a.o, &a.lse, false, &random);
        run_forward(&b, &b.o, &b.lse, false, &random);
        run_backward(&a, true, &random);
        run_backward(&b, true, &random);
        math_same_bits(&a.o, &b.o);
        math_same_bits(&a.lse, &b.lse);
        math_same_bits(&a.dq, &b.dq);
        math_same_bits(&a.dk, &b.dk);
        math_same_bits(&a.dv, &b.dv);
        math_free(&b.o);
        math_free(&b.lse);
        math_free(&b.dq);
        math_free(&b.dk);
        math_free(&b.dv);
        problem_fini(&a);
    }
}

/* The problem over keys [first, first + count) alone; it owns nothing. */
static problem keys_of(const problem *whole, size_t first, size_t count)
{
    problem p = *whole;
    size_t stride = whole->shape.kv_stride;

    p.shape.kv_tokens = count;
    p.shape.causal_offset -= (int64_t)first;
    p.k = math_part(&whole->k, first * stride, count * stride);
    p.v = math_part(&whole->v, first * stride, count * stride);
    return p;
}

static void run_merge(const problem *p, const math_array *o,
                      const math_array *lse, check_random *random)
{
    wefti_math_attention_merge args = {p->o.at,
                                       p->lse.at,
                                       o->at,
                                       lse->at,
                                       p->shape.q_tokens,
                                       p->shape.heads,
                                       p->shape.head_size,
                                       p->shape.o_stride};

    math_launch("attention_merge", p->out, &args, random);
}

/* The keys in two parts, the second first: continued, and put together. */
static void check_parts(check_random *random, math_kind kind, math_kind out,
                        const wefti_math_attention_shape *shape, size_t cut)
{
    problem p = problem_init(random, kind, out, *shape);
    problem left = keys_of(&p, 0, cut);
    problem right = keys_of(&p, cut, shape->kv_tokens - cut);
    math_array o = math_copy(&p.o), lse = math_copy(&p.lse);
    host h = host_init(&p);
    double near = TOLERANCE(4e-5, 2e-12) + (out == MATH_BF16 ? 8e-3 : 0);

    host_forward(&p, &h);
    run_forward(&right, &p.o, &p.lse, false, random);
    run_forward(&left, &p.o, &p.lse, true, random);
    math_all_near(&p.o, h.o, near, 0, "o continued");
    check_lse(&p.lse, h.lse);
    run_forward(&left, &o, &lse, false, random);
    run_forward(&right, &p.o, &p.lse, false, random);
    run_merge(&p, &o, &lse, random);
    math_all_near(&p.o, h.o, near, 0, "o merged");
    check_lse(&p.lse, h.lse);
    math_free(&o);
    math_free(&lse);
    host_fini(&h);
    problem_fini(&p);
}

static void test_attention_of_two_parts_near_that_of_the_whole(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    for (size_t i = 0; i < COUNT_OF(shapes); i += PARTS_STEP) {
        size_t tokens = shapes[i].kv_tokens;
        bool mixed = kind == MATH_BF16 && i % 2;

        if (shapes[i].sequences == 1)
            check_parts(&random, kind, mixed ? MATH_F32 : kind, &shapes[i],
                        i == 6 ? tokens : tokens / 3);
    }
}

/* A NaN in key 20 reaches the queries that see it, and no other. */
static void test_attention_nan_reaches_who_sees_it(void **state)
{
    check_random random = check_seed();
    const wefti_math_attention_shape shape = {.sequences = 1,
                                              .q_tokens = 40,
                                              .kv_tokens = 40,
                                              .heads = 1,
                                              .kv_heads = 1,
                                              .head_size = 8,
                                              .causal = 1};

    (void)state;
    FOR_EACH_KIND(kind)
    {
        problem p = problem_init(&random, kind, kind, shape);
        size_t stride = p.shape.kv_stride;

        memset((char *)p.k.at + 20 * stride * math_bytes(kind), 0xff,
               math_bytes(kind));
        run_forward(&p, &p.o, &p.lse, false, &random);
        for (size_t i = 0; i < 40; i++) {
            size_t at = i * p.shape.o_stride;

            assert_int_equal(isnan(math_value(&p.o, at)) != 0, i >= 20);
            assert_int_equal(isnan(math_value(&p.lse, i)) != 0, i >= 20);
        }
        problem_fini(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_any_shape_near_the_hosts),
        cmocka_unit_test(test_attention_any_launch_gives_the_same_bits),
        cmocka_unit_test(test_attention_of_two_parts_near_that_of_the_whole),
        cmocka_unit_test(test_attention_nan_reaches_who_sees_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
