/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/trainer/job.c - jobs for the trainer's tests.
 */
#include "tests/trainer/job.h"

#include "tests/seed.h"
#include "trainer/run.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

static const char config_text[] =
    "model: {layers: 2, hidden_size: 32, heads: 4, kv_heads: 2,\n"
    "        ffn_size: 48, seq_length: %s}\n"
    "data: {paths: [text.txt], validation_fraction: %s}\n"
    "train: {steps: 8, micro_batch_size: 2, global_batch_size: 32,\n"
    "        lr: 1.0e-2, warmup_steps: 3, validate_every: 4}\n"
    "overlap: {bucket_mb: 0.012}\n"
    "checkpoint: {dir: ckpt, every: 0, keep: 100}\n"
    "generate: {bytes: 20}\n"; /* each run generates some */

bool job_is_slow(void)
{
#if defined(__SANITIZE_THREAD__)
    return !getenv("WEFT_TEST_LONG") && !getenv("WEFT_TEST_WHOLE");
#else
    return false;
#endif
}

bool job_is_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return !getenv("WEFT_TEST_LONG") && !getenv("WEFT_TEST_WHOLE");
#else
    return job_is_slow();
#endif
}

void job_prepare(scratch *own, uint64_t seed)
{
    static const char *const words[] = {"warp",   "weft", "loom", "the",
                                        "thread", "and",  "a",    "shuttle"};
    const bool few = job_is_sanitized();
    char text[6000], config[sizeof(config_text) + 32];
    size_t used = 0;
    while (used < sizeof(text) - 16) {
        uint64_t draw = random_next(&seed);
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%c",
                                 words[draw % 8], draw >> 60 ? ' ' : '\n');
    }
    snprintf(config, sizeof(config), config_text, few ? "8" : "24",
             few ? "0.01" : "0.1");
    scratch_text(own, "job.yaml", config);
    scratch_write(own, "text.txt", text, used);
}

/* One rank, and what it hands back. */
typedef struct rank_job {
    wefti_run_config config;
    pthread_t thread;
    weft_status status;
    char error[WEFTI_RUN_ERROR_BYTES];
    job_result *result; /* all ranks' */
    pthread_mutex_t *lock;
} rank_job;

static real *make_room(size_t count)
{
    real *room = calloc(count, sizeof(real));
    scratch_require(room != NULL, "memory");
    return room;
}

/* From where the replica computes. */
static void copy(const wefti_replica *replica, real *to, const real *from,
                 size_t elems)
{
    scratch_require(
        wefti_replica_copy(replica, to, from, elems * sizeof(real)) == WEFT_OK,
        weft_error_text());
}

/* What is here of a tensor, to its places in the whole. */
static void keep_here(real *to, const wefti_replica *replica,
                      const wefti_tensor *tensor)
{
    const size_t elems = wefti_tensor_here_elems(tensor);
    real *here = make_room(elems);
    scratch_require(wefti_replica_get(replica, tensor, here) == WEFT_OK,
                    weft_error_text());
    wefti_tensor_put(tensor, here, to);
    free(here);
}

/* Elements of a tensor's part that lies in this rank's share of its bucket;
 * from: its first that is here. */
static void keep_own(real *to, const real *from, const wefti_replica *replica,
                     const wefti_tensor *tensor)
{
    wefti_tensor_share own;
    if (!wefti_tensor_cut(&replica->plan, tensor,
                          replica->groups[tensor->info.group].rank, &own)) {
        return;
    }
    for (size_t past = 0; past < own.elems;) {
        const size_t here = own.offset_elems + past;
        const wefti_tensor_stretch next = wefti_tensor_find(tensor, here);
        size_t left = own.elems - past;
        size_t elems = next.elems < left ? next.elems : left;
        memcpy(to + next.whole,
               from + (own.start_elems - tensor->start_elems) + past,
               elems * sizeof(real));
        past += elems;
    }
}

/* What is here of a tensor's gradients and parameters: of rank 0 where that is
 * all, else each rank's own. */
static void keep_tensor(job_result *result, const wefti_replica *replica,
                        const wefti_tensor *tensor, size_t at)
{
    const bool whole = replica->pipe.info.ranks == 1 &&
                       replica->plan.tensor.parts < 2 &&
                       replica->plan.expert_parts == 1;
    const size_t elems = wefti_tensor_here_elems(tensor);
    real *room = make_room(elems);
    copy(replica, room, wefti_replica_gradient(replica, tensor), elems);
    keep_own(result->gradients + at, room, replica, tensor);
    scratch_require(wefti_replica_get(replica, tensor, room) == WEFT_OK,
                    weft_error_text());
    if (whole && replica->rank == 0) {
        memcpy(result->parameters + at, room, elems * sizeof(*room));
    } else if (!whole) {
        keep_own(result->parameters + at, room, replica, tensor);
    }
    free(room);
}

