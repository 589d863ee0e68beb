/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/number.c - numbers in texts that others wrote. The C library's own
 * readers also take blanks, signs, "0x1p3", "inf" and what does not fit.
 */
#include "topo/number.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool wefti_number_skip(const char **at, const char *words)
{
    size_t bytes = strlen(words);
    if (strncmp(*at, words, bytes) != 0) {
        return false;
    }
    *at += bytes;
    return true;
}

/* What c is worth in that base; -1 where it is no digit of it. */
static int digit_of(char c, int base)
{
    int lower = tolower((unsigned char)c);
    int digit = lower >= '0' && lower <= '9'   ? lower - '0'
                : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10
                                               : -1;
    return digit < base ? digit : -1;
}

bool wefti_number_read(const char **at, int base, uint64_t most, uint64_t *out)
{
    const char *c = *at;
    uint64_t value = 0;
    for (int digit; (digit = digit_of(*c, base)) >= 0; c++) {
        if ((uint64_t)digit > most ||
            value > (most - (uint64_t)digit) / (uint64_t)base) {
            return false;
        }
        value = value * (uint64_t)base + (uint64_t)digit;
    }
    if (c == *at) {
        return false;
    }
    *at = c;
    *out = value;
    return true;
}

bool wefti_number_read_int(const char **at, int *out)
{
    uint64_t value;
    if (!wefti_number_read(at, 10, INT_MAX, &value)) {
        return false;
    }
    *out = (int)value;
    return true;
}

bool wefti_number_read_real(const char **at, double *out)
{
    const char *c = *at;
    if (digit_of(c[0], 10) < 0 || tolower((unsigned char)c[1]) == 'x') {
        return false;
    }
    char *end;
    double value = strtod(c, &end);
    if (!isfinite(value)) {
        return false;
    }
    *at = end;
    *out = value;
    return true;
}

int wefti_number_get(const char *text, int fallback)
{
    int value;
    return wefti_number_read_int(&text, &value) && !*text ? value : fallback;
}
