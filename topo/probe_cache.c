/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/probe_cache.c - what was measured, as a file:
 *
 *     weft-probe 2 NAME
 *     copy 11.8
 *     handover 0.11
 *     pair 0 1 9.3
 *     sum 1a2b3c4d5e6f7788         FNV-1a of all above
 */
#include "topo/probe.h"

#include "base/cache_folder.h"
#include "topo/number.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MOST 8192

static uint64_t sum_of(const char *text, size_t bytes)
{
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++) {
        sum = (sum ^ (unsigned char)text[i]) * 1099511628211u;
    }
    return sum;
}

/* What is left of a line as a rate or a time. */
static bool read_value(const char *at, double *out)
{
    return wefti_number_read_real(&at, out) && !*at && *out < 1e9;
}

/* One line into the probe; false where it is no such line. */
static bool read_entry(const char *line, wefti_probe *out)
{
    int a, b;
    double value;
    if (wefti_number_skip(&line, "copy ")) {
        if (!read_value(line, &value)) {
            return false;
        }
        out->copy_GBps = value;
    } else if (wefti_number_skip(&line, "handover ")) {
        if (!read_value(line, &value)) {
            return false;
        }
        out->handover_us = value;
    } else {
        if (out->pair_count == WEFTI_PROBE_PAIRS_MOST ||
            !wefti_number_skip(&line, "pair ") ||
            !wefti_number_read_int(&line, &a) ||
            !wefti_number_skip(&line, " ") ||
            !wefti_number_read_int(&line, &b) ||
            !wefti_number_skip(&line, " ") || !read_value(line, &value)) {
            return false;
        }
        out->pairs[out->pair_count][0] = a;
        out->pairs[out->pair_count][1] = b;
        out->pair_GBps[out->pair_count++] = value;
    }
    return true;
}

static bool read_text(char *text, const char *name, wefti_probe *out)
{
    char head[80];
    char *last = strstr(text, "\nsum ");
    const char *at = last;
    uint64_t sum;
    if (!last || !wefti_number_skip(&at, "\nsum ") ||
        !wefti_number_read(&at, 16, UINT64_MAX, &sum) ||
        strcmp(at, "\n") != 0 ||
        sum != sum_of(text, (size_t)(last - text) + 1)) {
        return false;
    }
    *last = '\0';
    snprintf(head, sizeof(head), "weft-probe 2 %s", name);
    char *rest = text;
    const char *line = strsep(&rest, "\n");
    if (strcmp(line, head) != 0) {
        return false;
    }
    while ((line = strsep(&rest, "\n"))) {
        if (!read_entry(line, out)) {
            return false;
        }
    }
    return out->copy_GBps > 0;
}

/* A pipe or a device at that path would keep its reader waiting. */
static FILE *open_regular(const char *path)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    bool regular = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    FILE *file = regular ? fdopen(fd, "r") : NULL;
    if (!file) {
        close(fd);
    }
    return file;
}

bool wefti_probe_load(const char *path, const char *name, wefti_probe *out)
{
    char text[FILE_BYTES_MOST];
    FILE *file = open_regular(path);
    *out = (wefti_probe){.from_cache = true, .steady = true};
    if (!file) {
        return false;
    }
    size_t bytes = fread(text, 1, sizeof(text) - 1, file);
    bool closed = fclose(file) == 0;
    text[bytes] = '\0';
    return closed && strlen(text) == bytes && read_text(text, name, out);
}

static size_t write_text(const char *name, const wefti_probe *probe,
                         char text[FILE_BYTES_MOST])
{
    int used = snprintf(text, FILE_BYTES_MOST,
                        "weft-probe 2 %s\ncopy %.6g\nhandover %.6g\n", name,
                        probe->copy_GBps, probe->handover_us);
    for (int i = 0; i < probe->pair_count; i++) {
        used += snprintf(text + used, (size_t)(FILE_BYTES_MOST - used),
                         "pair %d %d %.6g\n", probe->pairs[i][0],
                         probe->pairs[i][1], probe->pair_GBps[i]);
    }
    used +=
        snprintf(text + used, (size_t)(FILE_BYTES_MOST - used), "sum %016llx\n",
                 (unsigned long long)sum_of(text, (size_t)used));
    return (size_t)used;
}

void wefti_probe_store(const char *folder, const char *name,
                       const wefti_probe *probe)
{
    char text[FILE_BYTES_MOST], own[PATH_MAX], path[PATH_MAX];
    size_t bytes = write_text(name, probe, text);
    wefti_cache_folder_make(folder);
    int a = snprintf(own, sizeof(own), "%s/.%s.XXXXXX", folder, name);
    int b = snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (a >= (int)sizeof(own) || b >= (int)sizeof(path)) {
        return;
    }
    int fd = mkstemp(own);
    if (fd < 0) {
        return;
    }
    bool whole = write(fd, text, bytes) == (ssize_t)bytes;
    whole = close(fd) == 0 && whole;
    if (!whole || rename(own, path) != 0) {
        (void)unlink(own);
    }
}
