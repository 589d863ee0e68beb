/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/trainer/job.c - jobs for the trainer's tests.
 */
#include "tests/trainer/job.h"

#include "tests/seed.h"
#include "trainer/run.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include <cjson/cJSON.h>

static const char config_text[] =
    "model: {layers: 2, hidden_size: 32, heads: 4, kv_heads: 2,\n"
    "        ffn_size: 48, seq_length: 24}\n"
    "data: {paths: [text.txt], validation_fraction: 0.1}\n"
    "train: {steps: 8, micro_batch_size: 2, global_batch_size: 32,\n"
    "        lr: 1.0e-2, warmup_steps: 3, validate_every: 4}\n"
    "overlap: {bucket_mb: 0.012}\n"
    "checkpoint: {dir: ckpt, every: 0, keep: 100}\n";

void job_prepare(scratch *own, uint64_t seed)
{
    static const char *const words[] = {"warp",   "weft", "loom", "the",
                                        "thread", "and",  "a",    "shuttle"};
    char text[6000];
    size_t used = 0;
    while (used < sizeof(text) - 16) {
        uint64_t draw = random_next(&seed);
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%c",
                                 words[draw % 8], draw >> 60 ? ' ' : '\n');
    }
    scratch_text(own, "job.yaml", config_text);
    scratch_write(own, "text.txt", text, used);
}

/* One rank, and what it hands back. */
typedef struct rank_job {
    wefti_run_config config;
    pthread_t thread;
    weft_status status;
    char error[WEFTI_RUN_ERROR_BYTES];
    job_result *result; /* rank 0's */
} rank_job;

static void keep_parameters(void *context, const wefti_replica *replica)
{
    job_result *result = context;
    size_t count = replica->plan.parameter_count;
    result->parameters = malloc(count * sizeof(real));
    scratch_require(result->parameters != NULL, "memory");
    for (size_t i = 0; i < replica->plan.tensor_count; i++) {
        const wefti_tensor *tensor = &replica->plan.tensors[i];
        size_t elems = tensor->rows * tensor->columns;
        memcpy(result->parameters + result->parameter_count,
               replica->values + tensor->start_elems, elems * sizeof(real));
        result->parameter_count += elems;
    }
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
    result->steps++;
    if (!isnan(number(line, "val_loss"))) {
        result->val_loss = number(line, "val_loss");
    }
    result->hiding_ratio = number(line, "hiding_ratio");
    result->s_C = number(line, "s_C");
    result->s_M = number(line, "s_M");
    result->step_error_ms = fmax(result->step_error_ms, sum_error_ms(line));
    cJSON_Delete(line);
}

static void read_metrics(job_result *result, const char *path)
{
    char line[4096];
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file)) {
        read_line(result, line);
    }
    if (file) {
        fclose(file);
    }
}

static void join(rank_job *ranks, int nranks, job_result *result)
{
    for (int i = 0; i < nranks; i++) {
        pthread_join(ranks[i].thread, NULL);
        if (result->status == WEFT_OK && ranks[i].status != WEFT_OK) {
            result->status = ranks[i].status;
            snprintf(result->error, sizeof(result->error), "%s",
                     ranks[i].error);
        }
    }
}

job_result job_run(scratch *own, const job *what)
{
    job_result result = {.val_loss = (double)NAN};
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
                             .measure = what->measure};
    while (settings[options.setting_count]) {
        options.setting_count++;
    }
    weft_unique_id id;
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
        if (i == 0) {
            ranks[i].config.inspect = keep_parameters;
            ranks[i].config.inspect_context = &result;
        }
        scratch_require(
            pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]) == 0,
            "thread");
    }
    join(ranks, what->nranks, &result);
    rewind(out);
    result.printed_bytes =
        fread(result.printed, 1, sizeof(result.printed) - 1, out);
    fclose(out);
    fclose(err);
    read_metrics(&result, metrics);
    return result;
}

void job_result_fini(job_result *result)
{
    free(result->parameters);
    result->parameters = NULL;
}
