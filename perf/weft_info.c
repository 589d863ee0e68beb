/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/weft_info.c - the program weft-info: what weft finds where it runs.
 *
 * --settings: every WEFT_ variable that weft knows, its value and where that
 * came from; those of the environment that it does not know; and what is wrong
 * with a value, as the library would say it. Secrets are not shown.
 */
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/settings.h"
#include "weft/version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_WRONG = 1, EXIT_USAGE = 2 };

static const char usage[] =
    "usage: weft-info [--settings] [--json FILE]\n"
    "\n"
    "Says what weft finds where it runs. Exits with 1 if a variable has a "
    "value\n"
    "that weft refuses, or a name that it does not know.\n"
    "\n"
    "  --settings              every WEFT_* variable, its value, and where "
    "that\n"
    "                          came from: environment or default; this is "
    "also\n"
    "                          what is shown when nothing is asked for\n"
    "  --json FILE, -J FILE    the same as JSON; - is stdout\n"
    "  --help, --version\n"
    "\n"
    "examples:\n"
    "  weft-info --settings\n"
    "  WEFT_LOG=info weft-info --settings --json -\n";

typedef struct options {
    const char *json_path; /* NULL: none; "-": stdout */
    bool help, version;
} options;

static weft_status parse(int argc, char **argv, options *options_out)
{
    *options_out = (options){0};
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        bool json = strcmp(word, "--json") == 0 || strcmp(word, "-J") == 0;
        if (strncmp(word, "--json=", 7) == 0 && word[7]) {
            options_out->json_path = word + 7;
        } else if (json && i + 1 < argc && argv[i + 1][0]) {
            options_out->json_path = argv[++i];
        } else if (json) {
            return wefti_error(WEFT_ERR_INVALID, "%s: allowed is a file, or -",
                               word);
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            options_out->help = true;
        } else if (strcmp(word, "--version") == 0) {
            options_out->version = true;
        } else if (strcmp(word, "--settings") != 0) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%s: unknown option: see weft-info --help",
                               word);
        }
    }
    return WEFT_OK;
}

/* What the library would say about a setting's value. */
static weft_status check(wefti_setting setting)
{
    return setting == WEFTI_SETTING_LOG ? wefti_log_check()
                                        : wefti_setting_check(setting);
}

/* The value as it may be shown. */
static const char *shown(wefti_setting setting, const wefti_setting_info *info)
{
    bool secret = setting == WEFTI_SETTING_SECRET;
    return secret && info->from_environment ? "(set, not shown)" : info->value;
}

/* Whether a variable of the environment, NAME=value, is one that weft lacks. */
static bool is_unknown(const char *variable)
{
    if (strncmp(variable, "WEFT_", 5) != 0 ||
        strncmp(variable, "WEFT_TEST_", 10) == 0) {
        return false;
    }
    size_t name_bytes = strcspn(variable, "=");
    for (wefti_setting i = 0; i < WEFTI_SETTING_COUNT; i++) {
        const char *name = wefti_setting_describe(i).name;
        if (strlen(name) == name_bytes &&
            strncmp(name, variable, name_bytes) == 0) {
            return false;
        }
    }
    return true;
}

static const char *source_of(const wefti_setting_info *info)
{
    return info->from_environment ? "environment" : "default";
}

/* Returns how many things are wrong. */
static int print_settings(void)
{
    int wrong = 0;
    printf("%-24s %-20s %-12s %s\n", "variable", "value", "from", "meaning");
    for (wefti_setting i = 0; i < WEFTI_SETTING_COUNT; i++) {
        wefti_setting_info info = wefti_setting_describe(i);
        const char *value = shown(i, &info);
        printf("%-24s %-20s %-12s %s\n", info.name, value[0] ? value : "-",
               source_of(&info), info.meaning);
        if (check(i) != WEFT_OK) {
            wrong++;
            printf("  ! %s\n", weft_error_text());
        }
    }
    for (char **variable = environ; *variable; variable++) {
        if (is_unknown(*variable)) {
            wrong++;
            printf("%.*s: weft does not know this variable\n",
                   (int)strcspn(*variable, "="), *variable);
        }
    }
    return wrong;
}

static void write_setting(wefti_json *json, wefti_setting setting)
{
    wefti_setting_info info = wefti_setting_describe(setting);
    const char *value = shown(setting, &info);
    bool right = check(setting) == WEFT_OK;
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "name", info.name);
    wefti_json_text(json, "value", value[0] ? value : NULL);
    wefti_json_text(json, "default", info.fallback[0] ? info.fallback : NULL);
    wefti_json_text(json, "from", source_of(&info));
    wefti_json_text(json, "meaning", info.meaning);
    wefti_json_text(json, "error", right ? NULL : weft_error_text());
    wefti_json_object_close(json);
}

static weft_status write_json(const char *path)
{
    wefti_json json;
    const bool to_stdout = strcmp(path, "-") == 0;
    FILE *file = to_stdout ? stdout : fopen(path, "we");
    if (!file) {
        return wefti_error_system("--json %s", path);
    }
    wefti_json_init(&json, file);
    wefti_json_object_open(&json, NULL);
    wefti_json_text(&json, "weft", weft_version_text());
    wefti_json_array_open(&json, "settings");
    for (wefti_setting i = 0; i < WEFTI_SETTING_COUNT; i++) {
        write_setting(&json, i);
    }
    wefti_json_array_close(&json);
    wefti_json_array_open(&json, "unknown");
    for (char **variable = environ; *variable; variable++) {
        if (is_unknown(*variable)) {
            char name[128];
            snprintf(name, sizeof(name), "%.*s", (int)strcspn(*variable, "="),
                     *variable);
            wefti_json_text(&json, NULL, name);
        }
    }
    wefti_json_array_close(&json);
    wefti_json_object_close(&json);
    weft_status status = wefti_json_fini(&json);
    if (!to_stdout && fclose(file) != 0 && status == WEFT_OK) {
        status = wefti_error_system("--json %s", path);
    }
    return status;
}

/* How many things are wrong, without a word. */
static int count_wrong(void)
{
    int wrong = 0;
    for (wefti_setting i = 0; i < WEFTI_SETTING_COUNT; i++) {
        wrong += check(i) != WEFT_OK;
    }
    for (char **variable = environ; *variable; variable++) {
        wrong += is_unknown(*variable);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    options asked;
    weft_status status = parse(argc, argv, &asked);
    if (status != WEFT_OK) {
        fprintf(stderr, "weft-info: %s\n", weft_error_text());
        return EXIT_USAGE;
    }
    if (asked.help) {
        fputs(usage, stdout);
        return 0;
    }
    if (asked.version) {
        printf("weft-info %s\n", weft_version_text());
        return 0;
    }
    if (asked.json_path) {
        status = write_json(asked.json_path);
        if (status != WEFT_OK) {
            fprintf(stderr, "weft-info: %s\n", weft_error_text());
            return EXIT_WRONG;
        }
    }
    bool quiet = asked.json_path && strcmp(asked.json_path, "-") == 0;
    int wrong = quiet ? count_wrong() : print_settings();
    if (fflush(stdout) != 0) {
        fprintf(stderr, "weft-info: cannot write to stdout\n");
        return EXIT_WRONG;
    }
    return wrong ? EXIT_WRONG : 0;
}
