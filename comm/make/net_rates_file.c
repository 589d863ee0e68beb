/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/net_rates_file.c - four lines in the cache folder.
 */
#include "comm/make/net_rates_file.h"

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/input.h"
#include "base/log.h"
#include "base/output.h"
#include "base/plain_number.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_BYTES_MOST = 4096 };

#define HEAD "weft-net-rates 1 "

static bool find_path(const char *key, char path_out[PATH_MAX])
{
    char folder[PATH_MAX];
    if (!wefti_cache_folder_find(folder)) {
        return false;
    }
    const int length = snprintf(path_out, PATH_MAX, "%s/net-%s", folder, key);
    return length > 0 && length < PATH_MAX;
}

/* Takes "name " off the front of *at. */
static bool take_text(char **at, const char *name)
{
    const size_t length = strlen(name);
    if (strncmp(*at, name, length) != 0) {
        return false;
    }
    *at += length;
    return true;
}

/* Takes the line "name 123" off. */
static bool take_line(char **at, const char *name, int64_t *value_out)
{
    char *end = strchr(*at, '\n');
    if (!end || !take_text(at, name)) {
        return false;
    }
    *end = '\0';
    const bool good = wefti_plain_int(*at, value_out);
    *at = end + 1;
    return good;
}

static bool read_text(char *text, size_t bytes, const char *key,
                      wefti_net_figures *figures_out)
{
    const char *end = text + bytes;
    wefti_net_figures read;
    if (strlen(text) != bytes || !take_text(&text, HEAD) ||
        !take_text(&text, key) || !take_text(&text, "\n") ||
        !take_line(&text, "latency_ns ", &read.latency_ns) ||
        !take_line(&text, "message_ns ", &read.message_ns) ||
        !take_line(&text, "byte_ps ", &read.byte_ps) || text != end ||
        !wefti_net_figures_check(&read)) {
        return false;
    }
    *figures_out = read;
    return true;
}

bool wefti_net_rates_file_read(const char key[WEFTI_NET_KEY_BYTES],
                               wefti_net_figures *figures_out)
{
    char path[PATH_MAX];
    struct stat about;
    char *text;
    size_t bytes;
    if (!find_path(key, path) || (stat(path, &about) != 0 && errno == ENOENT)) {
        return false;
    }
    if (wefti_file_read(path, WEFTI_INPUT_FILE, FILE_BYTES_MOST, &text,
                        &bytes) != WEFT_OK) {
        wefti_log(WEFTI_LOG_WARN, 0, "the network is measured anew: %s",
                  weft_error_text());
        return false;
    }
    const bool good = read_text(text, bytes, key, figures_out);
    free(text);
    if (!good) {
        wefti_log(WEFTI_LOG_WARN, 0,
                  "the network is measured anew: %s does not hold what was "
                  "measured before",
                  path);
    }
    return good;
}

/* What is there and no file is left alone: to open a pipe may take for ever. */
static weft_status write_file(const char *path, const char *key,
                              const wefti_net_figures *figures)
{
    struct stat about;
    wefti_output out;
    if (lstat(path, &about) == 0 && !S_ISREG(about.st_mode)) {
        return wefti_error(WEFT_ERR_SYSTEM, "%s is no file", path);
    }
    weft_status status = wefti_output_open(&out, "WEFT_CACHE_DIR", path);
    if (status != WEFT_OK) {
        return status;
    }
    fprintf(out.file,
            HEAD "%s\nlatency_ns %lld\nmessage_ns %lld\nbyte_ps %lld\n", key,
            (long long)figures->latency_ns, (long long)figures->message_ns,
            (long long)figures->byte_ps);
    return wefti_output_end(&out, WEFT_OK);
}

void wefti_net_rates_file_write(const char key[WEFTI_NET_KEY_BYTES],
                                const wefti_net_figures *figures)
{
    char folder[PATH_MAX], path[PATH_MAX];
    if (!wefti_cache_folder_find(folder) || !find_path(key, path)) {
        return;
    }
    wefti_cache_folder_make(folder);
    if (write_file(path, key, figures) != WEFT_OK) {
        wefti_log(WEFTI_LOG_WARN, 0,
                  "what the network takes is not kept for the next job: %s",
                  weft_error_text());
    }
}
