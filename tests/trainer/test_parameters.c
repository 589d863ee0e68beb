/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     the flat layout keeps its promises: aligned, disjoint, buckets and
 *          places inside them independent of the number of ranks, start values
 *          too; it follows from whatever list of tensors it is given.
 * Method   all numbers of ranks from 1 to 9 and several bucket sizes; compared
 *          with the layout for one rank, element by element; and a model of
 *          another kind of layer, in two groups.
 */
#include "trainer/model/parameters.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static const wefti_model_shape shape = {.layers = 3,
                                        .hidden = 40,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .head_dim = 10,
                                        .ffn = 56,
                                        .vocab = 77,
                                        .seq = 8,
                                        .rope_theta = 10000.0};

enum { TENSORS_MOST = 32 };

static const size_t bucket_bytes[] = {1, 20000, 50000, 1u << 30};

/* Ranks have every element of a tensor once, at places of their own. */
static void check_shares(const wefti_parameters *plan, size_t group)
{
    const wefti_group_plan *own_plan = &plan->groups[group];
    size_t ends[TENSORS_MOST] = {0};
    for (size_t rank = 0; rank < own_plan->nranks; rank++) {
        size_t own_end = 0;
        for (size_t i = 0; i < plan->tensor_count; i++) {
            const wefti_tensor *tensor = &plan->tensors[i];
            wefti_tensor_share own;
            if (tensor->info.group == group &&
                wefti_tensor_cut(plan, tensor, rank, &own)) {
                assert_true(own.own_elems >= own_end);
                own_end = own.own_elems + own.padded_elems;
                assert_int_equal(own.offset_elems, ends[i]);
                assert_int_equal(own.start_elems,
                                 tensor->start_elems + ends[i]);
                ends[i] += own.elems;
            }
        }
        assert_true(own_end <= own_plan->own_elems);
    }
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        if (tensor->info.group == group) {
            assert_int_equal(ends[i], wefti_tensor_elems(&tensor->info));
        }
    }
}

static void check_tensors(const wefti_parameters *plan, size_t group)
{
    const wefti_group_plan *own = &plan->groups[group];
    size_t end = 0, last = SIZE_MAX;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        if (tensor->info.group != group) {
            continue;
        }
        const weft_bucket_extent *bucket = &own->buckets[tensor->bucket];
        assert_true(tensor->start_elems >= end);
        assert_int_equal(tensor->start_elems % WEFTI_TENSOR_ALIGN_ELEMS, 0);
        assert_int_equal(tensor->opens, tensor->bucket != last);
        end = tensor->start_elems + wefti_tensor_elems(&tensor->info);
        last = tensor->bucket;
        assert_true(tensor->start_elems >= bucket->start_elems);
        assert_true(end <=
                    bucket->start_elems + own->nranks * bucket->share_elems);
    }
}

static void check_places(const wefti_parameters *plan)
{
    size_t flat = 0, owned = 0, buckets = 0;
    for (size_t g = 0; g < plan->group_count; g++) {
        const wefti_group_plan *group = &plan->groups[g];
        size_t start = 0, own = 0;
        check_tensors(plan, g);
        check_shares(plan, g);
        for (size_t i = 0; i < group->bucket_count; i++) {
            const weft_bucket_extent *bucket = &group->buckets[i];
            assert_int_equal(bucket->start_elems, start);
            assert_int_equal(bucket->start_elems % WEFTI_BLOCK_ELEMS, 0);
            assert_int_equal(bucket->share_elems % WEFTI_BLOCK_ELEMS, 0);
            start += group->nranks * bucket->share_elems;
            own += bucket->share_elems;
        }
        assert_int_equal(group->flat_elems, start);
        assert_int_equal(group->own_elems, own);
        flat += start;
        owned += own;
        buckets += group->bucket_count;
    }
    assert_int_equal(plan->flat_elems, flat);
    assert_int_equal(plan->own_elems, owned);
    assert_int_equal(plan->bucket_count, buckets);
}

static size_t place_in_bucket(const wefti_parameters *plan,
                              const wefti_tensor *tensor)
{
    return tensor->start_elems -
           plan->groups[tensor->info.group].buckets[tensor->bucket].start_elems;
}

