/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/config/config_reader.h - YAML into the fields of a config, strictly,
 * by the table of keys.
 */
#ifndef TRAINER_CONFIG_CONFIG_READER_H
#define TRAINER_CONFIG_CONFIG_READER_H

#include "trainer/config/config.h"

/*
 * wefti_config_read - set what a YAML text says: sections, in them keys, each
 * at most once. No anchors, aliases, tags or second document; nothing nests
 * deeper than a list in a section.
 *
 * Returns     OK | ERR_INVALID | ERR_UNSUPPORTED | ERR_NO_MEMORY; the text
 *             begins "path:line:column: ".
 */
WEFT_NODISCARD weft_status wefti_config_read(wefti_config *config,
                                             const char *text,
                                             size_t text_bytes);

/* The same for one "section.key=value"; the text begins "--set ...: ". */
WEFT_NODISCARD weft_status wefti_config_read_setting(wefti_config *config,
                                                     const char *setting);

#endif
