/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a model with two groups of parameters, dense ones and experts, is
 *          trained the same on any ranks: each group is reduced and gathered
 *          over its own, the norm counts each element once, and state that is
 *          saved has each once.
 * Method   a list of tensors that no block has; gradients that are a function
 *          of tensor, element, step and contribution, of which the dense group
 *          has four and the experts two, however many ranks have them. Steps
 *          on 4 and 2 ranks, experts in 1, 2 and 4 parts, on the host and on
 *          streams of a shadow device, against one rank of the host. Bitwise.
 */
#include "tests/comm/world.h"
#include "trainer/checkpoint/state.h"
#include "trainer/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    RANKS_MOST = 4,
    STEPS = 3,
    EXPERTS = 4,
    DENSE = 0,
    EXPERT = 1,
    GROUPS = 2
};

static const wefti_model_shape shape = {
    .layers = 2, .hidden = 32, .ffn = 64, .vocab = 50, .seq = 4};

static const size_t contributions[GROUPS] = {4, 2};

static const wefti_optimizer_config optimizer = {.lr = 0.01,
                                                 .warmup_steps = 2,
                                                 .steps = 10,
                                                 .weight_decay = 0.1,
                                                 .clip = 1.0,
                                                 .min_ratio = 0.1,
                                                 .beta1 = 0.9,
                                                 .beta2 = 0.98,
                                                 .epsilon = 1e-8};

/* ---- the model ------------------------------------------------------------
 */

static void add(wefti_tensor_list *list, const char *name,
                wefti_tensor_kind kind, size_t rows, size_t group)
{
    wefti_tensor_info info = {.kind = kind,
                              .rows = rows,
                              .columns = shape.hidden,
                              .dtype = WEFTI_REAL_DTYPE,
                              .split = group == EXPERT ? WEFTI_SPLIT_EXPERT
                                                       : WEFTI_SPLIT_NONE,
                              .group = group};
    snprintf(info.name, sizeof(info.name), "%s%zu", name, list->count);
    wefti_tensor_list_add(list, &info);
}

static void list_model(wefti_tensor_list *list)
{
    wefti_tensor_list_begin_module(list);
    add(list, "embedding", WEFTI_TENSOR_EMBEDDING, shape.vocab, DENSE);
    for (size_t layer = 0; layer < shape.layers; layer++) {
        wefti_tensor_list_begin_module(list);
        add(list, "norm", WEFTI_TENSOR_NORM, 1, DENSE);
        add(list, "router", WEFTI_TENSOR_INPUT, EXPERTS, DENSE);
        add(list, "up", WEFTI_TENSOR_INPUT, EXPERTS * shape.ffn, EXPERT);
        add(list, "down", WEFTI_TENSOR_OUTPUT, EXPERTS * shape.ffn, EXPERT);
    }
    wefti_tensor_list_begin_module(list);
    add(list, "norm", WEFTI_TENSOR_NORM, 1, DENSE);
    add(list, "head", WEFTI_TENSOR_HEAD, shape.vocab, DENSE);
}

/* What a contribution adds to the gradient of an element. */
static real slope(size_t step, size_t contribution, size_t tensor,
                  size_t element)
{
    wefti_random random =
        wefti_random_make(step * 1000 + contribution * 100 + tensor, element);
    return (real)wefti_random_normal(&random);
}

/* ---- one rank -------------------------------------------------------------
 */

/* A layout, and what it has come to: by tensor, as if all ranks were one. */
typedef struct scene {
    wefti_mesh mesh;
    weft_bucket_mode mode;
    const char *device;
    weft_device *devices[RANKS_MOST];
    size_t elems;
    real *state[WEFTI_STATE_PARTS]; /* [elems] from the ranks' shares */
    unsigned char *hits;            /* [elems] ranks that have one */
    double norms[STEPS];            /* rank 0's */
    const struct scene *wanted;     /* NULL: this is the reference */
} scene;

typedef struct rank_state {
    wefti_mesh_comms comms;
    weft_device *device;   /* the scene's */
    wefti_replica replica; /* of it the plan, the groups and compute alone */
    weft_bucket_set *reduce[GROUPS];
    real *room; /* for any array */
} rank_state;