static void check_same(const wefti_parameters *one,
                       const wefti_parameters *many)
{
    assert_int_equal(one->bucket_count, many->bucket_count);
    assert_int_equal(one->block_count, many->block_count);
    assert_int_equal(one->parameter_count, many->parameter_count);
    for (size_t i = 0; i < one->tensor_count; i++) {
        const wefti_tensor *a = &one->tensors[i], *b = &many->tensors[i];
        assert_int_equal(a->bucket, b->bucket);
        assert_int_equal(a->first_block, b->first_block);
        assert_int_equal(place_in_bucket(one, a), place_in_bucket(many, b));
    }
}

static void test_parameters_any_ranks_have_one_layout(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bucket_bytes) / sizeof(*bucket_bytes); i++) {
        wefti_parameters one;
        assert_int_equal(
            wefti_parameters_plan(&shape, bucket_bytes[i], 1, &one), WEFT_OK);
        for (size_t nranks = 1; nranks <= 9; nranks++) {
            wefti_parameters many;
            assert_int_equal(
                wefti_parameters_plan(&shape, bucket_bytes[i], nranks, &many),
                WEFT_OK);
            check_places(&many);
            check_same(&one, &many);
            wefti_parameters_fini(&many);
        }
        wefti_parameters_fini(&one);
    }
}

static void test_parameters_bucket_bytes_close_buckets(void **state)
{
    (void)state;
    wefti_parameters plan;
    assert_int_equal(wefti_parameters_plan(&shape, 1, 2, &plan), WEFT_OK);
    assert_int_equal(plan.bucket_count, plan.tensor_count);
    wefti_parameters_fini(&plan);
    assert_int_equal(wefti_parameters_plan(&shape, 1u << 30, 2, &plan),
                     WEFT_OK);
    assert_int_equal(plan.bucket_count, 1);
    wefti_parameters_fini(&plan);
}

static void
test_parameters_start_values_are_the_same_on_any_layout(void **state)
{
    (void)state;
    const wefti_start start = {1, 0.02, 1};
    wefti_parameters plans[2];
    real *values[2];
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(
            wefti_parameters_plan(&shape, 20000, 1 + 4 * i, &plans[i]),
            WEFT_OK);
        values[i] = malloc(plans[i].flat_elems * sizeof(real));
        assert_non_null(values[i]);
        wefti_parameters_init(&plans[i], 11, &start, &values[i]);
    }
    for (size_t i = 0; i < plans[0].tensor_count; i++) {
        const wefti_tensor *tensor = &plans[0].tensors[i];
        assert_memory_equal(values[0] + tensor->start_elems,
                            values[1] + plans[1].tensors[i].start_elems,
                            wefti_tensor_elems(&tensor->info) * sizeof(real));
    }
    for (size_t i = 0; i < 2; i++) {
        free(values[i]);
        wefti_parameters_fini(&plans[i]);
    }
}

static void test_parameters_tied_head_is_the_embedding(void **state)
{
    (void)state;
    wefti_model_shape tied = shape;
    tied.tied = true;
    wefti_parameters plan, untied;
    assert_int_equal(wefti_parameters_plan(&tied, 20000, 1, &plan), WEFT_OK);
    assert_int_equal(wefti_parameters_plan(&shape, 20000, 1, &untied), WEFT_OK);
    assert_int_equal(wefti_tensor_head(&plan), wefti_tensor_embedding(&plan));
    assert_int_equal(untied.parameter_count - plan.parameter_count,
                     shape.vocab * shape.hidden);
    wefti_parameters_fini(&plan);
    wefti_parameters_fini(&untied);
}

/* Every tensor is made of its pieces, and no two have one name outside. */
static void test_tensor_list_pieces_cover_the_tensors(void **state)
{
    (void)state;
    wefti_tensor_list list;
    assert_int_equal(wefti_tensor_list_init(&list, &shape), WEFT_OK);
    assert_int_equal(list.count, wefti_tensor_list_count(&shape));
    assert_int_equal(list.module_count, shape.layers + 2);
    const char *names[64];
    size_t named = 0;
    for (size_t i = 0; i < list.count; i++) {
        const wefti_tensor_info *info = &list.items[i];
        size_t rows = 0;
        assert_int_equal(info->group, 0);
        assert_int_equal(info->dtype, WEFTI_REAL_DTYPE);
        assert_int_equal(info->split == WEFTI_SPLIT_NONE,
                         wefti_tensor_dimensions(info) == 1);
        for (size_t k = 0; k < info->piece_count; k++) {
            rows += info->pieces[k].rows;
            for (size_t other = 0; other < named; other++) {
                assert_string_not_equal(names[other], info->pieces[k].name);
            }
            names[named++] = info->pieces[k].name;
        }
        assert_int_equal(rows, info->rows);
    }
    assert_int_equal(named, 3 + 9 * shape.layers);
    wefti_tensor_list_fini(&list);
}

