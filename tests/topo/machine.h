/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/topo/machine.h - what tests of recorded machines ask of a graph.
 */
#ifndef TESTS_TOPO_MACHINE_H
#define TESTS_TOPO_MACHINE_H

#include "topo/graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The first warning with that code whose device and text hold both texts. */
static inline const wefti_topo_warning *find_warning(const wefti_topo *topo,
                                                     int code,
                                                     const char *device,
                                                     const char *text)
{
    for (int i = 0; i < topo->warning_count; i++) {
        const wefti_topo_warning *warning = &topo->warnings[i];
        if (warning->code == code && strstr(warning->device, device) &&
            strstr(warning->text, text)) {
            return warning;
        }
    }
    return NULL;
}

static inline void assert_warned(const wefti_topo *topo, int code,
                                 const char *device, const char *text)
{
    if (!find_warning(topo, code, device, text)) {
        for (int i = 0; i < topo->warning_count; i++) {
            print_message("%d %s: %s\n", topo->warnings[i].code,
                          topo->warnings[i].device, topo->warnings[i].text);
        }
        fail_msg("no warning %d about %s with \"%s\"", code, device, text);
    }
}

static inline const wefti_device *device_of(const wefti_topo *topo,
                                            wefti_topo_kind kind, int ordinal)
{
    int index = wefti_topo_find(topo, kind, ordinal);
    assert_true(index >= 0);
    return &topo->devices[index];
}

#endif
