/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/pmix_library.h - the functions of libpmix that weft calls,
 * opened at run time: only a rank that mpirun or srun started needs them. It
 * is never closed: its own threads may outlive the last call.
 */
#ifndef COMM_OOB_PMIX_LIBRARY_H
#define COMM_OOB_PMIX_LIBRARY_H

#include "weft/status.h"

#include <pmix.h>

typedef struct wefti_pmix_library {
    __typeof__(&PMIx_Init) init;
    __typeof__(&PMIx_Finalize) fini;
    __typeof__(&PMIx_Put) put;
    __typeof__(&PMIx_Commit) commit;
    __typeof__(&PMIx_Fence_nb) fence_nb;
    __typeof__(&PMIx_Get) get;
    __typeof__(&PMIx_Error_string) error_string;
} wefti_pmix_library;

/* Returns     OK | ERR_UNSUPPORTED: not installed, or it lacks a function. */
WEFT_NODISCARD weft_status
wefti_pmix_library_open(wefti_pmix_library *library_out);

#endif
