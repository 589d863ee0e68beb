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

/* The first place where one of that name lies; false: none has it. */
bool wefti_module_find(const char *name, char path_out[PATH_MAX]);

#endif
