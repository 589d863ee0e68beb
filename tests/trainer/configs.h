/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/trainer/configs.h - configurations from texts, and what is said of
 * those that are refused.
 */
#ifndef TESTS_TRAINER_CONFIGS_H
#define TESTS_TRAINER_CONFIGS_H

#include "trainer/config/config_key.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define HEAD "data: {paths: [t]}\n" /* line 1 of most texts */

static inline weft_status read_text(wefti_config *config, const char *text,
                                    const char *setting)
{
    memset(config, 0xA5, sizeof(*config));
    return wefti_config_init_text(config, "dir/c.yaml", text, strlen(text),
                                  &setting, setting != NULL ? 1 : 0);
}

static inline void expect_refusal(weft_status got, weft_status expected,
                                  const char *part, const char *text)
{
    if (got != expected || strstr(weft_error_text(), part) == NULL) {
        fail_msg("%s\ngave %d \"%s\", expected %d \"%s\"", text, got,
                 got == WEFT_OK ? "" : weft_error_text(), expected, part);
    }
}

/* part NULL: it is possible on so many ranks. */
static inline void check_layout(const char *rest, int nranks, const char *part)
{
    wefti_config config;
    char text[512];
    snprintf(text, sizeof(text), HEAD "%s", rest);
    assert_int_equal(read_text(&config, text, NULL), WEFT_OK);
    weft_status status = wefti_config_check(&config, nranks);
    if (part == NULL) {
        assert_int_equal(status, WEFT_OK);
    } else {
        expect_refusal(status, WEFT_ERR_INVALID, part, text);
    }
    wefti_config_fini(&config);
}

#endif