static void keep_tensors(job_result *result, const wefti_replica *replica)
{
    size_t at = 0;
    for (size_t i = 0; i < replica->plan.tensor_count; i++) {
        const wefti_tensor *tensor = &replica->plan.tensors[i];
        size_t elems = wefti_tensor_elems(&tensor->info);
        if (tensor->copy && tensor->here) {
            result->head_elems = elems;
            result->head_copy =
                result->head_copy ? result->head_copy : make_room(elems);
            keep_here(result->head_copy, replica, tensor);
        }
        if (tensor->copy || !tensor->here) {
            at += tensor->copy ? 0 : elems;
            continue;
        }
        keep_tensor(result, replica, tensor, at);
        at += elems;
    }
}

/* Whether the steps have held just what was said before. */
static bool has_planned_peaks(const wefti_replica *replica)
{
    const wefti_pipe *pipe = &replica->pipe;
    const wefti_replica_config *own = &replica->config;
    const weft_pipeline_config config = {
        .size_bytes = sizeof(config),
        .schedule = pipe->schedule,
        .rows = wefti_pipe_rows(replica, own->micro_batch *
                                             wefti_replica_length(replica)),
        .row_elems = own->shape.hidden,
        .dtype = wefti_model_dtype(&own->shape)};
    weft_pipeline_peaks planned = {.size_bytes = sizeof(planned)},
                        held = {.size_bytes = sizeof(held)};
    scratch_require(weft_pipeline_predict(&config, pipe->rank, &planned) ==
                        WEFT_OK,
                    weft_error_text());
    scratch_require(weft_pipeline_get_peaks(pipe->pipeline, &held) == WEFT_OK,
                    weft_error_text());
    return planned.slots == (int)pipe->slots && planned.slots == held.slots &&
           planned.kept == held.kept && planned.received == held.received &&
           planned.held == held.held && planned.buffers == held.buffers &&
           planned.bytes == held.bytes;
}

/*
 * Forwards of the last step that had to wait for parameters, though another
 * stage's forward had already ended on that rank.
 */
static size_t count_late_parameters(const wefti_replica *replica)
{
    const wefti_pipe *pipe = &replica->pipe;
    const weft_action *actions;
    size_t count =
        weft_schedule_get_actions(pipe->schedule, pipe->rank, &actions);
    const weft_pipeline_span *spans = weft_pipeline_get_spans(pipe->pipeline);
    size_t late = 0;
    const weft_action *first = NULL;
    for (size_t i = 0; i < count; i++) {
        if (actions[i].type != WEFT_ACTION_F) {
            continue;
        }
        first = first ? first : &actions[i];
        late += actions[i].stage != first->stage &&
                spans[i].wait == WEFT_WAIT_PARAM;
    }
    return late;
}

static void keep_name(weft_comm *comm, char name_out[32])
{
    char text[4096];
    scratch_require(weft_comm_get_health(comm, WEFT_COMM_JSON, text,
                                         sizeof(text)) == WEFT_OK,
                    weft_error_text());
    cJSON *health = cJSON_Parse(text);
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(health, "name");
    scratch_require(cJSON_IsString(name), "a communicator's name");
    snprintf(name_out, 32, "%s", name->valuestring);
    cJSON_Delete(health);
}

static void keep_result(void *context, const wefti_replica *replica)
{
    rank_job *rank = context;
    job_result *result = rank->result;
    pthread_mutex_lock(rank->lock);
    if (!result->parameters) {
        result->parameter_count = replica->plan.parameter_count;
        result->parameters = make_room(result->parameter_count);
        result->gradients = make_room(result->parameter_count);
        result->peaks_as_planned = true;
    }
    keep_tensors(result, replica);
    for (size_t i = 0; i < replica->plan.part_count; i++) {
        result->early_parts += replica->pipe.reduces[i].early;
    }
    if (replica->pipe.info.ranks > 1) {
        result->late_parameters += count_late_parameters(replica);
    }
    if (replica->pipe.info.ranks > 1 && replica->rank == 0) {
        keep_name(replica->mesh.comms[WEFTI_MESH_LINE], result->comm_names[0]);
        keep_name(replica->mesh.comms[WEFTI_MESH_DATA], result->comm_names[1]);
    }
    if (result->peaks_as_planned) {
        result->peaks_as_planned = has_planned_peaks(replica);
    }
    pthread_mutex_unlock(rank->lock);
}

static void *run_rank(void *argument)
{
    rank_job *rank = argument;
    bool everywhere;
    rank->status = wefti_run(&rank->config, rank->error, &everywhere);
    return NULL;
}

static double number(const cJSON *line, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, name);
    return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
}

/* How far the five terms are from adding up. */
static double sum_error_ms(const cJSON *line)
{
    const cJSON *exposed = cJSON_GetObjectItemCaseSensitive(line, "exposed_ms");
    double sum = number(line, "compute_ms") + number(line, "bubble_ms") +
                 number(line, "skew_ms") + number(line, "idle_ms");
    for (const cJSON *item = exposed->child; item; item = item->next) {
        sum += item->valuedouble;
    }
    return fabs(sum - number(line, "step_ms"));
}

