/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_settings.h - the settings as weft-info shows them.
 */
#ifndef PERF_INFO_SETTINGS_H
#define PERF_INFO_SETTINGS_H

#include "base/json.h"

#include <stdio.h>

/* As text; returns how many values or names weft refuses. */
int wefti_info_settings_print(FILE *file);
/* The arrays "settings" and "unknown" of an open object. */
void wefti_info_settings_write(wefti_json *json);
/* How many are refused, without a word. */
int wefti_info_settings_count_wrong(void);

#endif
