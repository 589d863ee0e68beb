/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/pmix_library.c - dlopen and dlsym, by the library's ABI
 * number 2, which PMIx has kept since its version 2.
 */
#include "comm/oob/pmix_library.h"

#include "base/error.h"
#include "base/library.h"

#include <dlfcn.h>
#include <string.h>

static const char library_name[] = "libpmix.so.2";

weft_status wefti_pmix_library_open(wefti_pmix_library *library)
{
    void *handle = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "a launcher has left PMIX_RANK, but %s", dlerror());
    }
    if (wefti_library_find(handle, "PMIx_Init", &library->init) &&
        wefti_library_find(handle, "PMIx_Finalize", &library->fini) &&
        wefti_library_find(handle, "PMIx_Put", &library->put) &&
        wefti_library_find(handle, "PMIx_Commit", &library->commit) &&
        wefti_library_find(handle, "PMIx_Fence_nb", &library->fence_nb) &&
        wefti_library_find(handle, "PMIx_Get", &library->get) &&
        wefti_library_find(handle, "PMIx_Error_string",
                           &library->error_string)) {
        return WEFT_OK;
    }
    return wefti_error(WEFT_ERR_UNSUPPORTED, "%s lacks what weft calls",
                       library_name);
}
