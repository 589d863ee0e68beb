/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/options.h - the command line of weft-train.
 */
#ifndef TRAINER_OPTIONS_H
#define TRAINER_OPTIONS_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct wefti_options {
    const char *config;    /* CONFIG.yaml */
    const char **settings; /* after --set, in order; owned */
    size_t setting_count;
    const char *resume;                /* NULL: begin anew */
    const char *generate;              /* NULL: nothing asked for; may be "" */
    const char *metrics;               /* NULL: none; "-": stdout */
    const char *json;                  /* the same */
    const char *report;                /* NULL: none; a file */
    const char *import_hf, *export_hf; /* NULL: none; folders */
    bool measure;
    bool print_program;       /* then nothing is trained */
    bool keys, help, version; /* then nothing else counts */
} wefti_options;

/*
 * wefti_options_init - read the arguments, which stay borrowed.
 *
 * Returns     OK | ERR_INVALID (the text names the argument and what is
 *             allowed) | ERR_NO_MEMORY. After an error options is empty.
 */
WEFT_NODISCARD weft_status wefti_options_init(wefti_options *options, int argc,
                                              char *const *argv);
void wefti_options_fini(wefti_options *options);

void wefti_options_help(FILE *file);

#endif
