/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/metrics.c - one JSON line a step.
 *
 * A line is made in memory and written by one call at the file's end, so that
 * neither a reader nor what follows a killed run finds half of one for long.
 */
#include "trainer/report/metrics.h"

#include "base/error.h"
#include "trainer/report/run_facts.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void wefti_metrics_step_init(wefti_metrics_step *step)
{
    *step = (wefti_metrics_step){0};
    for (const wefti_fact *f = wefti_facts_of_step; f->name; f++) {
        if (f->kind == WEFTI_FACT_REAL) {
            *(double *)((char *)step + f->offset) = (double)NAN;
        }
    }
    for (int class_id = 0; class_id < WEFT_CLASS_COUNT; class_id++) {
        step->exposed_ms[class_id] = (double)NAN;
        step->transfer_ms[class_id] = (double)NAN;
        step->moved_bytes[class_id] = (double)NAN;
    }
}

/* Where the whole lines of the steps up to last end. */
static off_t find_end(FILE *file, uint64_t last)
{
    static const char begin[] = "{\"step\": ";
    char *line = NULL;
    size_t room = 0;
    off_t end = 0;
    ssize_t length;
    while ((length = getline(&line, &room, file)) > 0) {
        if (line[length - 1] != '\n' ||
            strncmp(line, begin, sizeof(begin) - 1) != 0 ||
            strtoull(line + sizeof(begin) - 1, NULL, 10) > last) {
            break;
        }
        end += length;
    }
    free(line);
    return end;
}

/* Cuts off what follows the lines of the steps up to last; errno on false. */
static bool cut_after(const char *path, int fd, uint64_t last)
{
    struct stat what;
    if (fstat(fd, &what) != 0) {
        return false;
    }
    if (!S_ISREG(what.st_mode)) {
        return true; /* nothing stays in it */
    }
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    off_t end = find_end(file, last);
    (void)fclose(file); /* it was only read */
    return ftruncate(fd, end) == 0;
}

/* Below 0 and errno where the file cannot be written. */
static int open_file(const char *path, uint64_t last)
{
    if (strcmp(path, "-") == 0) {
        return fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
    }
    int fd = open(path,
                  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC |
                      (last == 0 ? O_TRUNC : 0),
                  0666);
    if (fd >= 0 && last > 0 && !cut_after(path, fd, last)) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static weft_status begin(wefti_metrics *metrics, const char *path,
                         uint64_t last)
{
    *metrics = (wefti_metrics){.fd = open_file(path, last)};
    if (metrics->fd < 0) {
        return wefti_error_system("--metrics %s: cannot be written", path);
    }
    metrics->path = strdup(path);
    metrics->line = open_memstream(&metrics->text, &metrics->text_bytes);
    if (metrics->path == NULL || metrics->line == NULL) {
        (void)!wefti_metrics_close(metrics);
        return wefti_error(WEFT_ERR_NO_MEMORY, "--metrics %s: out of memory",
                           path);
    }
    return WEFT_OK;
}

weft_status wefti_metrics_try(const char *path)
{
    struct stat what;
    bool there = stat(path, &what) == 0;
    if (strcmp(path, "-") == 0 || (there && S_ISFIFO(what.st_mode))) {
        return WEFT_OK; /* a pipe's reader would take this for the end */
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
    return begin(metrics, path, after_step);
}

weft_status wefti_metrics_continue(wefti_metrics *metrics, const char *path)
{
    return begin(metrics, path, UINT64_MAX);
}

/*
 * By one call, which only a full disk, a pipe or a signal can cut short. What
 * does not become a whole line is taken back where the file can be cut.
 */
static bool write_line(const wefti_metrics *metrics, size_t bytes)
{
    struct stat before;
    bool regular = fstat(metrics->fd, &before) == 0 && S_ISREG(before.st_mode);
    for (size_t done = 0; done < bytes;) {
        ssize_t got = write(metrics->fd, metrics->text + done, bytes - done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            int error = got == 0 ? ENOSPC : errno;
            if (regular && done > 0) {
                (void)!ftruncate(metrics->fd, before.st_size);
            }
            errno = error;
            return false;
        }
        done += (size_t)got;
    }
    return true;
}

static void put_gradients(wefti_json *json, const wefti_gradient_stats *stats)
{
    wefti_json_array_open(json, "gradients");
    for (size_t t = 0; t < stats->count; t++) {
        const wefti_tensor_info *info = &stats->infos[t];
        size_t elems = wefti_tensor_elems(info);
        wefti_json_object_open(json, NULL);
        wefti_json_text(json, "tensor", info->name);
        wefti_json_uint(json, "elems", elems);
        wefti_json_real(json, "norm", stats->norms[t]);
        wefti_json_real(json, "max_abs", stats->most[t]);
        wefti_json_real(json, "zeros", stats->zeros[t] / (double)elems);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

weft_status wefti_metrics_write(wefti_metrics *metrics,
                                const wefti_metrics_step *step)
{
    wefti_json json;
    rewind(metrics->line);
    wefti_json_init(&json, metrics->line);
    wefti_json_object_open(&json, NULL);
    wefti_facts_fields(&json, wefti_facts_of_step, step);
    if (metrics->gradients && metrics->gradients->step == step->step) {
        put_gradients(&json, metrics->gradients);
    }
    wefti_json_object_close(&json);
    weft_status status = wefti_json_fini(&json);
    off_t bytes = ftello(metrics->line);
    if (status != WEFT_OK || bytes <= 0) {
        return status; /* there was no memory for it */
    }
    return write_line(metrics, (size_t)bytes)
               ? WEFT_OK
               : wefti_error_system("--metrics %s: cannot be written",
                                    metrics->path);
}

weft_status wefti_metrics_close(wefti_metrics *metrics)
{
    weft_status status = WEFT_OK;
    if (metrics->line != NULL) {
        (void)fclose(metrics->line);
    }
    if (close(metrics->fd) != 0) {
        status = wefti_error_system("--metrics %s: cannot be written",
                                    metrics->path);
    }
    free(metrics->text);
    free(metrics->path);
    *metrics = (wefti_metrics){.fd = -1};
    return status;
}
