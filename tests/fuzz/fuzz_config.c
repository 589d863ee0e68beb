/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fuzz/fuzz_config.c - any bytes as a config file. What is accepted must
 * also be accepted by what comes after: layout check and digest.
 *
 * An input that begins "--set " gives one setting, up to the end of its line;
 * the rest is the file.
 */
#include "trainer/config/config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
    static const char flag[] = "--set ";
    const size_t flag_bytes = sizeof(flag) - 1;
    const char *text = (const char *)data;
    char *setting = NULL;
    wefti_config config;
    if (data_bytes >= flag_bytes && memcmp(text, flag, flag_bytes) == 0) {
        const char *end = memchr(text, '\n', data_bytes);
        size_t length = end != NULL ? (size_t)(end - text) : data_bytes;
        setting = strndup(text + flag_bytes, length - flag_bytes);
        text = end != NULL ? end + 1 : text + data_bytes;
        data_bytes -= (size_t)(text - (const char *)data);
    }
    const char *settings[] = {setting};
    weft_status status =
        wefti_config_init_text(&config, "fuzz/c.yaml", text, data_bytes,
                               settings, setting != NULL ? 1 : 0);
    if (status == WEFT_OK) {
        uint8_t digest[WEFTI_CONFIG_DIGEST_BYTES];
        status = wefti_config_check(&config, 3);
        wefti_config_digest(&config, digest);
        wefti_config_fini(&config);
    } else if (weft_error_text()[0] == '\0') {
        abort(); /* every refusal says why */
    }
    free(setting);
    return 0;
}
