/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/plain_number.c - the grammar first, then the C library's conversion.
 */
#include "base/plain_number.h"

#include "base/error.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

/* How many decimal digits text begins with. */
static size_t count_digits(const char *text)
{
    return strspn(text, "0123456789");
}

bool wefti_plain_int(const char *text, int64_t *value_out)
{
    const char *digits = text + (text[0] == '-');
    const size_t count = count_digits(digits);
    if (count == 0 || digits[count] != '\0') {
        return false;
    }
    *value_out = strtoll(text, NULL, 10);
    return true;
}

static bool is_real(const char *text)
{
    const char *at = text + (text[0] == '-');
    size_t count = count_digits(at);
    at += count;
    if (*at == '.') {
        const size_t fraction = count_digits(at + 1);
        count += fraction;
        at += 1 + fraction;
    }
    if (count > 0 && (*at == 'e' || *at == 'E')) {
        at += at[1] == '-' || at[1] == '+' ? 2 : 1;
        count = count_digits(at);
        at += count;
    }
    return count > 0 && *at == '\0';
}

bool wefti_plain_real(const char *text, double *value_out)
{
    if (!is_real(text)) {
        return false;
    }
    /* The program that weft is linked into may have set a decimal comma. */
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    *value_out = strtod_l(text, NULL, plain);
    freelocale(plain);
    return true;
}

weft_status wefti_plain_flag(const char *flag, const char *text, int least,
                             int most, int *value_out)
{
    int64_t value;
    if (!wefti_plain_int(text, &value) || value < least || value > most) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s %s: allowed is a whole number from %d to %d",
                           flag, text, least, most);
    }
    *value_out = (int)value;
    return WEFT_OK;
}
