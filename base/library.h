/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/library.h - a shared library of somebody else's, opened when it is
 * needed, and its functions by name. None is ever closed: it may leave threads
 * and destructors behind, even if it was refused.
 */
#ifndef BASE_LIBRARY_H
#define BASE_LIBRARY_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct wefti_library {
    const char *what; /* "NCCL": the caller's, for messages */
    const char *name; /* as it was opened; borrowed */
    void *handle;     /* of dlopen; NULL: not open */
    char missing[600];
} wefti_library;

/*
 * wefti_library_open - the first of names[count] that there is; one that is
 * open stays, with nothing missing yet.
 *
 * Returns     OK | ERR_UNSUPPORTED: why there is none of the last.
 */
WEFT_NODISCARD weft_status wefti_library_open(wefti_library *library,
                                              const char *const *names,
                                              size_t count);

/* A function, into the pointer function_out; NULL and false: there is none. */
bool wefti_library_find(void *handle, const char *symbol, void *function_out);

/* The same of library; what it has not is noted in its missing. */
bool wefti_library_want(wefti_library *library, const char *symbol,
                        void *function_out);

/* Whether nothing has been missing; version is what the text names.
 * Returns OK | ERR_UNSUPPORTED: all that has. */
WEFT_NODISCARD weft_status wefti_library_check(const wefti_library *library,
                                               const char *version);

#endif
