/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     The CUDA kernels of routes and of rows by expert give what the
 *          host's give, in any launch shape and order of threads.
 * Method   Shapes around a warp's lanes and a tile's edges, limited groups,
 *          slots without an expert, experts without rows. Choices and orders
 *          are the host's; what is computed is within its tolerances twice.
 */
#include "tests/simt/math_run.h"

#define KIND MATH_WIDE

typedef struct shape {
    size_t tokens, experts, slots, groups, limit, width, outputs;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 1, 1, 1, 1}, {40, 4, 2, 1, 1, 33, 7},  {23, 36, 4, 4, 2, 70, 65},
    {0, 3, 2, 1, 1, 8, 8}, {90, 2, 1, 1, 1, 16, 66}, {7, 70, 5, 2, 1, 31, 64},
};

/* The thread sanitizer is slow, and every other shape has all barriers. */
static size_t shapes_by(void)
{
#ifdef __SANITIZE_THREAD__
    return getenv("WEFT_TEST_FEW") ? 2 : 1;
#else
    return 1;
#endif
}

#define FOR_EACH_SHAPE(s)                                                      \
    for (const shape *s = shapes;                                              \
         s < shapes + sizeof(shapes) / sizeof(shapes[0]); s += shapes_by())

static int32_t *alloc_ids(size_t count)
{
    int32_t *ids = malloc(count * sizeof(*ids) + 1);

    assert_non_null(ids);
    return ids;
}

static void check_route(check_random *random, const shape *s, bool biased)
{
    const wefti_math *math = wefti_math_get();
    const wefti_route_shape how = {s->tokens, s->experts, s->slots, s->groups,
                                   s->limit};
    const size_t all = s->tokens * s->experts, slots = s->tokens * s->slots;
    const double near = TOLERANCE(2e-6, 1e-14);
    math_array logits = math_random(random, KIND, all, 3);
    math_array bias = math_random(random, KIND, s->experts, 0.1);
    math_array affinity = math_new(KIND, all), weight = math_new(KIND, slots);
    math_array dweight = math_random(random, KIND, slots, 1);
    math_array dlogits = math_new(KIND, all);
    int32_t *expert = alloc_ids(slots), *chosen = alloc_ids(slots);
    real *want = check_alloc(all), *weights = check_alloc(slots);
    wefti_math_route_forward forward = {
        affinity.at, expert,     weight.at, logits.at, biased ? bias.at : NULL,
        s->tokens,   s->experts, s->slots,  s->groups, s->limit};
    wefti_math_route_backward backward = {dlogits.at, dweight.at, affinity.at,
                                          expert,     s->tokens,  s->experts,
                                          s->slots};

    math->route_forward(want, chosen, weights, logits.at,
                        biased ? bias.at : NULL, &how);
    math_launch("route_forward", KIND, &forward, random);
    assert_memory_equal(expert, chosen, slots * sizeof(*expert));
    math_all_near(&affinity, want, near, 0, "affinity");
    math_all_near(&weight, weights, near, 0, "weight");
    math_launch("route_backward", KIND, &backward, random);
    math->route_backward(want, dweight.at, affinity.at, expert, &how);
    math_all_near(&dlogits, want, near, 0, "dlogits");
    math_free(&logits);
    math_free(&bias);
    math_free(&affinity);
    math_free(&weight);
    math_free(&dweight);
    math_free(&dlogits);
    free(expert);
    free(chosen);
    free(want);
    free(weights);
}

static void test_route_any_shape_chooses_as_the_host(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_SHAPE(s)
    {
        check_route(&random, s, false);
        check_route(&random, s, true);
    }
}

/* Slots by expert as the host orders them; skewed: most to one. */
typedef struct order {
    size_t slots;
    int32_t *expert, *place, *counts;
} order;

static order order_init(check_random *random, const shape *s, bool skewed)
{
    order o = {.slots = s->tokens * s->slots};

    o.expert = alloc_ids(o.slots);
    o.place = alloc_ids(o.slots);
    o.counts = alloc_ids(s->experts);
    for (size_t i = 0; i < o.slots; i++) {
        uint64_t drawn = check_bits(random);
        o.expert[i] = drawn % 11 == 0 ? -1
                      : skewed        ? (int32_t)(s->experts / 2)
                                      : (int32_t)(drawn / 11 % s->experts);
    }
    wefti_math_get()->expert_order(o.counts, o.place, o.expert, s->tokens,
                                   s->slots, s->experts);
    return o;
}

static void order_fini(order *o)
{
    free(o->expert);
    free(o->place);
    free(o->counts);
}

static void check_order(check_random *random, const shape *s, const order *o)
{
    int32_t *place = alloc_ids(o->slots), *counts = alloc_ids(s->experts);
    double *load = calloc(s->experts, sizeof(*load));
    wefti_math_expert_order ordered = {counts,    place,    o->expert,
                                       s->tokens, s->slots, s->experts};
    wefti_math_expert_load loaded = {load, o->expert, s->tokens, s->slots,
                                     s->experts};

    assert_non_null(load);
    math_launch("expert_order", MATH_F64, &ordered, random);
    assert_memory_equal(place, o->place, o->slots * sizeof(*place));
    assert_memory_equal(counts, o->counts, s->experts * sizeof(*counts));
    math_launch("expert_load", MATH_F64, &loaded, random);
    for (size_t e = 0; e < s->experts; e++)
        check_near(load[e], counts[e], 0, "load", e);
    free(place);
    free(counts);
    free(load);
}

