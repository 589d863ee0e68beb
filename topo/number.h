/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/number.h - numbers in texts that others wrote, read strictly: they
 * begin with a digit (no blank, no sign, no "0x") and fit, or are refused.
 *
 * A reader gets a cursor into the text. It moves past what was read; where
 * nothing could be read it stays, and *out is as before.
 */
#ifndef TOPO_NUMBER_H
#define TOPO_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* What stands between numbers, byte for byte. */
bool wefti_number_skip(const char **at, const char *words);

/* A whole number of base 10 or 16, `most` at most. */
bool wefti_number_read(const char **at, int base, uint64_t most, uint64_t *out);

/* The same, of base 10, as an int. */
bool wefti_number_read_int(const char **at, int *out);

/* A finite number, with the locale's decimal point. */
bool wefti_number_read_real(const char **at, double *out);

/* The whole text as an int; fallback where it is anything else. */
int wefti_number_get(const char *text, int fallback);

#endif
