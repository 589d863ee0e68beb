/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     whatever valid schedule the trainer is given, it trains as a single
 *          rank does, and holds just what was predicted.
 * Method   random jobs whose ranks are threads: every generator in turn with
 *          random ranks, chunks, groups and micro-batches, copies beside it,
 *          tied embeddings, overlap on and off; half of them as lists from a
 *          file that were a generator's, with backwards split, W put off,
 *          activations put away or dropped for a while, and neighbours swapped
 *          wherever the checker still agrees, some with messages. Loss, norm,
 *          gradients and parameters of one rank bit by bit where the sums have
 *          the same order, else within 1e-6 (float) and 1e-12 (double); peaks
 *          of every rank as predicted. WEFT_TEST_LONG: 500 jobs.
 */
#include "tests/overlap/schedules.h"
#include "tests/trainer/job.h"

#include <math.h>

enum {
    SETTINGS = 18,
    SETTING_BYTES = 96,
    MUTATIONS = 60, /* tried in a list */
    STAGES_MOST = 16
};

static scratch own;

/* One job that was drawn. */
typedef struct sample {
    weft_schedule_config config;
    weft_schedule *schedule; /* what is run, before the trainer's passes */
    int copies;
    bool tied;
    bool from_file;
    char settings[SETTINGS][SETTING_BYTES];
    int setting_count;
} sample;

static bool one_in(uint64_t *seed, size_t count)
{
    return below(seed, count) == 0;
}

/* ---- drawing --------------------------------------------------------------
 */

/* The n-th generator, with numbers that it takes. */
static weft_schedule_config draw_config(int n, uint64_t *seed)
{
    weft_schedule_config config =
        make_config(names[n], 2 + (int)below(seed, 3), 0, 0);
    config.ranks += n == DUALPIPE ? config.ranks % 2 : 0;
    config.microbatches = 1 + (int)below(seed, 8);
    if (n == DUALPIPE || n == DUALPIPEV) {
        config.microbatches = 2 * config.ranks + 2 * (int)below(seed, 2);
    }
    if (n == INTERLEAVED) {
        int groups = 1 + (int)below(seed, 2);
        config.chunks = 2 + (int)below(seed, 2);
        config.group = config.ranks + (int)below(seed, 2);
        config.microbatches = config.group * groups;
        config.microbatches += one_in(seed, 3) ? config.ranks : 0;
    }
    return config;
}

/* Whether a file has two directions follows from what its last rank begins
 * with. */
static bool is_readable(const weft_schedule *schedule)
{
    const weft_action *first = schedule->lists[schedule->ranks - 1].items;
    return schedule->directions == 1 || first->stage == schedule->ranks;
}

static bool is_valid(const weft_schedule *schedule)
{
    weft_verdict verdict = check_schedule(schedule, WEFT_SEMANTICS_GROUPED, 0);
    bool valid = verdict.valid && is_readable(schedule);
    weft_verdict_fini(&verdict);
    return valid;
}

/* A pair becomes F and B, a B becomes I and W, at once or much later. */
static void split(wefti_actions *list, size_t at, uint64_t *seed)
{
    weft_action *action = &list->items[at];
    weft_action parts[2];
    if (action->type == WEFT_ACTION_B) {
        parts[0] =
            wefti_action(WEFT_ACTION_I, action->stage, action->microbatch);
        parts[1] =
            wefti_action(WEFT_ACTION_W, action->stage, action->microbatch);
    } else if (wefti_action_split(action, parts) == 1) {
        return;
    }
    *action = parts[0];
    wefti_actions_add(list, parts[1]);
    move_action(list, list->count - 1,
                at + 1 + below(seed, list->count - at - 1));
}

/* Activations that go to the host, and back before they are needed. */
static void put_away(wefti_actions *list, size_t at, uint64_t *seed)
{
    weft_action f = list->items[at];
    weft_action_type types[] = {WEFT_ACTION_OFFLOAD, WEFT_ACTION_RELOAD};
    for (int k = 0; k < 2; k++) {
        size_t to = at + 1 + below(seed, list->count - at);
        wefti_actions_add(list, wefti_action(types[k], f.stage, f.microbatch));
        move_action(list, list->count - 1, to);
        at = to;
    }
}

/* Activations that are dropped, and computed again before this action. */
static void drop(wefti_actions *list, size_t at)
{
    weft_action parts[2];
    int count = wefti_action_split(&list->items[at], parts);
    const weft_action *last = &parts[count - 1];
    wefti_actions_add(list, wefti_action(WEFT_ACTION_RECOMPUTE, last->stage,
                                         last->microbatch));
    move_action(list, list->count - 1, at);
}

/* Anything a little forth or back. */
static void shift(wefti_actions *list, size_t at, uint64_t *seed)
{
    size_t to = at + below(seed, 7);
    to = to < 3 ? 0 : to - 3;
    move_action(list, at, to < list->count ? to : list->count - 1);
}