static weft_status copy(const rank_state *own, void *dst, const void *src,
                        size_t bytes)
{
    weft_status status =
        weft_device_copy(own->device, dst, src, bytes, own->replica.compute);
    return status == WEFT_OK ? wefti_replica_wait(&own->replica) : status;
}

static weft_status make_room(rank_state *own)
{
    const wefti_parameters *plan = &own->replica.plan;
    const wefti_step_sums sums = {.device = own->device,
                                  .compute = own->replica.compute,
                                  .comm = own->comms.job,
                                  .blocks = plan->block_count,
                                  .most = optimizer.clip};
    own->room = calloc(plan->flat_elems, sizeof(*own->room));
    return own->room ? wefti_step_sums_init(&own->replica.sums, &sums)
                     : WEFT_ERR_NO_MEMORY;
}

static weft_status make_groups(rank_state *own)
{
    wefti_replica *replica = &own->replica;
    weft_status status = WEFT_OK;
    for (size_t g = 0; g < GROUPS && status == WEFT_OK; g++) {
        const wefti_group_plan *plan = &replica->plan.groups[g];
        const wefti_parameter_group_config config = {
            .plan = &replica->plan,
            .number = g,
            .comm = own->comms.comms[WEFTI_MESH_DATA + g],
            .device = own->device,
            .compute = replica->compute,
            .passes = contributions[g] / plan->nranks,
            .optimizer = optimizer};
        status = wefti_parameter_group_init(&replica->groups[g], &config);
        if (status == WEFT_OK) {
            status = wefti_parameter_group_reduce(
                &replica->groups[g], plan->parts[0], &own->reduce[g]);
        }
    }
    return status;
}

static weft_status open_rank(rank_state *own, const scene *what,
                             weft_comm *comm)
{
    wefti_tensor_info items[16];
    size_t modules[8];
    wefti_tensor_list list = {.items = items, .modules = modules};
    const wefti_layer_run whole = {.layers_end = shape.layers};
    wefti_parameters_config config = {.shape = shape,
                                      .bucket_bytes = 20000,
                                      .parts = &whole,
                                      .part_count = 1};
    list_model(&list);
    weft_status status = wefti_mesh_connect(&own->comms, &what->mesh, comm,
                                            NULL, list.group_count);
    own->device = what->devices[weft_comm_get_rank(comm)];
    own->replica.config.device = own->device;
    if (status == WEFT_OK && strcmp(what->device, "host") != 0) {
        status = weft_stream_create(own->device, 0, &own->replica.compute);
    }
    if (status == WEFT_OK) {
        for (size_t g = 0; g < GROUPS; g++) {
            config.nranks[g] = (size_t)weft_comm_get_nranks(
                own->comms.comms[WEFTI_MESH_DATA + g]);
        }
        config.expert_part = (size_t)own->comms.at.ep;
        config.expert_parts = (size_t)what->mesh.ep;
        status = wefti_parameters_plan_list(&config, &list, &own->replica.plan);
    }
    if (status == WEFT_OK) {
        status = make_room(own);
    }
    return status == WEFT_OK ? make_groups(own) : status;
}

static void close_rank(rank_state *own)
{
    (void)!wefti_replica_wait(&own->replica);
    for (size_t g = 0; g < GROUPS; g++) {
        weft_bucket_destroy(own->reduce[g]);
        wefti_parameter_group_fini(&own->replica.groups[g]);
    }
    wefti_parameters_fini(&own->replica.plan);
    wefti_mesh_leave(&own->comms);
    wefti_step_sums_fini(&own->replica.sums);
    weft_stream_destroy(own->replica.compute);
    free(own->room);
    free(own);
}

