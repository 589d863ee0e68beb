/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a choice from the cache is the choice that weighing again would make,
 * whatever was asked before it, and from whatever thread.
 *
 * Method: a walk through operations, each step of which changes one of their
 * properties, or what WEFT_ALGO allows: a key that lacks the property answers
 * for the operation before. On one host and on several, with sums flat and not,
 * with chunks of two sizes. Then the same by four threads on one cache. That
 * the walk meets different answers for each property is counted.
 */
#include "comm/core/choice_cache.h"

#include "base/check.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Sanitizers slow everything down. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STEPS = 20000, THREAD_STEPS = 20000 };
#else
enum { STEPS = 200000, THREAD_STEPS = 100000 };
#endif
enum { RANKS_MOST = 16, THREADS = 4 };

typedef enum property {
    COLLECTIVE,
    DTYPE,
    REDOP,
    COUNT,
    ROOT,
    STEPWISE,
    RATES,
    DEFERRED,
    GATED,
    PARTS,
    ALLOWED,
    PROPERTY_COUNT
} property;

static const weft_dtype dtypes[] = {WEFT_DTYPE_U8, WEFT_DTYPE_BF16,
                                    WEFT_DTYPE_F32, WEFT_DTYPE_F64};
static const weft_redop redops[] = {WEFT_REDOP_SUM, WEFT_REDOP_MAX,
                                    WEFT_REDOP_USER};
static const size_t counts[] = {0,       1,       100,     1000,
                                2000,    6000,    12000,   40000,
                                1 << 18, 1 << 22, 1 << 26, SIZE_MAX / 8};

/* Of a link of 100 Mbit/s, and nodes that are far from each other. */
static const wefti_rates slow = {.local_latency_ns = 600,
                                 .local_message_ns = 150,
                                 .copy_byte_ns = 0.1,
                                 .reduce_byte_ns = 0.1,
                                 .network_latency_ns = 40000,
                                 .network_message_ns = 6000,
                                 .network_byte_ns = 80,
                                 .border_byte_ns = 1};

typedef struct walk {
    wefti_scope scope;
    wefti_tuning tuning; /* scope's */
    weft_op op;
    size_t parts[3][RANKS_MOST];
    bool stepwise;
    uint64_t seed;
    wefti_choice last;
    long differed[PROPERTY_COUNT];
} walk;

static size_t draw(walk *w, size_t below)
{
    return (size_t)random_next(&w->seed) % below;
}

static wefti_choice select_again(const walk *w, wefti_role *role_out)
{
    const weft_op *op = &w->op;
    *role_out = wefti_role_of(op->collective, op->dtype, op->root, 0);
    if (role_out->shape->reduces && w->stepwise && op->count > 0) {
        role_out->shape = wefti_shape_get_stepwise(op->collective);
    }
    return wefti_select(&w->scope, op, role_out);
}

static bool is_same(const wefti_choice *a, const wefti_choice *b)
{
    return a->pattern == b->pattern && a->chunk_elems == b->chunk_elems &&
           a->relay_elems == b->relay_elems && a->digest == b->digest &&
           a->refused == b->refused && a->route == b->route;
}

/* What ranks of v forms move: nothing is said, little, or one of them much. */
static const size_t *draw_parts(walk *w)
{
    const size_t which = draw(w, 4);
    for (size_t rank = 0; rank < RANKS_MOST; rank++) {
        w->parts[0][rank] = 1;
        w->parts[1][rank] = 1 << 20;
        w->parts[2][rank] = rank ? 1 : RANKS_MOST << 20;
    }
    return which < 3 ? w->parts[which] : NULL;
}

static size_t pattern_count(void)
{
    size_t count = 0;
    while (wefti_patterns[count]) {
        count++;
    }
    return count;
}

static void change(walk *w, property what)
{
    switch (what) {
    case COLLECTIVE:
        w->op.collective = (weft_collective)draw(w, WEFT_COLLECTIVE_SEND);
        break;
    case DTYPE:
        w->op.dtype = dtypes[draw(w, WEFTI_COUNT_OF(dtypes))];
        break;
    case REDOP:
        w->op.redop = redops[draw(w, WEFTI_COUNT_OF(redops))];
        break;
    case COUNT:
        w->op.count = counts[draw(w, WEFTI_COUNT_OF(counts))];
        break;
    case ROOT:
        w->op.root = (int)draw(w, (size_t)w->scope.nranks);
        break;
    case STEPWISE:
        w->stepwise = draw(w, 2);
        break;
    case RATES:
        w->scope.rates = draw(w, 2) ? &slow : NULL;
        break;
    case GATED:
        w->op.gate_elems = draw(w, 2) ? WEFT_GATE_PER_RANK : 0;
        break;
    case PARTS:
        w->op.recv_counts = w->op.send_counts = draw_parts(w);
        break;
    case DEFERRED:
        w->op.deferred_counts = draw(w, 2) ? counts : NULL;
        break;
    default:
        w->tuning.allowed[w->op.collective] =
            draw(w, 2) ? 0 : (wefti_algorithms)(1U << draw(w, pattern_count()));
        break;
    }
}

