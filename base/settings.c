/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/settings.c - the table of WEFT_* variables and its strict readers.
 */
#include "base/settings.h"

#include "base/error.h"
#include "base/plain_number.h"

#include <stdlib.h>

typedef struct setting_row {
    const char *name;
    wefti_setting_kind kind;
    const char *fallback;
    double least, most;
    const char *meaning;
} setting_row;

static const setting_row rows[WEFTI_SETTING_COUNT] = {
#define SETTING_ROW(name, kind, fallback, least, most, meaning)                \
    {"WEFT_" #name, WEFTI_SETTING_KIND_##kind, fallback, least, most, meaning},
    WEFTI_SETTING_LIST(SETTING_ROW)
#undef SETTING_ROW
};

bool wefti_setting_given(wefti_setting setting)
{
    const char *value = getenv(rows[setting].name);
    return value && value[0];
}

const char *wefti_setting_text(wefti_setting setting)
{
    return wefti_setting_given(setting) ? getenv(rows[setting].name)
                                        : rows[setting].fallback;
}

const char *wefti_setting_foreign(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

wefti_setting_info wefti_setting_describe(wefti_setting setting)
{
    const setting_row *row = &rows[setting];
    return (wefti_setting_info){
        row->name,     row->kind,    wefti_setting_text(setting),
        row->fallback, row->meaning, wefti_setting_given(setting)};
}

static weft_status out_of_range(const setting_row *row, const char *text,
                                const char *kind)
{
    return wefti_error(
        WEFT_ERR_INVALID, "%s=%s: allowed is %s from %.0f to %.0f", row->name,
        text[0] ? text : "(not set)", kind, row->least, row->most);
}

weft_status wefti_setting_int(wefti_setting setting, int64_t *value_out)
{
    const setting_row *row = &rows[setting];
    const char *text = wefti_setting_text(setting);
    int64_t value;
    if (!wefti_plain_int(text, &value) || (double)value < row->least ||
        (double)value > row->most) {
        return out_of_range(row, text, "a whole number");
    }
    *value_out = value;
    return WEFT_OK;
}

weft_status wefti_setting_real(wefti_setting setting, double *value_out)
{
    const setting_row *row = &rows[setting];
    const char *text = wefti_setting_text(setting);
    double value;
    if (!wefti_plain_real(text, &value) || value < row->least ||
        value > row->most) {
        return out_of_range(row, text, "a number");
    }
    *value_out = value;
    return WEFT_OK;
}

weft_status wefti_setting_check(wefti_setting setting)
{
    int64_t whole;
    double real;
    if (!wefti_setting_given(setting)) {
        return WEFT_OK;
    }
    switch (rows[setting].kind) {
    case WEFTI_SETTING_KIND_INT:
        return wefti_setting_int(setting, &whole);
    case WEFTI_SETTING_KIND_REAL:
        return wefti_setting_real(setting, &real);
    case WEFTI_SETTING_KIND_TEXT:
        break;
    }
    return WEFT_OK;
}