static weft_status make_leaf(const rank_state *own, size_t number, size_t step,
                             size_t contribution)
{
    const wefti_parameters *plan = &own->replica.plan;
    size_t elems = plan->groups[number].flat_elems;
    memset(own->room, 0, elems * sizeof(real));
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        size_t before = tensor->part * tensor->rows * tensor->info.columns;
        for (size_t k = 0; tensor->info.group == number &&
                           k < wefti_tensor_here_elems(tensor);
             k++) {
            own->room[tensor->start_elems + k] =
                slope(step, contribution, i, before + k);
        }
    }
    const wefti_gradient *gradient = &own->replica.groups[number].gradient;
    return copy(own,
                wefti_gradient_place(gradient, contribution % gradient->count),
                own->room, elems * sizeof(real));
}

/* This rank's contributions, summed up and then with those of the others. */
static weft_status reduce_group(rank_state *own, size_t number, size_t step,
                                weft_bucket_mode mode)
{
    wefti_parameter_group *group = &own->replica.groups[number];
    size_t buckets = group->plan->bucket_count;
    weft_status status = WEFT_OK;
    for (size_t n = 0; n < group->gradient.count && status == WEFT_OK; n++) {
        status = make_leaf(own, number, step,
                           group->rank * group->gradient.count + n);
        for (size_t b = buckets; b > 0 && status == WEFT_OK; b--) {
            status = wefti_gradient_add(&group->gradient, b - 1, n);
        }
    }
    if (status == WEFT_OK) {
        status = wefti_parameter_group_settle(group);
    }
    if (status == WEFT_OK) {
        status = weft_bucket_begin(own->reduce[number], mode);
    }
    for (size_t b = buckets; b > 0 && status == WEFT_OK; b--) {
        status = weft_bucket_ready(own->reduce[number], b - 1);
    }
    return status;
}

static weft_status square_group(rank_state *own, size_t number)
{
    const wefti_parameter_group *group = &own->replica.groups[number];
    weft_status status = WEFT_OK;
    for (size_t b = group->plan->bucket_count; b > 0 && status == WEFT_OK;
         b--) {
        status = weft_bucket_wait(own->reduce[number], b - 1);
        if (status == WEFT_OK) {
            status = wefti_optimizer_square(&group->optimizer, b - 1,
                                            group->gradient.leaf,
                                            own->replica.sums.squares);
        }
    }
    return status;
}

static weft_status update_group(wefti_parameter_group *group, size_t step,
                                const double *factor, weft_bucket_mode mode)
{
    weft_status status = wefti_parameter_group_begin(group, mode);
    for (size_t b = 0; b < group->plan->bucket_count && status == WEFT_OK;
         b++) {
        status = wefti_optimizer_update(&group->optimizer, b, step, factor,
                                        group->gradient.leaf, group->values);
        if (status == WEFT_OK) {
            status = weft_bucket_ready(group->gather, b);
        }
    }
    return status;
}

static weft_status run_step(rank_state *own, size_t step, weft_bucket_mode mode,
                            double *norm_out)
{
    static const double no_times[WEFTI_STEP_TIMES];
    wefti_replica *replica = &own->replica;
    wefti_step_facts facts = {.norm = (double)NAN};
    weft_status status = wefti_step_sums_begin(&replica->sums, no_times);
    for (size_t g = 0; g < GROUPS && status == WEFT_OK; g++) {
        status = reduce_group(own, g, step, mode);
    }
    for (size_t g = 0; g < GROUPS && status == WEFT_OK; g++) {
        status = square_group(own, g);
    }
    if (status == WEFT_OK) {
        status = wefti_step_sums_collect(&replica->sums);
    }
    if (status == WEFT_OK) {
        status = wefti_step_sums_clip(&replica->sums);
    }
    for (size_t g = 0; g < GROUPS && status == WEFT_OK; g++) {
        status =
            update_group(&replica->groups[g], step, replica->sums.factor, mode);
    }
    if (status == WEFT_OK) {
        status = wefti_step_sums_read(&replica->sums, &facts);
    }
    *norm_out = facts.norm;
    return status;
}

/* ---- what it has come to --------------------------------------------------
 */

/* Where a tensor begins in a scene's arrays. */
static size_t find_start(const wefti_parameters *plan, size_t tensor)
{
    size_t start = 0;
    for (size_t i = 0; i < tensor; i++) {
        start += wefti_tensor_elems(&plan->tensors[i].info);
    }
    return start;
}