/* A layer of a router and two experts, which are another group's. */
static void list_experts(wefti_tensor_list *list)
{
    const wefti_tensor_info ends = {.kind = WEFTI_TENSOR_EMBEDDING,
                                    .rows = shape.vocab,
                                    .columns = shape.hidden};
    const wefti_tensor_info router = {
        .kind = WEFTI_TENSOR_INPUT, .rows = 2, .columns = shape.hidden};
    const wefti_tensor_info experts = {.kind = WEFTI_TENSOR_INPUT,
                                       .rows = 2 * shape.ffn,
                                       .columns = shape.hidden,
                                       .split = WEFTI_SPLIT_EXPERT,
                                       .group = 1};
    wefti_tensor_list_begin_module(list);
    wefti_tensor_list_add(list, &ends);
    for (size_t layer = 0; layer < shape.layers; layer++) {
        wefti_tensor_list_begin_module(list);
        wefti_tensor_list_add(list, &router);
        wefti_tensor_list_add(list, &experts);
    }
    wefti_tensor_list_begin_module(list);
    wefti_tensor_list_add(list, &ends);
}

static void test_parameters_another_layer_is_laid_out_by_group(void **state)
{
    (void)state;
    wefti_tensor_info items[16];
    size_t modules[8];
    wefti_tensor_list list = {.items = items, .modules = modules};
    list_experts(&list);
    const wefti_layer_run whole = {.layers_end = shape.layers};
    const wefti_parameters_config config = {.shape = shape,
                                            .bucket_bytes = 1u << 30,
                                            .nranks = {3, 2},
                                            .expert_parts = 1,
                                            .parts = &whole,
                                            .part_count = 1};
    wefti_parameters plan;
    assert_int_equal(wefti_parameters_plan_list(&config, &list, &plan),
                     WEFT_OK);
    assert_int_equal(plan.tensor_count, 2 + 2 * shape.layers);
    assert_int_equal(plan.group_count, 2);
    assert_int_equal(plan.groups[0].nranks, 3);
    assert_int_equal(plan.groups[1].nranks, 2);
    check_places(&plan);
    for (size_t g = 0; g < 2; g++) {
        assert_int_equal(plan.groups[g].bucket_count, 1);
        assert_int_equal(plan.groups[g].parts[0].end, 1);
    }
    for (size_t i = 0; i + 1 < plan.tensor_count; i++) {
        const wefti_tensor *tensor = &plan.tensors[i];
        assert_int_equal(plan.modules[tensor->info.module] == i,
                         i == 0 || i % 2 == 1);
    }
    assert_int_equal(wefti_tensor_of_layer(&plan, 2), 5);
    assert_int_equal(wefti_tensor_final_norm(&plan), 7);
    wefti_parameters_fini(&plan);
}

/* One rank's part of a model that parts share. */
static void plan_part(size_t part, size_t parts, wefti_parameters *plan)
{
    const wefti_layer_run whole = {.layers_end = shape.layers};
    wefti_parameters_config config = {.shape = shape,
                                      .bucket_bytes = 20000,
                                      .nranks = {1},
                                      .expert_parts = 1,
                                      .tensor = {part, parts, true},
                                      .parts = &whole,
                                      .part_count = 1};
    wefti_tensor_list list;
    config.shape.vocab = 80;
    assert_int_equal(wefti_tensor_list_init(&list, &config.shape), WEFT_OK);
    assert_int_equal(wefti_parameters_plan_list(&config, &list, plan), WEFT_OK);
    wefti_tensor_list_fini(&list);
}

static real *start_values(const wefti_parameters *plan)
{
    static const wefti_start start = {1, 0.02, 0.5};
    real *values = calloc(plan->flat_elems, sizeof(*values));
    assert_non_null(values);
    wefti_parameters_init(plan, 7, &start, &values);
    return values;
}

