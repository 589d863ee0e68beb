/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/metrics.c - one JSON line a step.
 */
#include "trainer/report/metrics.h"

#include "base/error.h"
#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void wefti_metrics_step_init(wefti_metrics_step *step)
{
    const double none = (double)NAN;
    *step = (wefti_metrics_step){.loss = none,
                                 .val_loss = none,
                                 .grad_norm = none,
                                 .lr = none,
                                 .tokens_per_s = none,
                                 .step_ms = none,
                                 .step_ms_max = none,
                                 .compute_ms = none,
                                 .compute_ms_max = none,
                                 .bubble_ms = none,
                                 .bubble_ms_max = none,
                                 .skew_ms = none,
                                 .idle_ms = none,
                                 .checkpoint_ms = none,
                                 .checkpoint_wait_ms = none,
                                 .overlap_ratio = none,
                                 .bubble_ratio = none,
                                 .cpu_share = none,
                                 .mfu = none,
                                 .hiding_ratio = none,
                                 .s_C = none,
                                 .s_M = none,
                                 .bubble_planned_ms = none};
    for (int class_id = 0; class_id < WEFT_CLASS_COUNT; class_id++) {
        step->exposed_ms[class_id] = none;
    }
}

/* Where the lines of the steps up to after_step end. */
static off_t find_end(FILE *file, uint64_t after_step)
{
    static const char begin[] = "{\"step\": ";
    char *line = NULL;
    size_t room = 0;
    off_t end = 0;
    ssize_t length;
    while ((length = getline(&line, &room, file)) > 0) {
        if (line[length - 1] != '\n' ||
            strncmp(line, begin, sizeof(begin) - 1) != 0 ||
            strtoull(line + sizeof(begin) - 1, NULL, 10) > after_step) {
            break;
        }
        end += length;
    }
    free(line);
    return end;
}

/* NULL and errno where the file cannot be written. */
static FILE *open_after(const char *path, uint64_t after_step)
{
    struct stat what;
    FILE *file = fopen(path, "a+e");
    if (file == NULL || fstat(fileno(file), &what) != 0 ||
        !S_ISREG(what.st_mode)) {
        return file;
    }
    rewind(file);
    off_t end = find_end(file, after_step);
    if (fseeko(file, 0, SEEK_END) != 0 || ftruncate(fileno(file), end) != 0) {
        int error = errno;
        (void)fclose(file);
        errno = error;
        return NULL;
    }
    return file;
}

static FILE *open_file(const char *path, uint64_t after_step)
{
    if (strcmp(path, "-") == 0) {
        return stdout;
    }
    return after_step > 0 ? open_after(path, after_step) : fopen(path, "we");
}

/* Takes the file over. */
static weft_status begin(wefti_metrics *metrics, const char *path, FILE *file)
{
    *metrics = (wefti_metrics){0};
    if (file == NULL) {
        return wefti_error_system("--metrics %s: cannot be written", path);
    }
    metrics->path = strdup(path);
    if (metrics->path == NULL) {
        if (file != stdout) {
            (void)fclose(file);
        }
        return wefti_error(WEFT_ERR_NO_MEMORY, "--metrics %s: out of memory",
                           path);
    }
    metrics->file = file;
    return WEFT_OK;
}

weft_status wefti_metrics_try(const char *path)
{
    struct stat what;
    bool there = stat(path, &what) == 0;
    if (strcmp(path, "-") == 0 || (there && S_ISFIFO(what.st_mode))) {
        return WEFT_OK; /* who reads a pipe would take this for the end */
    }
    FILE *file = fopen(path, "ae");
    if (!file) {
        return wefti_error_system("--metrics %s: cannot be written", path);
    }
    (void)fclose(file);
    if (!there) {
        (void)unlink(path);
    }
    return WEFT_OK;
}

weft_status wefti_metrics_open(wefti_metrics *metrics, const char *path,
                               uint64_t after_step)
{
    return begin(metrics, path, open_file(path, after_step));
}

weft_status wefti_metrics_continue(wefti_metrics *metrics, const char *path)
{
    bool to_stdout = strcmp(path, "-") == 0;
    return begin(metrics, path, to_stdout ? stdout : fopen(path, "ae"));
}

static void write_times(wefti_json *json, const wefti_metrics_step *step)
{
    wefti_json_real(json, "step_ms", step->step_ms);
    wefti_json_real(json, "step_ms_max", step->step_ms_max);
    wefti_json_real(json, "compute_ms", step->compute_ms);
    wefti_json_real(json, "compute_ms_max", step->compute_ms_max);
    wefti_json_object_open(json, "exposed_ms");
    for (int class_id = WEFT_CLASS_COMPUTE + 1; class_id < WEFT_CLASS_COUNT;
         class_id++) {
        wefti_json_real(json, weft_class_text((weft_class)class_id),
                        step->exposed_ms[class_id]);
    }
    wefti_json_object_close(json);
    wefti_json_real(json, "bubble_ms", step->bubble_ms);
    wefti_json_real(json, "bubble_ms_max", step->bubble_ms_max);
    wefti_json_real(json, "skew_ms", step->skew_ms);
    wefti_json_real(json, "idle_ms", step->idle_ms);
    wefti_json_real(json, "checkpoint_ms", step->checkpoint_ms);
    wefti_json_real(json, "checkpoint_wait_ms", step->checkpoint_wait_ms);
}

weft_status wefti_metrics_write(wefti_metrics *metrics,
                                const wefti_metrics_step *step)
{
    wefti_json json;
    wefti_json_init(&json, metrics->file);
    wefti_json_object_open(&json, NULL);
    wefti_json_uint(&json, "step", step->step);
    wefti_json_real(&json, "loss", step->loss);
    wefti_json_real(&json, "val_loss", step->val_loss);
    wefti_json_real(&json, "grad_norm", step->grad_norm);
    wefti_json_real(&json, "lr", step->lr);
    wefti_json_real(&json, "tokens_per_s", step->tokens_per_s);
    write_times(&json, step);
    wefti_json_real(&json, "overlap_ratio", step->overlap_ratio);
    wefti_json_real(&json, "bubble_ratio", step->bubble_ratio);
    wefti_json_real(&json, "cpu_share", step->cpu_share);
    wefti_json_real(&json, "mfu", step->mfu);
    wefti_json_uint(&json, "memory_bytes", step->memory_bytes);
    wefti_json_uint(&json, "dropped", step->dropped);
    wefti_json_real(&json, "hiding_ratio", step->hiding_ratio);
    wefti_json_real(&json, "s_C", step->s_C);
    wefti_json_real(&json, "s_M", step->s_M);
    wefti_json_real(&json, "bubble_planned_ms", step->bubble_planned_ms);
    wefti_json_object_close(&json);
    weft_status status = wefti_json_fini(&json);
    if (status != WEFT_OK) {
        return wefti_error_system("--metrics %s: cannot be written",
                                  metrics->path);
    }
    return WEFT_OK;
}

weft_status wefti_metrics_close(wefti_metrics *metrics)
{
    weft_status status = WEFT_OK;
    if (metrics->file != NULL && metrics->file != stdout &&
        fclose(metrics->file) != 0) {
        status = wefti_error_system("--metrics %s: cannot be written",
                                    metrics->path);
    }
    free(metrics->path);
    *metrics = (wefti_metrics){0};
    return status;
}