static size_t find_tensor(const wefti_parameters *plan, const char *name)
{
    size_t i = 0;
    while (strcmp(plan->tensors[i].info.name, name) != 0) {
        i++;
    }
    return i;
}

/* Ranks keep different elements, if all is well. */
static int keep_state(const rank_state *own, scene *what)
{
    const wefti_parameters *plan = &own->replica.plan;
    wefti_state_list list;
    int wrong = 0;
    if (wefti_state_list_shares(&own->replica, false, &list) != WEFT_OK) {
        return 1;
    }
    for (size_t i = 0; i < list.count; i++) {
        const wefti_checkpoint_piece *piece = &list.pieces[i];
        size_t part = i % WEFTI_STATE_PARTS;
        size_t tensor = find_tensor(plan, list.pieces[i - part].name);
        size_t at = find_start(plan, tensor) + piece->offset;
        size_t elems = wefti_tensor_elems(&plan->tensors[tensor].info);
        wrong += piece->columns != shape.hidden ||
                 piece->offset + piece->elems > elems;
        wrong += copy(own, what->state[part] + at, piece->live,
                      piece->elems * sizeof(real)) != WEFT_OK;
        for (size_t k = 0; part == 0 && k < piece->elems; k++) {
            what->hits[at + k]++;
        }
    }
    wefti_state_list_fini(&list);
    return wrong;
}

/* All that this rank has, also what came from others. */
static int compare_values(const rank_state *own, const scene *wanted)
{
    const wefti_parameters *plan = &own->replica.plan;
    int wrong = 0;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        size_t at =
            find_start(plan, i) + tensor->part * tensor->rows * shape.hidden;
        size_t bytes = wefti_tensor_here_elems(tensor) * sizeof(real);
        wrong +=
            copy(own, own->room, wefti_replica_values(&own->replica, tensor),
                 bytes) != WEFT_OK ||
            memcmp(own->room, wanted->state[0] + at, bytes) != 0;
    }
    return wrong;
}

static weft_status train(rank_state *own, scene *what)
{
    const wefti_start start = {1, 0.02, 1};
    const wefti_parameters *plan = &own->replica.plan;
    real *const values[GROUPS] = {own->room,
                                  own->room + plan->groups[DENSE].flat_elems};
    weft_status status = WEFT_OK;
    wefti_parameters_init(plan, 7, &start, values);
    for (size_t g = 0; g < GROUPS && status == WEFT_OK; g++) {
        status = copy(own, own->replica.groups[g].values, values[g],
                      plan->groups[g].flat_elems * sizeof(real));
    }
    for (size_t step = 1; step <= STEPS && status == WEFT_OK; step++) {
        double norm;
        status = run_step(own, step, what->mode, &norm);
        if (weft_comm_get_rank(own->comms.job) == 0) {
            what->norms[step - 1] = norm;
        }
    }
    return status == WEFT_OK ? wefti_replica_settle(&own->replica) : status;
}

static int run_rank(weft_comm *comm, void *context)
{
    scene *what = context;
    rank_state *own = calloc(1, sizeof(*own));
    int wrong = own == NULL || open_rank(own, what, comm) != WEFT_OK ||
                train(own, what) != WEFT_OK;
    if (!wrong) {
        wrong = keep_state(own, what);
    }
    if (!wrong && what->wanted) {
        wrong = compare_values(own, what->wanted);
    }
    close_rank(own);
    return wrong;
}

/* ---- the layouts ----------------------------------------------------------
 */

static void open_device(int rank, void *context)
{
    scene *what = context;
    assert_int_equal(weft_device_open(what->device, 0, &what->devices[rank]),
                     WEFT_OK);
}

static void set_device(int rank, weft_comm_config *config, void *context)
{
    const scene *what = context;
    if (strcmp(what->device, "host") != 0) {
        config->device = what->devices[rank];
    }
}

