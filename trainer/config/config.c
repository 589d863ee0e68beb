/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/config/config.c - a config's life: defaults, file, settings, digest.
 */
#include "trainer/config/config.h"

#include "base/error.h"
#include "base/input.h"
#include "trainer/config/config_key.h"
#include "trainer/config/config_reader.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Keys without a default that are not set. */
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

weft_status wefti_config_init(wefti_config *config, const char *path,
                              const char *const *settings, size_t setting_count)
{
    char *text = NULL;
    size_t bytes = 0;
    *config = (wefti_config){0};
    weft_status status = wefti_file_read(
        path, WEFTI_INPUT_FILE, WEFTI_CONFIG_FILE_BYTES_MOST, &text, &bytes);
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

size_t wefti_config_ids(const wefti_config *config)
{
    return config->model.ids ? (size_t)config->model.vocab : 0;
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
        if (!key->lasting && !key->lasting_if_set) {
            continue;
        }
        const char *printed =
            wefti_config_key_print(config, key, value, sizeof(value));
        if (key->lasting_if_set && strcmp(printed, key->fallback) == 0) {
            continue;
        }
        int length = snprintf(line, sizeof(line), "%s.%s=%s\n", key->section,
                              key->name, printed);
        crypto_generichash_update(&state, (unsigned char *)line,
                                  (size_t)length);
    }
    crypto_generichash_final(&state, digest_out, WEFTI_CONFIG_DIGEST_BYTES);
}
