/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_settings.c - weft-info --settings: every WEFT_ variable that weft
 * knows, its value and where that came from; those of the environment that it
 * does not know; and what is wrong with a value, as the library would say it.
 * Secrets are not shown.
 */
#include "perf/info_settings.h"

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "comm/core/tuning.h"
#include "comm/oob/inner_level.h"
#include "topo/report.h"

#include <string.h>
#include <unistd.h>

/* Words that a communicator reads: the error begins with the variable that it
 * is about, the first that is wrong. */
static weft_status check_words(wefti_setting setting)
{
    wefti_tuning tuning;
    char begin[64];
    const weft_status status = setting == WEFTI_SETTING_LEVELS
                                   ? wefti_inner_levels_check(1)
                                   : wefti_tuning_read(&tuning);
    const int length = snprintf(begin, sizeof(begin),
                                "%s=", wefti_setting_describe(setting).name);
    return strncmp(weft_error_text(), begin, (size_t)length) == 0 ? status
                                                                  : WEFT_OK;
}

/* What the library would say about a setting's value. */
static weft_status check(wefti_setting setting)
{
    if (setting == WEFTI_SETTING_LOG) {
        return wefti_log_check();
    }
    const weft_status status = wefti_setting_check(setting);
    return status == WEFT_OK ? check_words(setting) : status;
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

/* One line where it fits, else the meaning in lines of its own, and a long
 * value in its own before. */
static void print_setting(const wefti_setting_info *info, const char *value,
                          FILE *file)
{
    bool longer = strlen(value) > 20;
    int column = fprintf(file, "%-24s ", info->name);
    if (longer) {
        fprintf(file, "%s\n", source_of(info));
        wefti_report_wrap(value, 4, fprintf(file, "%4s", ""), file);
    } else {
        longer = 59 + strlen(info->meaning) > 80;
        column += fprintf(file, longer ? "%-20s %s\n" : "%-20s %-12s", value,
                          source_of(info));
    }
    column = longer ? fprintf(file, "%4s", "") : column;
    wefti_report_wrap(info->meaning, 4, column, file);
}

int wefti_info_settings_print(FILE *file)
{
    int wrong = 0;
    fprintf(file, "%-24s %-20s %-12s %s\n", "variable", "value", "from",
            "meaning");
    for (wefti_setting i = 0; i < WEFTI_SETTING_COUNT; i++) {
        wefti_setting_info info = wefti_setting_describe(i);
        const char *value = shown(i, &info);
        print_setting(&info, value[0] ? value : "-", file);
        if (check(i) != WEFT_OK) {
            wrong++;
            wefti_report_wrap(weft_error_text(), 4, fprintf(file, "  !"), file);
        }
    }
    for (char **variable = environ; *variable; variable++) {
        if (is_unknown(*variable)) {
            wrong++;
            fprintf(file, "%.*s:%s weft does not know this variable\n",
                    (int)strcspn(*variable, "="), *variable,
                    strcspn(*variable, "=") > 44 ? "\n   " : "");
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

void wefti_info_settings_write(wefti_json *json)
{
    wefti_json_array_open(json, "settings");
    for (wefti_setting i = 0; i < WEFTI_SETTING_COUNT; i++) {
        write_setting(json, i);
    }
    wefti_json_array_close(json);
    wefti_json_array_open(json, "unknown");
    for (char **variable = environ; *variable; variable++) {
        if (is_unknown(*variable)) {
            char name[128];
            snprintf(name, sizeof(name), "%.*s", (int)strcspn(*variable, "="),
                     *variable);
            wefti_json_text(json, NULL, name);
        }
    }
    wefti_json_array_close(json);
}

int wefti_info_settings_count_wrong(void)
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