static void run_scene(scene *what, const char *device, int nranks, int ep,
                      weft_bucket_mode mode, const scene *wanted)
{
    const wefti_mesh sizes = {.tp = 1, .cp = 1, .ep = ep, .pp = 1};
    wefti_tensor_info items[16];
    size_t modules[8];
    wefti_tensor_list list = {.items = items, .modules = modules};
    *what = (scene){.device = device, .mode = mode, .wanted = wanted};
    assert_int_equal(wefti_mesh_make(&sizes, nranks, &what->mesh), WEFT_OK);
    list_model(&list);
    for (size_t i = 0; i < list.count; i++) {
        what->elems += wefti_tensor_elems(&items[i]);
    }
    for (int part = 0; part < WEFTI_STATE_PARTS; part++) {
        what->state[part] = calloc(what->elems, sizeof(real));
        assert_non_null(what->state[part]);
    }
    what->hits = calloc(what->elems, 1);
    assert_non_null(what->hits);
    const struct world world = {.nranks = nranks,
                                .call = run_rank,
                                .context = what,
                                .before = open_device,
                                .configure = set_device};
    assert_int_equal(world_run_threads(&world), 0);
    for (int rank = 0; rank < nranks; rank++) {
        weft_device_close(what->devices[rank]);
    }
    for (size_t i = 0; i < what->elems; i++) {
        assert_int_equal(what->hits[i], 1);
    }
}

static void free_scene(scene *what)
{
    for (int part = 0; part < WEFTI_STATE_PARTS; part++) {
        free(what->state[part]);
    }
    free(what->hits);
}

static void test_parameter_group_any_layout_trains_the_same(void **state)
{
    static const struct {
        const char *device;
        int nranks, ep;
        weft_bucket_mode mode;
    } layouts[] = {{"host", 4, 2, WEFT_BUCKET_OVERLAPPED},
                   {"host", 4, 2, WEFT_BUCKET_BLOCKING},
                   {"host", 4, 4, WEFT_BUCKET_OVERLAPPED},
                   {"host", 2, 1, WEFT_BUCKET_OVERLAPPED},
                   {"host", 2, 2, WEFT_BUCKET_OVERLAPPED},
                   {"shadow", 1, 1, WEFT_BUCKET_OVERLAPPED},
                   {"shadow", 4, 2, WEFT_BUCKET_OVERLAPPED},
                   {"shadow", 2, 2, WEFT_BUCKET_BLOCKING}};
    scene one, many;
    (void)state;
    run_scene(&one, "host", 1, 1, WEFT_BUCKET_OVERLAPPED, NULL);
    for (int step = 0; step < STEPS; step++) {
        assert_true(one.norms[step] > optimizer.clip);
    }
    for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
        run_scene(&many, layouts[i].device, layouts[i].nranks, layouts[i].ep,
                  layouts[i].mode, &one);
        assert_memory_equal(many.norms, one.norms, sizeof(one.norms));
        for (int part = 0; part < WEFTI_STATE_PARTS; part++) {
            assert_memory_equal(many.state[part], one.state[part],
                                one.elems * sizeof(real));
        }
        free_scene(&many);
    }
    free_scene(&one);
}

static void
test_parameter_group_parts_without_whole_blocks_are_refused(void **state)
{
    wefti_tensor_info items[16];
    size_t modules[8];
    wefti_tensor_list list = {.items = items, .modules = modules};
    const wefti_layer_run whole = {.layers_end = shape.layers};
    wefti_parameters plan;
    wefti_parameters_config config = {.shape = shape,
                                      .bucket_bytes = 20000,
                                      .nranks = {1, 1},
                                      .expert_parts = 16,
                                      .parts = &whole,
                                      .part_count = 1};
    (void)state;
    list_model(&list);
    assert_int_equal(wefti_parameters_plan_list(&config, &list, &plan),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(),
                           "up3: 256 rows of 32 in 16 parts: allowed are parts "
                           "of whole rows and multiples of 1024 elements"));
    config.expert_parts = 8;
    assert_int_equal(wefti_parameters_plan_list(&config, &list, &plan),
                     WEFT_OK);
    wefti_parameters_fini(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameter_group_any_layout_trains_the_same),
        cmocka_unit_test(
            test_parameter_group_parts_without_whole_blocks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
