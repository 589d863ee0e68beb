/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/cache_folder.c - as the XDG Base Directory Specification has it.
 */
#include "base/cache_folder.h"

#include "base/settings.h"

#include <stdio.h>
#include <sys/stat.h>

bool wefti_cache_folder_find(char path_out[PATH_MAX])
{
    const char *cache = wefti_setting_foreign("XDG_CACHE_HOME");
    const char *home = wefti_setting_foreign("HOME");
    int length = 0;
    if (wefti_setting_given(WEFTI_SETTING_CACHE_DIR)) {
        length = snprintf(path_out, PATH_MAX, "%s",
                          wefti_setting_text(WEFTI_SETTING_CACHE_DIR));
    } else if (cache && cache[0] == '/') {
        length = snprintf(path_out, PATH_MAX, "%s/weft", cache);
    } else if (home && home[0] == '/') {
        length = snprintf(path_out, PATH_MAX, "%s/.cache/weft", home);
    }
    return length > 0 && length < PATH_MAX;
}

void wefti_cache_folder_make(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s", folder);
    for (char *c = path + 1; path[0] && *c; c++) {
        if (*c == '/') {
            *c = '\0';
            (void)mkdir(path, 0700);
            *c = '/';
        }
    }
    (void)mkdir(path, 0700);
}