/* What a part has is the whole one's; all elements count, each once. */
static void test_parameters_parts_are_those_of_the_whole(void **state)
{
    (void)state;
    wefti_parameters whole;
    plan_part(0, 1, &whole);
    real *all = start_values(&whole);
    for (size_t parts = 2; parts <= 4;
         parts += 2) { /* 4: heads of keys twice */
        unsigned char *counted = calloc(whole.flat_elems, 1);
        assert_non_null(counted);
        for (size_t part = 0; part < parts; part++) {
            wefti_parameters plan;
            plan_part(part, parts, &plan);
            real *values = start_values(&plan);
            for (size_t i = 0; i < plan.tensor_count; i++) {
                const wefti_tensor *own = &plan.tensors[i];
                const size_t from = whole.tensors[i].start_elems;
                const size_t end = wefti_tensor_here_elems(own);
                for (size_t at = 0; at < end; at++) {
                    const size_t to = from + wefti_tensor_find(own, at).whole;
                    assert_true(values[own->start_elems + at] == all[to]);
                    counted[to] +=
                        at < wefti_tensor_counted_end(own, end) ? 1 : 0;
                }
            }
            free(values);
            wefti_parameters_fini(&plan);
        }
        for (size_t i = 0; i < whole.tensor_count; i++) {
            const wefti_tensor *tensor = &whole.tensors[i];
            for (size_t k = 0; k < wefti_tensor_elems(&tensor->info); k++) {
                assert_int_equal(counted[tensor->start_elems + k], 1);
            }
        }
        free(counted);
    }
    free(all);
    wefti_parameters_fini(&whole);
}

/* A part of a mixture whose experts a map has; two have a replica. */
static void plan_experts(size_t part, size_t slots, wefti_parameters *plan)
{
    const wefti_layer_run whole = {.layers_end = shape.layers};
    wefti_parameters_config config = {.shape = shape,
                                      .bucket_bytes = 20000,
                                      .nranks = {1, 2},
                                      .expert_part = part,
                                      .expert_parts = 2,
                                      .expert_slots = slots,
                                      .parts = &whole,
                                      .part_count = 1};
    wefti_tensor_list list;
    config.shape.hidden = config.shape.ffn = 32;
    config.shape.experts = 4;
    config.shape.experts_per_token = 2;
    assert_int_equal(wefti_tensor_list_init(&list, &config.shape), WEFT_OK);
    assert_int_equal(wefti_parameters_plan_list(&config, &list, plan), WEFT_OK);
    wefti_tensor_list_fini(&list);
}

/* Of a tensor of experts that lie as a map says: what is where, and counts. */
static void check_mapped(const wefti_tensor *own, const int32_t *experts,
                         size_t part, unsigned char *counted)
{
    const size_t elems = own->slot_elems;
    assert_int_equal(wefti_tensor_here_elems(own), 3 * elems);
    for (size_t at = 0; at < 3 * elems; at += WEFTI_BLOCK_ELEMS) {
        const size_t slot = at / elems;
        const size_t whole =
            (size_t)experts[3 * part + slot] * elems + at % elems;
        size_t end, slot_end;
        assert_int_equal(wefti_tensor_find(own, at).whole, whole);
        assert_int_equal(wefti_tensor_find(own, at).elems, elems - at % elems);
        assert_int_equal(wefti_tensor_square_block(own, at, &end),
                         own->first_block + whole / WEFTI_BLOCK_ELEMS);
        assert_int_equal(end, (slot + 1) * elems);
        counted[whole / WEFTI_BLOCK_ELEMS] +=
            !wefti_tensor_is_replica(own, at, &slot_end);
        assert_int_equal(slot_end, end);
    }
}