static void read_line(job_result *result, const char *text)
{
    cJSON *line = cJSON_Parse(text);
    scratch_require(line != NULL, "a line of metrics is not JSON");
    scratch_require(result->steps < JOB_STEPS_MOST, "too many steps");
    result->loss[result->steps] = number(line, "loss");
    result->grad_norm[result->steps] = number(line, "grad_norm");
    result->checkpoint_ms[result->steps] = number(line, "checkpoint_ms");
    result->checkpoint_wait_ms[result->steps] =
        number(line, "checkpoint_wait_ms");
    result->steps++;
    if (!isnan(number(line, "val_loss"))) {
        result->val_loss = number(line, "val_loss");
    }
    result->val_loss_ema = number(line, "val_loss_ema");
    result->hiding_ratio = number(line, "hiding_ratio");
    result->s_C = number(line, "s_C");
    result->s_M = number(line, "s_M");
    result->step_error_ms = fmax(result->step_error_ms, sum_error_ms(line));
    cJSON_Delete(line);
}

static void read_metrics(job_result *result, const char *path)
{
    static char line[1 << 16]; /* with gradients */
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file)) {
        read_line(result, line);
    }
    if (file) {
        (void)fclose(file);
    }
}

static void join(rank_job *ranks, int nranks, job_result *result)
{
    size_t used = 0;
    for (int i = 0; i < nranks; i++) {
        pthread_join(ranks[i].thread, NULL);
        if (ranks[i].status != WEFT_OK) {
            used += (size_t)snprintf(result->errors + used,
                                     sizeof(result->errors) - used, "%s\n",
                                     ranks[i].error);
        }
        if (result->status == WEFT_OK && ranks[i].status != WEFT_OK) {
            result->status = ranks[i].status;
            snprintf(result->error, sizeof(result->error), "%s",
                     ranks[i].error);
        }
    }
}

job_result job_run(scratch *own, const job *what)
{
    job_result result = {.val_loss = (double)NAN, .val_loss_ema = (double)NAN};
    rank_job ranks[JOB_RANKS_MOST] = {0};
    char config[512], metrics[512], printed[512];
    snprintf(config, sizeof(config), "%.250s/job.yaml", own->dir);
    snprintf(metrics, sizeof(metrics), "%.250s/metrics", own->dir);
    (void)unlink(metrics); /* only this run's steps, also of a resumed one */
    snprintf(printed, sizeof(printed), "%.250s/printed", own->dir);
    const char *settings[JOB_SETTINGS_MOST];
    memcpy(settings, what->settings, sizeof(settings));
    wefti_options options = {.config = config,
                             .settings = settings,
                             .resume = what->resume,
                             .generate = what->generate,
                             .metrics = metrics,
                             .json = what->json,
                             .export_hf = what->export_hf,
                             .measure = what->measure};
    while (settings[options.setting_count]) {
        options.setting_count++;
    }
    weft_unique_id id;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    FILE *out = fopen(printed, "w+");
    FILE *err = fopen("/dev/null", "w");
    scratch_require(out && err, printed);
    scratch_require(weft_unique_id_create(&id) == WEFT_OK, "unique id");
    for (int i = 0; i < what->nranks; i++) {
        ranks[i].config = (wefti_run_config){.options = &options,
                                             .id = &id,
                                             .rank = i,
                                             .nranks = what->nranks,
                                             .out = out,
                                             .err = err};
        ranks[i].result = &result;
        ranks[i].lock = &lock;
        ranks[i].config.clock = what->clock;
        ranks[i].config.inspect = keep_result;
        ranks[i].config.inspect_context = &ranks[i];
        scratch_require(
            pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]) == 0,
            "thread");
    }
    join(ranks, what->nranks, &result);
    rewind(out);
    result.printed_bytes =
        fread(result.printed, 1, sizeof(result.printed) - 1, out);
    (void)fclose(out);
    (void)fclose(err);
    read_metrics(&result, metrics);
    return result;
}

void job_result_fini(job_result *result)
{
    free(result->parameters);
    free(result->gradients);
    free(result->head_copy);
    result->parameters = result->gradients = result->head_copy = NULL;
}

job_result job_run_well(scratch *own, const job *what)
{
    job_result result = job_run(own, what);
    if (result.status != WEFT_OK) {
        print_error("%d ranks: %s\n", what->nranks, result.error);
    }
    assert_int_equal(result.status, WEFT_OK);
    assert_true(result.step_error_ms < 1e-3);
    return result;
}

void job_assert_same_bits(const job_result *a, const job_result *b)
{
    assert_int_equal(a->steps, b->steps);
    for (size_t i = 0; i < a->steps; i++) {
        assert_true(a->loss[i] == b->loss[i]);
        assert_true(a->grad_norm[i] == b->grad_norm[i]);
    }
    assert_true(a->val_loss == b->val_loss);
    assert_int_equal(a->parameter_count, b->parameter_count);
    assert_memory_equal(a->parameters, b->parameters,
                        a->parameter_count * sizeof(real));
}