static void check_rows(check_random *random, const shape *s, const order *o)
{
    const wefti_math *math = wefti_math_get();
    const size_t elems = o->slots * s->width, all = s->tokens * s->width;
    const double near = TOLERANCE(4e-6, 4e-14);
    math_array x = math_random(random, KIND, all, 1), sum = math_new(KIND, all);
    math_array rows = math_random(random, KIND, elems, 1);
    math_array factor = math_random(random, KIND, o->slots, 1);
    math_array dots = math_new(KIND, o->slots);
    real *want = math_values(&rows), *sums = check_alloc(all);
    real *products = check_alloc(o->slots);
    wefti_math_expert_spread spread = {rows.at,   x.at,     o->place, factor.at,
                                       s->tokens, s->slots, s->width, o->slots};
    wefti_math_expert_collect collect = {sum.at,    rows.at,   o->place,
                                         factor.at, s->tokens, s->slots,
                                         s->width,  o->slots};
    wefti_math_expert_dots dot = {dots.at,   rows.at,  x.at,     o->place,
                                  s->tokens, s->slots, s->width, o->slots};

    math->expert_spread(want, x.at, o->place, factor.at, s->tokens, s->slots,
                        s->width);
    math_launch("expert_spread", KIND, &spread, random);
    math_all_near(&rows, want, 0, 0, "rows");
    math->expert_collect(sums, want, o->place, factor.at, s->tokens, s->slots,
                         s->width);
    math_launch("expert_collect", KIND, &collect, random);
    math_all_near(&sum, sums, near, 0, "sum");
    math->expert_dots(products, want, x.at, o->place, s->tokens, s->slots,
                      s->width);
    math_launch("expert_dots", KIND, &dot, random);
    math_all_near(&dots, products, near * 4, 0, "dots");
    math_free(&x);
    math_free(&sum);
    math_free(&rows);
    math_free(&factor);
    math_free(&dots);
    free(want);
    free(sums);
    free(products);
}

static void check_product(check_random *random, const shape *s, const order *o,
                          wefti_expert_product product)
{
    const wefti_math *math = wefti_math_get();
    const double near = TOLERANCE(4e-5, 4e-13);
    math_array x = math_random(random, KIND, o->slots * s->width, 1);
    math_array y = math_random(random, KIND, o->slots * s->outputs, 1);
    math_array weight =
        math_random(random, KIND, s->experts * s->outputs * s->width, 1);
    real *host_x = math_values(&x), *host_y = math_values(&y);
    real *host_weight = math_values(&weight);
    wefti_math_expert_gemm args = {x.at,       y.at,       weight.at,
                                   o->counts,  s->experts, s->width,
                                   s->outputs, o->slots,   product};

    math->expert_gemm(product, host_x, host_y, host_weight, o->counts,
                      s->experts, s->width, s->outputs);
    math_launch_tiled("expert_gemm", KIND, &args,
                      wefti_math_gemm_shared_bytes(sizeof(real)), random);
    math_all_near(&x, host_x, near, 0, "x");
    math_all_near(&y, host_y, near, 0, "y");
    math_all_near(&weight, host_weight, near, 0, "weight");
    math_free(&x);
    math_free(&y);
    math_free(&weight);
    free(host_x);
    free(host_y);
    free(host_weight);
}

static void check_gate(check_random *random, const shape *s, const order *o)
{
    const wefti_math *math = wefti_math_get();
    const double near = TOLERANCE(2e-5, 1e-13);
    math_array both = math_random(random, KIND, 2 * o->slots * s->width, 4);
    math_array out = math_random(random, KIND, o->slots * s->width, 1);
    math_array dout = math_random(random, KIND, o->slots * s->width, 1);
    real *want = math_values(&out), *slopes = math_values(&both);
    wefti_math_expert_gate gate = {out.at,     both.at,  o->counts,
                                   s->experts, s->width, o->slots};
    wefti_math_expert_gate_backward back = {
        both.at, dout.at, both.at, o->counts, s->experts, s->width, o->slots};

    math->expert_gate(want, slopes, o->counts, s->experts, s->width);
    math_launch("expert_gate", KIND, &gate, random);
    math_all_near(&out, want, near, 0, "gated");
    math->expert_gate_backward(slopes, dout.at, slopes, o->counts, s->experts,
                               s->width);
    math_launch("expert_gate_backward", KIND, &back, random);
    math_all_near(&both, slopes, near, 0, "slopes");
    math_free(&both);
    math_free(&out);
    math_free(&dout);
    free(want);
    free(slopes);
}

static void test_experts_any_shape_near_the_hosts(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_SHAPE(s)
    {
        for (int skewed = 0; skewed < 2; skewed++) {
            order o = order_init(&random, s, skewed != 0);

            check_order(&random, s, &o);
            check_rows(&random, s, &o);
            check_product(&random, s, &o, WEFTI_EXPERT_FORWARD);
            check_product(&random, s, &o, WEFTI_EXPERT_INPUTS);
            check_product(&random, s, &o, WEFTI_EXPERT_WEIGHTS);
            check_gate(&random, s, &o);
            order_fini(&o);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_route_any_shape_chooses_as_the_host),
        cmocka_unit_test(test_experts_any_shape_near_the_hosts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
