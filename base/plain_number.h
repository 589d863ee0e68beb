/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/plain_number.h - decimal numbers as text, strictly: the whole text is
 * the number. What strtoll and strtod take besides is refused: leading blanks,
 * hexadecimal numbers, "inf", "nan", and what follows a number.
 */
#ifndef BASE_PLAIN_NUMBER_H
#define BASE_PLAIN_NUMBER_H

#include "weft/status.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * wefti_plain_int - [-] digits. Too many digits give INT64_MIN or INT64_MAX, so
 * that a range refuses them.
 *
 * Returns     false if text is no such number; *value_out is then untouched.
 */
bool wefti_plain_int(const char *text, int64_t *value_out);

/*
 * wefti_plain_real - [-] digits [. digits] [e [+-] digits], with a digit
 * before the e; the decimal point is a point in every locale. Too large a
 * number gives HUGE_VAL.
 *
 * Returns     false if text is no such number; *value_out is then untouched.
 */
bool wefti_plain_real(const char *text, double *value_out);

/*
 * wefti_plain_flag - the whole number behind a flag, such as "-n".
 *
 * Returns     OK | ERR_INVALID (text is no whole number from least to most; the
 *             text names the flag, what stands there and what is allowed).
 */
WEFT_NODISCARD weft_status wefti_plain_flag(const char *flag, const char *text,
                                            int least, int most,
                                            int *value_out);

#endif
