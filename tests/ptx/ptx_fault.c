/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_fault.c - one text per thread.
 */
#include "tests/ptx/ptx_fault.h"

#include "tests/ptx/ptx.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char text[512];

const char *ptx_fault(void)
{
    return text;
}

bool ptx_fault_set(const char *format, ...)
{
    va_list values;
    text[0] = '\0';
    va_start(values, format);
    ptx_fault_add(format, values);
    va_end(values);
    return false;
}

bool ptx_fault_add(const char *format, va_list values)
{
    size_t used = strlen(text);
    vsnprintf(text + used, sizeof(text) - used, format, values);
    return false;
}
