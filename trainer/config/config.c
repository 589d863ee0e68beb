/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/config/config.c - a config's life: defaults, file, settings, digest.
 */
#include "trainer/config/config.h"

#include "base/error.h"
#include "trainer/config/config_key.h"
#include "trainer/config/config_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(WEFTI_CONFIG_DIGEST_BYTES == 32, "as checkpoints store it");

/* path and the folder it lies in. */
static weft_status set_names(wefti_config *config, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t folder_length = slash == NULL  ? 0
                           : slash > path ? (size_t)(slash - path)
                                          : 1;
    config->path = strdup(path);
    config->folder =
        folder_length == 0 ? strdup(".") : strndup(path, folder_length);
    if (config->path == NULL || config->folder == NULL) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%s: out of memory", path);
    }
    return WEFT_OK;
}

static weft_status set_defaults(wefti_config *config)
{
    for (size_t i = 0; i < wefti_config_key_count; i++) {
        const wefti_config_key *key = &wefti_config_keys[i];
        if (key->fallback != NULL &&
            wefti_config_key_set(config, key, key->fallback, false) !=
                WEFTI_CONFIG_GOOD) {
            return wefti_error(WEFT_ERR_NO_MEMORY,
                               "%s.%s: its default cannot be stored",
                               key->section, key->name);
        }
    }
    return WEFT_OK;
}

/* Keys without a default that nobody gave. */
static weft_status check_given(wefti_config *config)
{
    for (size_t i = 0; i < wefti_config_key_count; i++) {
        const wefti_config_key *key = &wefti_config_keys[i];
        char allowed[160];
        if (key->fallback == NULL &&
            wefti_config_key_place(config, key)->line == 0) {
            return wefti_error(
                WEFT_ERR_INVALID,
                "%.200s:1:1: %s.%s: is not given; allowed is "
                "%s",
                config->path, key->section, key->name,
                wefti_config_key_describe(key, allowed, sizeof(allowed)));
        }
    }
    return WEFT_OK;
}

weft_status wefti_config_init_text(wefti_config *config, const char *path,
                                   const char *text, size_t text_bytes,
                                   const char *const *settings,
                                   size_t setting_count)
{
    *config = (wefti_config){0};
    if (text_bytes > WEFTI_CONFIG_FILE_BYTES_MOST) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%.200s:1:1: %zu bytes; allowed is at most %d", path,
                           text_bytes, WEFTI_CONFIG_FILE_BYTES_MOST);
    }
    weft_status status = set_names(config, path);
    if (status == WEFT_OK) {
        status = set_defaults(config);
    }
    if (status == WEFT_OK) {
        status = wefti_config_read(config, text, text_bytes);
    }
    for (size_t i = 0; status == WEFT_OK && i < setting_count; i++) {
        status = wefti_config_read_setting(config, settings[i]);
    }
    if (status == WEFT_OK) {
        status = check_given(config);
    }
    if (status != WEFT_OK) {
        wefti_config_fini(config);
    }
    return status;
}

/* At most bytes_most + 1 of the file, so that "too long" shows. */
static weft_status read_bounded(const char *path, char *text, size_t bytes_most,
                                size_t *bytes_out)
{
    struct stat what;
    *bytes_out = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        return wefti_error_system("%.200s", path);
    }
    ssize_t got = fstat(fd, &what) != 0 ? -1 : 1;
    if (got == 1 && S_ISDIR(what.st_mode)) {
        errno = EISDIR;
        got = -1;
    }
    while (got > 0 && *bytes_out <= bytes_most) {
        got = read(fd, text + *bytes_out, bytes_most + 1 - *bytes_out);
        if (got < 0 && errno == EINTR) {
            got = 1;
            continue;
        }
        *bytes_out += got > 0 ? (size_t)got : 0;
    }
    weft_status status = got < 0 ? wefti_error_system("%.200s", path) : WEFT_OK;
    close(fd);
    return status;
}

weft_status wefti_config_init(wefti_config *config, const char *path,
                              const char *const *settings, size_t setting_count)
{
    size_t bytes = 0;
    *config = (wefti_config){0};
    char *text = malloc(WEFTI_CONFIG_FILE_BYTES_MOST + 1);
    if (text == NULL) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%.200s: out of memory", path);
    }
    weft_status status =
        read_bounded(path, text, WEFTI_CONFIG_FILE_BYTES_MOST, &bytes);
    if (status == WEFT_OK) {
        status = wefti_config_init_text(config, path, text, bytes, settings,
                                        setting_count);
    }
    free(text);
    return status;
}

void wefti_config_fini(wefti_config *config)
{
    for (size_t i = 0; i < wefti_config_key_count; i++) {
        wefti_config_key_clear(config, &wefti_config_keys[i]);
    }
    free(config->parallel.schedule_file);
    free(config->path);
    free(config->folder);
    *config = (wefti_config){0};
}

void wefti_config_digest(const wefti_config *config,
                         uint8_t digest_out[WEFTI_CONFIG_DIGEST_BYTES])
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, WEFTI_CONFIG_DIGEST_BYTES);
    for (size_t i = 0; i < wefti_config_key_count; i++) {
        const wefti_config_key *key = &wefti_config_keys[i];
        char line[160];
        char value[64];
        if (!key->lasting) {
            continue;
        }
        int length =
            snprintf(line, sizeof(line), "%s.%s=%s\n", key->section, key->name,
                     wefti_config_key_print(config, key, value, sizeof(value)));
        crypto_generichash_update(&state, (unsigned char *)line,
                                  (size_t)length);
    }
    crypto_generichash_final(&state, digest_out, WEFTI_CONFIG_DIGEST_BYTES);
}
