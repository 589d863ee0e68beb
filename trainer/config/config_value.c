/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/config/config_value.c - the text of one value, strictly: what is not
 * wholly a number is no number.
 */
#include "trainer/config/config_key.h"

#include "base/plain_number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *field_of(const wefti_config *config, const wefti_config_key *key)
{
    return (char *)config + key->offset;
}

/* 010 may be meant to be octal. */
static bool parse_int(const char *text, int64_t *value_out)
{
    const char *digits = text + (text[0] == '-');
    return (digits[0] != '0' || digits[1] == '\0') &&
           wefti_plain_int(text, value_out);
}

static wefti_config_verdict set_int(const wefti_config_key *key,
                                    const char *text, int64_t *field)
{
    int64_t value;
    if (!parse_int(text, &value)) {
        return WEFTI_CONFIG_WRONG;
    }
    if ((double)value < key->least || (double)value > key->most) {
        return WEFTI_CONFIG_RANGE;
    }
    *field = value;
    return WEFTI_CONFIG_GOOD;
}

static wefti_config_verdict set_real(const wefti_config_key *key,
                                     const char *text, double *field)
{
    double value;
    if (!wefti_plain_real(text, &value)) {
        return WEFTI_CONFIG_WRONG;
    }
    if (!isfinite(value) || value < key->least || value > key->most) {
        return WEFTI_CONFIG_RANGE;
    }
    *field = value;
    return WEFTI_CONFIG_GOOD;
}

static wefti_config_verdict set_bool(const char *text, bool *field)
{
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) {
        return WEFTI_CONFIG_WRONG;
    }
    *field = text[0] == 't';
    return WEFTI_CONFIG_GOOD;
}

/* text itself where it is absolute, else folder/text. NULL: no memory. */
static char *join_path(const char *folder, const char *text)
{
    char *path = NULL;
    bool joins = text[0] != '/' && strcmp(folder, ".") != 0;
    const char *between = folder[strlen(folder) - 1] == '/' ? "" : "/";
    if (!joins) {
        return strdup(text);
    }
    return asprintf(&path, "%s%s%s", folder, between, text) < 0 ? NULL : path;
}

static wefti_config_verdict set_path(const wefti_config *config,
                                     const char *text, char **field)
{
    if (text[0] == '\0') {
        return WEFTI_CONFIG_WRONG;
    }
    char *path = join_path(config->folder, text);
    if (path == NULL) {
        return WEFTI_CONFIG_NO_MEMORY;
    }
    free(*field);
    *field = path;
    return WEFTI_CONFIG_GOOD;
}

static bool is_alone(const char *word)
{
    return strcmp(word, "all") == 0 || strcmp(word, "none") == 0;
}

/* The one key whose word may be a file keeps its path too. */
static wefti_config_verdict set_word(wefti_config *config,
                                     const wefti_config_key *key,
                                     const char *text, const char **field)
{
    size_t length = strlen(text);
    for (size_t i = 0; key->words[i] != NULL; i++) {
        bool file = strcmp(key->words[i], "FILE.csv") == 0;
        if (file && length > 4 && strcmp(text + length - 4, ".csv") == 0) {
            *field = key->words[i];
            return set_path(config, text, &config->parallel.schedule_file);
        }
        if (strcmp(text, key->words[i]) == 0) {
            *field = key->words[i];
            return WEFTI_CONFIG_GOOD;
        }
    }
    return WEFTI_CONFIG_WRONG;
}

/* Each once; "all" and "none" by themselves. */
static wefti_config_verdict add_word(const wefti_config_key *key,
                                     const char *text,
                                     wefti_config_words *field)
{
    const char *word = NULL;
    for (size_t i = 0; key->words[i] != NULL; i++) {
        word = strcmp(text, key->words[i]) == 0 ? key->words[i] : word;
    }
    if (!word || field->count == WEFTI_CONFIG_WORDS_MOST ||
        (field->count > 0 && is_alone(word))) {
        return WEFTI_CONFIG_WRONG;
    }
    for (size_t i = 0; i < field->count; i++) {
        if (field->items[i] == word || is_alone(field->items[i])) {
            return WEFTI_CONFIG_WRONG;
        }
    }
    field->items[field->count++] = word;
    return WEFTI_CONFIG_GOOD;
}

static wefti_config_verdict add_path(wefti_config *config, const char *text)
{
    char *path = NULL;
    wefti_config_verdict verdict = set_path(config, text, &path);
    if (verdict != WEFTI_CONFIG_GOOD) {
        return verdict;
    }
    char **wider = realloc(config->data.paths,
                           (config->data.path_count + 1) * sizeof(*wider));
    if (wider == NULL) {
        free(path);
        return WEFTI_CONFIG_NO_MEMORY;
    }
    wider[config->data.path_count++] = path;
    config->data.paths = wider;
    return WEFTI_CONFIG_GOOD;
}

