/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/config/config_page.c - the table of keys as a page: docs/config.md.
 */
#include "trainer/config/config_key.h"

#include <string.h>

static void print_section(const char *section, FILE *file)
{
    fprintf(file,
            "\n## %s\n\n| key | default | allowed | what |\n"
            "|---|---|---|---|\n",
            section);
}

static void print_key(const wefti_config_key *key, FILE *file)
{
    char allowed[256];
    fprintf(file, "| `%s`%s | %s | ", key->name,
            key->lasting || key->lasting_if_set ? " \\*" : "",
            key->fallback ? key->fallback : "must be given");
    if (key->now) {
        fprintf(file, "%s; not yet: %s", key->now,
                wefti_config_key_describe(key, allowed, sizeof(allowed)));
    } else {
        fputs(wefti_config_key_describe(key, allowed, sizeof(allowed)), file);
    }
    fprintf(file, " | %s |\n", key->about);
}

void wefti_config_keys_print(FILE *file)
{
    const char *section = "";
    fputs(
        "# Configuration\n\n"
        "Every key of a configuration, as `weft-train --keys` prints it. A key "
        "that is not\nhere is refused, as are values that this version can not "
        "do yet.\nWhere a star stands a run that is resumed has to have the "
        "same.\n",
        file);
    for (size_t i = 0; i < wefti_config_key_count; i++) {
        const wefti_config_key *key = &wefti_config_keys[i];
        if (strcmp(key->section, section) != 0) {
            section = key->section;
            print_section(section, file);
        }
        print_key(key, file);
    }
}