/* A change to one rank's list, taken back where it is no schedule any more. */
static void mutate(weft_schedule *schedule, uint64_t *seed)
{
    wefti_actions *list =
        &schedule->lists[below(seed, (size_t)schedule->ranks)];
    size_t count = list->count;
    size_t bytes = count * sizeof(*list->items);
    weft_action *before = malloc(bytes);
    scratch_require(before != NULL, "memory");
    memcpy(before, list->items, bytes);
    size_t at = below(seed, count);
    weft_action_type type = (weft_action_type)list->items[at].type;
    if (one_in(seed, 2)) {
        split(list, at, seed);
    } else if (type == WEFT_ACTION_F && one_in(seed, 2)) {
        put_away(list, at, seed);
    } else if (type != WEFT_ACTION_F &&
               wefti_action_is_compute(list->items + at) && one_in(seed, 4)) {
        drop(list, at);
    } else if (list->items[at].type == WEFT_ACTION_W && one_in(seed, 2)) {
        move_action(list, at, at + below(seed, count - at));
    } else {
        shift(list, at, seed);
    }
    if (!is_valid(schedule)) {
        memcpy(list->items, before, bytes);
        list->count = count;
    }
    free(before);
}

static void write_list(sample *it)
{
    FILE *file = fopen(scratch_path(&own, "list.csv"), "w");
    scratch_require(file != NULL, "list.csv");
    ASSERT_OK(weft_schedule_write(it->schedule, 0, file));
    scratch_require(fclose(file) == 0, "list.csv");
}

/* ---- settings -------------------------------------------------------------
 */

#define SET(it, ...)                                                           \
    snprintf((it)->settings[(it)->setting_count++], SETTING_BYTES, __VA_ARGS__)

/* What the single rank has too; its micro-batches are those of all copies. */
static void set_model(sample *it, uint64_t *seed)
{
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    ASSERT_OK(weft_schedule_get_info(it->schedule, &info));
    int stages = info.stages / info.directions;
    int sequences = one_in(seed, 4) ? 8 : 1 + (int)below(seed, 2);
    it->tied = one_in(seed, 4);
    SET(it, "model.layers=%d",
        stages * (stages < 6 && one_in(seed, 3) ? 2 : 1) +
            (one_in(seed, 3) ? (int)below(seed, (size_t)stages) : 0));
    SET(it, "model.hidden_size=16");
    SET(it, "model.ffn_size=24");
    SET(it, "model.seq_length=17");
    SET(it, "model.tie_embeddings=%s", it->tied ? "true" : "false");
    SET(it, "data.validation_fraction=0.01");
    SET(it, "train.steps=%d", 1 + (int)below(seed, 2));
    SET(it, "train.micro_batch_size=%d", sequences);
    SET(it, "train.global_batch_size=%d",
        sequences * info.microbatches * it->copies);
}

static void set_layout(sample *it, uint64_t *seed)
{
    const weft_schedule_config *config = &it->config;
    SET(it, "parallel.pipeline_model_parallel_size=%d", config->ranks);
    SET(it, "parallel.schedule=%s", it->from_file ? "list.csv" : config->name);
    if (config->chunks > 0 && !it->from_file) {
        SET(it, "parallel.virtual_pipeline_model_parallel_size=%d",
            config->chunks);
        SET(it, "parallel.virtual_group_size=%d", config->group);
    }
    SET(it, "overlap.pipeline=%s", one_in(seed, 4) ? "false" : "true");
    SET(it, "overlap.grad_reduce=%s", one_in(seed, 4) ? "false" : "true");
    SET(it, "overlap.param_gather=%s", one_in(seed, 4) ? "false" : "true");
}

static void print_sample(const sample *it, FILE *file)
{
    for (int i = 0; i < it->setting_count; i++) {
        fprintf(file, " %s", it->settings[i]);
    }
    fprintf(file, " on %d ranks\n", it->config.ranks * it->copies);
    if (it->from_file) {
        fprintf(file, "list.csv, once %s:\n", it->config.name);
        (void)!weft_schedule_write(it->schedule, 0, file);
    }
}

/* ---- what must come out ---------------------------------------------------
 */

/* Whether each stage adds its micro-batches one after the other. */
static bool is_in_order(const weft_schedule *schedule)
{
    bool in_order = true;
    int next[STAGES_MOST] = {0};
    assert_true(schedule->stages <= STAGES_MOST);
    for (int rank = 0; rank < schedule->ranks; rank++) {
        const wefti_actions *list = &schedule->lists[rank];
        for (size_t k = 0; k < list->count; k++) {
            weft_action parts[2];
            int count = wefti_action_split(&list->items[k], parts);
            const weft_action *last = &parts[count - 1];
            if (last->type == WEFT_ACTION_W || last->type == WEFT_ACTION_B) {
                in_order &= last->microbatch == next[last->stage]++;
            }
        }
    }
    return in_order;
}