static wefti_config_verdict
set_field(wefti_config *config, const wefti_config_key *key, const char *text)
{
    void *field = field_of(config, key);
    switch (key->kind) {
    case WEFTI_CONFIG_INT:
        return set_int(key, text, field);
    case WEFTI_CONFIG_REAL:
        return set_real(key, text, field);
    case WEFTI_CONFIG_BOOL:
        return set_bool(text, field);
    case WEFTI_CONFIG_WORD:
        return set_word(config, key, text, field);
    case WEFTI_CONFIG_WORDS:
        return add_word(key, text, field);
    case WEFTI_CONFIG_VOCAB:
        config->model.ids = strcmp(text, "bytes") != 0;
        if (!config->model.ids) {
            *(int64_t *)field = WEFTI_VOCAB_BYTES;
            return WEFTI_CONFIG_GOOD;
        }
        return set_int(key, text, field);
    case WEFTI_CONFIG_PATH:
        if (key->fallback && strcmp(key->fallback, "none") == 0 &&
            strcmp(text, "none") == 0) {
            free(*(char **)field);
            *(char **)field = NULL;
            return WEFTI_CONFIG_GOOD;
        }
        return set_path(config, text, field);
    case WEFTI_CONFIG_PATHS:
        return add_path(config, text);
    }
    return WEFTI_CONFIG_WRONG;
}

wefti_config_verdict wefti_config_key_set(wefti_config *config,
                                          const wefti_config_key *key,
                                          const char *text, bool quoted)
{
    bool is_text =
        key->kind == WEFTI_CONFIG_WORD || key->kind == WEFTI_CONFIG_WORDS ||
        key->kind == WEFTI_CONFIG_PATH || key->kind == WEFTI_CONFIG_PATHS;
    char now[64];
    if (quoted && !is_text) {
        return WEFTI_CONFIG_WRONG;
    }
    wefti_config_verdict verdict = set_field(config, key, text);
    if (verdict == WEFTI_CONFIG_GOOD && key->now != NULL &&
        strcmp(wefti_config_key_print(config, key, now, sizeof(now)),
               key->now) != 0) {
        return WEFTI_CONFIG_NOT_YET;
    }
    return verdict;
}

void wefti_config_key_clear(wefti_config *config, const wefti_config_key *key)
{
    if (key->kind == WEFTI_CONFIG_PATH) {
        char **field = field_of(config, key);
        free(*field);
        *field = NULL;
    } else if (key->kind == WEFTI_CONFIG_WORDS) {
        wefti_config_words *words = field_of(config, key);
        words->count = 0;
    } else if (key->kind == WEFTI_CONFIG_PATHS) {
        for (size_t i = 0; i < config->data.path_count; i++) {
            free(config->data.paths[i]);
        }
        free(config->data.paths);
        config->data.paths = NULL;
        config->data.path_count = 0;
    }
}

/* "a, b"; what does not fit is left out. */
static void print_words(const wefti_config_words *words, char *text,
                        size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < words->count && used < text_bytes; i++) {
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s",
                                 i > 0 ? ", " : "", words->items[i]);
    }
}

char *wefti_config_key_print(const wefti_config *config,
                             const wefti_config_key *key, char *text,
                             size_t text_bytes)
{
    const void *field = field_of(config, key);
    const char *path;
    switch (key->kind) {
    case WEFTI_CONFIG_INT:
    case WEFTI_CONFIG_VOCAB:
        snprintf(text, text_bytes, "%" PRId64, *(const int64_t *)field);
        break;
    case WEFTI_CONFIG_REAL:
        snprintf(text, text_bytes, "%.17g", *(const double *)field);
        break;
    case WEFTI_CONFIG_BOOL:
        snprintf(text, text_bytes, "%s",
                 *(const bool *)field ? "true" : "false");
        break;
    case WEFTI_CONFIG_WORD:
        snprintf(text, text_bytes, "%s", *(const char *const *)field);
        break;
    case WEFTI_CONFIG_PATH:
        path = *(const char *const *)field;
        snprintf(text, text_bytes, "%s", path ? path : key->fallback);
        break;
    case WEFTI_CONFIG_WORDS:
        print_words(field, text, text_bytes);
        break;
    case WEFTI_CONFIG_PATHS:
        snprintf(text, text_bytes, "%zu paths", config->data.path_count);
        break;
    }
    return text;
}
