/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/module.c - the places, from the folder of the library or program.
 */
#include "base/module.h"

#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* WEFTI_LIBDIR is lib, or lib64. */
static const char *const places[] = {"", "weft/", "../lib/",
                                     "../" WEFTI_LIBDIR "/weft/"};

bool wefti_module_find(const char *name, char path_out[PATH_MAX])
{
    static const char here;
    Dl_info about;
    char file[PATH_MAX];
    if (!dladdr(&here, &about) || !realpath(about.dli_fname, file)) {
        if (!realpath("/proc/self/exe", file)) {
            return false;
        }
    }
    const char *folder = dirname(file);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        int used =
            snprintf(path_out, PATH_MAX, "%s/%s%s", folder, places[i], name);
        if (used > 0 && used < PATH_MAX && access(path_out, R_OK) == 0) {
            return true;
        }
    }
    return false;
}