static void test_parameters_experts_lie_where_their_map_says(void **state)
{
    static const int32_t at_first[] = {0, 1, 0, 2, 3, 2};
    static const int32_t later[] = {2, 3, 3, 1, 2, 0};
    static const double loads[] = {6, 6, 12, 12}, uneven[] = {6, 12, 6, 0};
    (void)state;
    for (int moved = 0; moved < 2; moved++) {
        const int32_t *experts = moved ? later : at_first;
        unsigned char counted[2][64] = {{0}};
        size_t seen = 0;
        for (size_t part = 0; part < 2; part++) {
            wefti_parameters plan;
            plan_experts(part, 6, &plan);
            if (moved) {
                wefti_expert_map_set(&plan.expert_map, 1, later);
            }
            assert_int_equal(plan.expert_slots, 6);
            seen = 0;
            for (size_t i = wefti_tensor_of_layer(&plan, 1);
                 i < wefti_tensor_of_layer(&plan, 2); i++) {
                if (plan.tensors[i].experts) {
                    check_mapped(&plan.tensors[i], experts, part,
                                 counted[seen++]);
                }
            }
            wefti_parameters_fini(&plan);
        }
        assert_int_equal(seen, 2);
        for (size_t i = 0; i < 4 * 2; i++) { /* blocks of 1024 elements */
            assert_int_equal(counted[0][i], 1);
            assert_int_equal(counted[1][i], i < 4 ? 1 : 0);
        }
    }
    wefti_parameters plan;
    size_t count;
    plan_experts(0, 6, &plan);
    wefti_expert_map_set(&plan.expert_map, 1, later);
    const int32_t *slots =
        wefti_expert_map_slots(&plan.expert_map, 1, 3, &count);
    assert_int_equal(count, 2);
    assert_memory_equal(slots, ((int32_t[]){1, 2}), 2 * sizeof(*slots));
    (void)wefti_expert_map_slots(&plan.expert_map, 0, 3, &count);
    assert_int_equal(count, 1);
    /* 6 + 6 + 6 on either part */
    assert_true(wefti_expert_map_ratio(&plan.expert_map, later, loads) == 1);
    /* 18 and 6 of 24 */
    assert_true(wefti_expert_map_ratio(&plan.expert_map, at_first, uneven) ==
                1.5);
    wefti_parameters_fini(&plan);
}

/* Three experts on two parts, where only a replica makes slots even. */
static void test_parameters_experts_that_parts_do_not_divide(void **state)
{
    static const int32_t experts[] = {0, 1, 2, 0};
    wefti_expert_map map;
    (void)state;
    assert_int_equal(wefti_expert_map_init(&map, 2, 3, 4, 2), WEFT_OK);
    for (size_t layer = 0; layer < 2; layer++) {
        assert_memory_equal(wefti_expert_map_experts(&map, layer), experts,
                            sizeof(experts));
    }
    wefti_expert_map_fini(&map);
}

/* Wherever experts are, and in all their replicas. */
static void test_parameters_experts_start_alike_in_any_slot(void **state)
{
    static const wefti_start start = {1, 0.02, 0.5};
    (void)state;
    for (size_t part = 0; part < 2; part++) {
        wefti_parameters plain, mapped;
        real *values[2][2];
        plan_experts(0, 0, &plain);
        plan_experts(part, 6, &mapped);
        wefti_parameters *plans[] = {&plain, &mapped};
        for (size_t k = 0; k < 2; k++) {
            for (size_t g = 0; g < 2; g++) {
                values[k][g] = calloc(plans[k]->groups[g].flat_elems,
                                      sizeof(*values[k][g]));
                assert_non_null(values[k][g]);
            }
            wefti_parameters_init(plans[k], 7, &start, values[k]);
        }
        for (size_t i = 0; i < mapped.tensor_count; i++) {
            const wefti_tensor *own = &mapped.tensors[i];
            const size_t elems = own->slot_elems;
            for (size_t at = 0; own->experts && at < 3 * elems; at++) {
                const size_t whole = wefti_tensor_find(own, at).whole;
                if (whole < 2 * elems) { /* which the plain part has */
                    assert_true(
                        values[1][1][own->start_elems + at] ==
                        values[0][1][plain.tensors[i].start_elems + whole]);
                }
            }
        }
        for (size_t k = 0; k < 2; k++) {
            free(values[k][0]);
            free(values[k][1]);
            wefti_parameters_fini(plans[k]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_any_ranks_have_one_layout),
        cmocka_unit_test(test_parameters_bucket_bytes_close_buckets),
        cmocka_unit_test(
            test_parameters_start_values_are_the_same_on_any_layout),
        cmocka_unit_test(test_parameters_tied_head_is_the_embedding),
        cmocka_unit_test(test_tensor_list_pieces_cover_the_tensors),
        cmocka_unit_test(test_parameters_another_layer_is_laid_out_by_group),
        cmocka_unit_test(test_parameters_parts_are_those_of_the_whole),
        cmocka_unit_test(test_parameters_experts_lie_where_their_map_says),
        cmocka_unit_test(test_parameters_experts_that_parts_do_not_divide),
        cmocka_unit_test(test_parameters_experts_start_alike_in_any_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
