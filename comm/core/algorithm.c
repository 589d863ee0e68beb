/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/algorithm.c - sets of algorithms, by name.
 */
#include "comm/core/algorithm.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>

const char *wefti_algorithm_name(int bit)
{
    int at = 0;
    while (at < bit && wefti_patterns[at]) {
        at++;
    }
    return at == bit && wefti_patterns[at] ? wefti_patterns[at]->name : NULL;
}

int wefti_algorithm_bit(const wefti_pattern *pattern)
{
    int bit = 0;
    while (wefti_patterns[bit] != pattern) {
        bit++;
    }
    WEFTI_ASSERT(bit < 8 * (int)sizeof(wefti_algorithms));
    return bit;
}

wefti_algorithms wefti_algorithms_supporting(const wefti_problem *problem)
{
    wefti_algorithms set = 0;
    for (int i = 0; wefti_patterns[i]; i++) {
        if (wefti_patterns[i]->supports(problem)) {
            set |= (wefti_algorithms)(1U << i);
        }
    }
    return set;
}

wefti_algorithms wefti_algorithms_of(weft_collective collective)
{
    static const wefti_grouping some; /* only that there is one counts */
    static wefti_nest sums;
    static const wefti_nest nest = {.sums = &sums};
    const wefti_problem problem = {.collective = collective,
                                   .nranks = 3,
                                   .grouping = &some,
                                   .nest = &nest,
                                   .count = 1,
                                   .chunk_elems = 1};
    return wefti_algorithms_supporting(&problem);
}

void wefti_algorithms_list(wefti_algorithms set, char separator, char *text_out,
                           size_t text_bytes)
{
    size_t used = 0;
    text_out[0] = '\0';
    for (int bit = 0; set >> bit && used < text_bytes; bit++) {
        const char mark[] = {used ? separator : '\0', '\0'};
        if (set >> bit & 1) {
            used += (size_t)snprintf(text_out + used, text_bytes - used, "%s%s",
                                     mark, wefti_algorithm_name(bit));
        }
    }
}

/* The bit of a name; -1: none of the set has it. */
static int find(wefti_algorithms set, const char *name, size_t length)
{
    for (int bit = 0; set >> bit; bit++) {
        const char *known = wefti_algorithm_name(bit);
        if (set >> bit & 1 && strlen(known) == length &&
            memcmp(known, name, length) == 0) {
            return bit;
        }
    }
    return -1;
}

wefti_algorithms wefti_algorithms_read(weft_collective collective,
                                       const char *names, size_t length)
{
    wefti_algorithms left = wefti_algorithms_of(collective), set = 0;
    for (size_t begin = 0, end; begin <= length; begin = end + 1) {
        for (end = begin; end < length && names[end] != '/'; end++) {
        }
        int bit = find(left, names + begin, end - begin);
        if (bit < 0) {
            return 0;
        }
        set |= (wefti_algorithms)(1U << bit);
        left &= (wefti_algorithms)~set;
    }
    return set;
}