/* How many answers were wrong. */
static int go(walk *w, wefti_choice_cache *cache, int steps)
{
    int wrong = 0;
    for (int i = 0; i < steps; i++) {
        property what = (property)draw(w, PROPERTY_COUNT);
        wefti_role role;
        change(w, what);
        wefti_choice expected = select_again(w, &role);
        wefti_choice found =
            wefti_choice_cache_get(cache, &w->scope, &w->op, &role);
        w->differed[what] += i > 0 && !is_same(&w->last, &expected);
        w->last = expected;
        wrong += !is_same(&expected, &found);
    }
    return wrong;
}

/* The last host may have fewer. nest_out: of pairs, where hosts have several.
 */
static wefti_grouping *make_hosts(int nranks, int locals, wefti_nest **nest_out)
{
    int firsts[2][RANKS_MOST];
    const int *const levels[] = {firsts[0], firsts[1]};
    wefti_grouping *grouping;
    for (int rank = 0; rank < nranks; rank++) {
        firsts[1][rank] = rank / locals * locals;
        firsts[0][rank] = rank - (rank - firsts[1][rank]) % 2;
    }
    assert_true(wefti_grouping_create(firsts[1], nranks, &grouping));
    *nest_out = NULL;
    if (locals > 2) {
        assert_true(wefti_nest_create(levels, 2, nranks, nest_out));
        assert_true(wefti_nest_find_sums(*nest_out, firsts[1]));
    }
    return grouping;
}

static void walk_on(int nranks, int locals, bool flat, uint32_t chunk_bytes,
                    long differed[PROPERTY_COUNT])
{
    static walk w;
    wefti_nest *nest;
    wefti_grouping *grouping = make_hosts(nranks, locals, &nest);
    wefti_choice_cache *cache = wefti_choice_cache_create();
    assert_non_null(cache);
    w = (walk){.scope = {.tuning = &w.tuning,
                         .nranks = nranks,
                         .grouping = grouping,
                         .nest = nest,
                         .apart = nranks > 1 && locals == 1},
               .tuning = {.sum_flat = flat, .chunk_bytes = chunk_bytes},
               .op = {.dtype = WEFT_DTYPE_F32},
               .seed = random_seed()};
    assert_int_equal(go(&w, cache, STEPS), 0);
    for (int what = 0; what < PROPERTY_COUNT; what++) {
        differed[what] += w.differed[what];
    }
    wefti_choice_cache_destroy(cache);
    free(grouping);
    wefti_nest_free(nest);
}

static void test_choice_from_cache_is_the_choice(void **state)
{
    /* Ranks, and those of a host. */
    static const int scenes[][2] = {{1, 1}, {2, 2},  {8, 8}, {2, 1},
                                    {4, 2}, {16, 4}, {8, 1}, {8, 5}};
    long differed[PROPERTY_COUNT] = {0};
    (void)state;
    for (size_t i = 0; i < WEFTI_COUNT_OF(scenes); i++) {
        walk_on(scenes[i][0], scenes[i][1], false, 0, differed);
        walk_on(scenes[i][0], scenes[i][1], true, 8192, differed);
    }
    for (int what = 0; what < PROPERTY_COUNT; what++) {

        assert_true(differed[what] > 0);
    }
}

typedef struct worker {
    walk walk;
    wefti_choice_cache *cache;
    int wrong;
    pthread_t thread;
} worker;

static void *work(void *argument)
{
    worker *self = argument;
    self->wrong = go(&self->walk, self->cache, THREAD_STEPS);
    return NULL;
}

static void test_choice_of_many_threads_from_one_cache(void **state)
{
    static worker workers[THREADS];
    const uint64_t seed = random_seed();
    wefti_nest *nest;
    wefti_grouping *grouping = make_hosts(4, 2, &nest);
    wefti_choice_cache *cache = wefti_choice_cache_create();
    (void)state;
    assert_non_null(cache);
    for (int i = 0; i < THREADS; i++) {
        worker *self = &workers[i];
        self->cache = cache;
        self->walk = (walk){.scope = {.nranks = 4, .grouping = grouping},
                            .op = {.dtype = WEFT_DTYPE_F32},
                            .seed = seed + (uint64_t)i};
        self->walk.scope.tuning = &self->walk.tuning;
        assert_int_equal(pthread_create(&self->thread, NULL, work, self), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].wrong, 0);
    }
    wefti_choice_cache_destroy(cache);
    free(grouping);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice_from_cache_is_the_choice),
        cmocka_unit_test(test_choice_of_many_threads_from_one_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
