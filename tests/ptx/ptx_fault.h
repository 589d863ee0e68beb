/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_fault.h - the text of what ptx_fault() returns.
 */
#ifndef TESTS_PTX_PTX_FAULT_H
#define TESTS_PTX_PTX_FAULT_H

#include <stdarg.h>
#include <stdbool.h>

/* Begins the text anew. Returns false. */
bool ptx_fault_set(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* Adds to it. Returns false. */
bool ptx_fault_add(const char *format, va_list values)
    __attribute__((format(printf, 1, 0)));

#endif
