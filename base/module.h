/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/module.h - where shared objects lie that are opened when they are
 * needed: beside the file that holds this code, the library or a program that
 * has it built in.
 */
#ifndef BASE_MODULE_H
#define BASE_MODULE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* The first place where one of that name lies; false: none has it. */
bool wefti_module_find(const char *name, char path_out[PATH_MAX]);

/*
 * wefti_module_open - the symbol of a shared object, opened as by dlopen(path,
 * flags); NULL: there is none, and why. A file that has been cut short is
 * refused: dlopen would map what is not there, and the process end by a bus
 * error.
 *
 * handle_out   to pass to dlclose.
 */
void *wefti_module_open(const char *path, int flags, const char *symbol,
                        void **handle_out, char *why_out, size_t why_bytes);

#endif
