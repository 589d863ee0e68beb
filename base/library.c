/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/library.c - dlopen and dlsym, with reasons.
 */
#include "base/library.h"

#include "base/error.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

weft_status wefti_library_open(wefti_library *library, const char *const *names,
                               size_t count)
{
    library->missing[0] = '\0';
    for (size_t i = 0; i < count && !library->handle; i++) {
        library->name = names[i];
        library->handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    return library->handle ? WEFT_OK
                           : wefti_error(WEFT_ERR_UNSUPPORTED, "no %s: %s",
                                         library->what, dlerror());
}

/* A function pointer out of an object pointer, as POSIX has it. */
bool wefti_library_find(void *handle, const char *symbol, void *function_out)
{
    void *found = dlsym(handle, symbol);
    memcpy(function_out, &found, sizeof(found));
    return found != NULL;
}

bool wefti_library_want(wefti_library *library, const char *symbol,
                        void *function_out)
{
    const bool found =
        wefti_library_find(library->handle, symbol, function_out);
    if (!found) {
        const size_t used = strlen(library->missing);
        snprintf(library->missing + used, sizeof(library->missing) - used,
                 "%s%s", used ? ", " : "", symbol);
    }
    return found;
}

weft_status wefti_library_check(const wefti_library *library,
                                const char *version)
{
    return library->missing[0] == '\0'
               ? WEFT_OK
               : wefti_error(WEFT_ERR_UNSUPPORTED, "%s, %s, has no %s",
                             library->name, version, library->missing);
}
