/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_report.c - a table in the log, whatever the log's level: it
 * was asked for. Several ranks, and processes, may name one file: each adds
 * its line in one write, and the last of a communicator the table of all. What
 * is no regular file, or cannot be locked, gets the lines alone.
 */
#include "doors/nccl/door_report.h"

#include "doors/nccl/door_table.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A second in all: a report may get no table, but no program hangs for one. */
enum { LOCK_TRIES = 1000, LOCK_PAUSE_NS = 1000000 };

void wefti_door_report_init(wefti_door_report *report)
{
    const char *text = wefti_setting_text(WEFTI_SETTING_NCCL_REPORT);
    *report = (wefti_door_report){.wanted = strcmp(text, "0") != 0};
}

int64_t wefti_door_report_now(const wefti_door_report *report)
{
    return report->wanted ? wefti_clock_ns() : 0;
}

void wefti_door_report_wait(wefti_door_report *report, weft_collective what,
                            int64_t since_ns)
{
    if (report->wanted) {
        report->tallies[what].ns += wefti_clock_ns() - since_ns;
    }
}

void wefti_door_report_add(wefti_door_report *report, weft_collective what,
                           size_t count, weft_dtype dtype, int64_t since_ns)
{
    if (report->wanted) {
        report->tallies[what].calls++;
        report->tallies[what].bytes += count * weft_dtype_bytes(dtype);
        wefti_door_report_wait(report, what, since_ns);
    }
}

static const char *tally_text(int what)
{
    return what < WEFT_COLLECTIVE_COUNT
               ? weft_collective_text((weft_collective)what)
               : "other";
}

static void print_tally(const wefti_door_tally *tally, int what,
                        const wefti_door_reporter *reporter)
{
    char ranks[32] = "", gpu[80] = "";
    if (reporter->nranks > 0) {
        snprintf(ranks, sizeof(ranks), " of %d ranks", reporter->nranks);
    }
    if (tally->on_gpu > 0) {
        snprintf(gpu, sizeof(gpu), ", %.3f ms queued, %.3f ms on the GPU",
                 (double)tally->queued_ns / 1e6, (double)tally->gpu_ns / 1e6);
    }
    wefti_log(WEFTI_LOG_ERROR, reporter->rank,
              "nccl report: \"%s\"%s: %s: %" PRIu64 " calls, %" PRIu64
              " bytes, %.3f ms in calls%s",
              reporter->name[0] ? reporter->name : "world", ranks,
              tally_text(what), tally->calls, tally->bytes,
              (double)tally->ns / 1e6, gpu);
}

static void write_tally(wefti_json *json, const wefti_door_tally *tally,
                        int what)
{
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "op", tally_text(what));
    wefti_json_uint(json, "calls", tally->calls);
    wefti_json_uint(json, "bytes", tally->bytes);
    wefti_json_real(json, "time_ms", (double)tally->ns / 1e6);
    if (tally->on_gpu > 0) {
        wefti_json_uint(json, "on_gpu", tally->on_gpu);
        wefti_json_real(json, "queued_ms", (double)tally->queued_ns / 1e6);
        wefti_json_real(json, "gpu_ms", (double)tally->gpu_ns / 1e6);
    }
    wefti_json_object_close(json);
}

static void write_report(FILE *file, const wefti_door_report *report,
                         const wefti_door_reporter *reporter)
{
    char hash[20];
    wefti_json json;
    snprintf(hash, sizeof(hash), "%016" PRIx64, reporter->hash);
    wefti_json_init(&json, file);
    wefti_json_object_open(&json, NULL);
    wefti_json_text(&json, "communicator", reporter->name);
    wefti_json_text(&json, "hash", reporter->hash ? hash : NULL);
    wefti_json_text(&json, "carrier", reporter->carrier);
    wefti_json_int(&json, "rank", reporter->rank);
    wefti_json_int(&json, "nranks", reporter->nranks);
    wefti_json_array_open(&json, "rows");
    for (int what = 0; what <= WEFT_COLLECTIVE_COUNT; what++) {
        if (report->tallies[what].calls > 0) {
            write_tally(&json, &report->tallies[what], what);
        }
    }
    wefti_json_array_close(&json);
    wefti_json_object_close(&json);
    if (wefti_json_fini(&json) != WEFT_OK) {
        wefti_log(WEFTI_LOG_ERROR, reporter->rank, "%s", weft_error_text());
    }
}

/* False: errno says why. */
static bool put(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t written = write(fd, text, bytes);
        if (written < 0 && errno != EINTR) {
            return false;
        }
        text += written > 0 ? written : 0;
        bytes -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

/* Whether this rank alone may make a table of the file: one at a time, so that
 * only one is the last. A pipe or a terminal cannot be read again. */
static bool lock_for_table(int fd)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
    struct stat what;
    if (fstat(fd, &what) != 0 || !S_ISREG(what.st_mode)) {
        return false;
    }
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return true;
        }
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return false;
        }
        nanosleep(&pause, NULL);
    }
    return false;
}

/* False: errno says why. */
static bool append(const char *path, const wefti_door_reporter *reporter,
                   const char *text, size_t bytes)
{
    char *table = NULL;
    size_t table_bytes = 0;
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        return false;
    }
    const bool locked = lock_for_table(fd);
    bool written = put(fd, text, bytes);
    if (written && locked) {
        wefti_door_table_make(path, reporter, &table, &table_bytes);
        written = !table || put(fd, table, table_bytes);
    }
    const int error = errno;
    free(table);
    close(fd);
    errno = error;
    return written;
}

static void append_report(const wefti_door_report *report,
                          const wefti_door_reporter *reporter, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (file) {
        write_report(file, report, reporter);
    }
    if (!file || fclose(file) || !append(path, reporter, text, bytes)) {
        wefti_log(WEFTI_LOG_ERROR, reporter->rank,
                  "WEFT_NCCL_REPORT %s: cannot be written: %s", path,
                  strerror(errno));
    }
    free(text);
}

void wefti_door_report_print(const wefti_door_report *report,
                             const wefti_door_reporter *reporter)
{
    const char *path = wefti_setting_text(WEFTI_SETTING_NCCL_REPORT);
    if (!report->wanted) {
        return;
    }
    for (int what = 0; what <= WEFT_COLLECTIVE_COUNT; what++) {
        if (report->tallies[what].calls > 0) {
            print_tally(&report->tallies[what], what, reporter);
        }
    }
    if (strcmp(path, "0") != 0 && strcmp(path, "1") != 0) {
        append_report(report, reporter, path);
    }
}