/* Whether all sums are the single rank's tree (trainer/gradient.h). */
static bool has_same_bits(const sample *it)
{
    int group = it->copies * it->schedule->directions;
    int each = it->schedule->per_stage;
    return !it->tied && is_in_order(it->schedule) &&
           (group == 1 || (each & (each - 1)) == 0);
}

static job_result run(const sample *it, bool single)
{
    job what = {.nranks = single ? 1 : it->config.ranks * it->copies};
    size_t count = 0;
    for (int i = 0; i < it->setting_count; i++) {
        if (!single || strncmp(it->settings[i], "parallel.", 9) != 0) {
            what.settings[count++] = it->settings[i];
        }
    }
    job_result result = job_run(&own, &what);
    if (result.status != WEFT_OK) {
        print_sample(it, stderr);
        fail_msg("%s: %s", single ? "single rank" : "pipeline", result.error);
    }
    return result;
}

/* The larger one; what is no number is larger than all. */
static double worse(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

/* Largest distance, in units of the largest value. */
static double distance(const real *a, const real *b, size_t count)
{
    double worst = 0, most = 0;
    for (size_t i = 0; i < count; i++) {
        worst = worse(worst, fabs((double)a[i] - (double)b[i]));
        double value = fabs((double)a[i]);
        most = value > most ? value : most;
    }
    return worst / most;
}

/*
 * The furthest of all that is compared. Not the same, over float, a second step
 * shows little: Adam makes much of a gradient near zero whose sign is another.
 */
static double compare(const job_result *a, const job_result *b, bool same)
{
    bool exact = same || sizeof(real) == 8;
    double difference = fabs(a->val_loss / b->val_loss - 1);
    for (size_t i = 0; i < a->steps; i++) {
        difference = worse(difference, fabs(a->loss[i] / b->loss[i] - 1));
    }
    for (size_t i = 0; i < (exact ? a->steps : 1); i++) {
        difference =
            worse(difference, fabs(a->grad_norm[i] / b->grad_norm[i] - 1));
    }
    if (exact || a->steps == 1) {
        difference = worse(difference, distance(a->gradients, b->gradients,
                                                a->parameter_count));
    }
    return same ? worse(difference, distance(a->parameters, b->parameters,
                                             a->parameter_count))
                : difference;
}

static void check(const sample *it)
{
    const double tolerance = sizeof(real) == 8 ? 1e-12 : 1e-6;
    bool same = has_same_bits(it);
    job_result wanted = run(it, true);
    job_result got = run(it, false);
    assert_int_equal(wanted.steps, got.steps);
    assert_int_equal(wanted.parameter_count, got.parameter_count);
    double difference = compare(&wanted, &got, same);
    bool good = difference <= (same ? 0 : tolerance) && got.peaks_as_planned;
    if (!good) {
        print_sample(it, stderr);
        fail_msg("%s: %g away; peaks %s as predicted",
                 same ? "the same bits are wanted" : "other order of sums",
                 difference, got.peaks_as_planned ? "are" : "are not");
    }
    if (it->tied) {
        assert_non_null(got.head_copy);
        assert_memory_equal(got.head_copy, got.parameters,
                            got.head_elems * sizeof(real));
    }
    job_result_fini(&wanted);
    job_result_fini(&got);
}

static void try_one(int round, uint64_t *seed)
{
    weft_schedule *schedule;
    sample it = {.config = draw_config(round % NAMES, seed)};
    ASSERT_OK(weft_schedule_create(&it.config, &schedule));
    it.schedule = schedule;
    it.copies = one_in(seed, 3) ? 2 : 1;
    it.from_file = one_in(seed, 2);
    for (int i = 0; it.from_file && i < MUTATIONS; i++) {
        mutate(it.schedule, seed);
    }
    if (it.from_file && one_in(seed, 3)) {
        ASSERT_OK(weft_schedule_reduce(schedule, one_in(seed, 2)));
        ASSERT_OK(weft_schedule_lower(schedule, WEFT_LOWERING_SENDER));
    }
    if (it.from_file) {
        write_list(&it);
    }
    set_model(&it, seed);
    set_layout(&it, seed);
    check(&it);
    weft_schedule_destroy(it.schedule);
}

/* Sanitizers and a second precision see each generator once at least. */
static int count_rounds(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    bool few = true;
#else
    bool few = sizeof(real) == 8;
#endif
    return getenv("WEFT_TEST_LONG") ? 500 : few ? NAMES : 50;
}

static void test_random_schedules_train_as_one_rank(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    scratch_open(&own);
    job_prepare(&own, seed);
    for (int round = 0; round < count_rounds(); round++) {
        try_one(round, &seed);
    }
    scratch_close(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_schedules_train_as_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
