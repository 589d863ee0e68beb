/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/pmix_library.c - dlopen and dlsym, by the library's ABI
 * number 2, which PMIx has kept since its version 2.
 */
#include "comm/oob/pmix_library.h"

#include "base/error.h"

#include <dlfcn.h>
#include <string.h>

static const char library_name[] = "libpmix.so.2";

/* A function pointer out of an object pointer, as POSIX has it. */
static bool find(void *handle, const char *name, void *function_out)
{
    void *found = dlsym(handle, name);
    memcpy(function_out, &found, sizeof(found));
    return found != NULL;
}

weft_status wefti_pmix_library_open(wefti_pmix_library *library)
{
    void *handle = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "a launcher has left PMIX_RANK, but %s", dlerror());
    }
    if (find(handle, "PMIx_Init", &library->init) &&
        find(handle, "PMIx_Finalize", &library->fini) &&
        find(handle, "PMIx_Put", &library->put) &&
        find(handle, "PMIx_Commit", &library->commit) &&
        find(handle, "PMIx_Fence_nb", &library->fence_nb) &&
        find(handle, "PMIx_Get", &library->get) &&
        find(handle, "PMIx_Error_string", &library->error_string)) {
        return WEFT_OK;
    }
    return wefti_error(WEFT_ERR_UNSUPPORTED, "%s lacks what weft calls",
                       library_name);
}
