/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/config/config_key.h - the one table of what a config file may say,
 * and how the text of one value becomes that value.
 *
 * To add a key: a field in config.h, a row in config_key.c. Defaults go through
 * the same parser as the user's text.
 */
#ifndef TRAINER_CONFIG_CONFIG_KEY_H
#define TRAINER_CONFIG_CONFIG_KEY_H

#include "trainer/config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum wefti_config_kind {
    WEFTI_CONFIG_INT,   /* int64_t: least..most */
    WEFTI_CONFIG_REAL,  /* double: least..most, finite */
    WEFTI_CONFIG_BOOL,  /* bool: true, false */
    WEFTI_CONFIG_WORD,  /* const char *: one of words */
    WEFTI_CONFIG_WORDS, /* wefti_config_words: a list of them */
    WEFTI_CONFIG_VOCAB, /* int64_t: "bytes", or a number least..most */
    WEFTI_CONFIG_PATH,  /* char *, owned */
    WEFTI_CONFIG_PATHS  /* char ** and size_t behind it: a list, owned */
} wefti_config_kind;

typedef struct wefti_config_key {
    const char *section;
    const char *name;
    wefti_config_kind kind;
    size_t offset;            /* of the field in wefti_config */
    double least, most;       /* of numbers; whole ones below 2^53 */
    const char *const *words; /* NULL-ended; FILE.csv is any such name */
    const char *fallback;     /* the default as text; NULL: must be given */
    const char *about;        /* in a few words, without a full stop */
    const char *now;          /* the only value possible yet; NULL: all are */
    bool lasting;             /* a checkpoint and its resumption share it */
    bool lasting_if_set;      /* likewise, unless it has its default */
    /* Words may differ by rank, what stands there may not (of all other keys
     * the value may not): see trainer/agreement.h. */
    bool by_content;
} wefti_config_key;

extern const wefti_config_key wefti_config_keys[];
extern const size_t wefti_config_key_count;

/* The row of section.name, or NULL. */
const wefti_config_key *wefti_config_key_find(const char *section,
                                              const char *name);

/* Where the value of a key came from. */
wefti_config_place *wefti_config_key_place(wefti_config *config,
                                           const wefti_config_key *key);

/* What is allowed, as text: "a whole number 1..1024". Returns text. */
char *wefti_config_key_describe(const wefti_config_key *key, char *text,
                                size_t text_bytes);

/*
 * wefti_config_key_suggest - what name was probably meant for: the section, or
 * with a section the key, in text as ": did you mean model.heads?"; empty
 * where nothing is near. Returns text.
 */
char *wefti_config_key_suggest(const char *section, const char *name,
                               char *text, size_t text_bytes);

/*
 * wefti_config_key_list - the names of all sections, or with a section of its
 * keys: "model, data, ...". Returns text.
 */
char *wefti_config_key_list(const char *section, char *text, size_t text_bytes);

/* All of them as docs/config.md. */
void wefti_config_keys_print(FILE *file);

typedef enum wefti_config_verdict {
    WEFTI_CONFIG_GOOD,
    WEFTI_CONFIG_WRONG,   /* type or word */
    WEFTI_CONFIG_RANGE,   /* a number out of limits */
    WEFTI_CONFIG_NOT_YET, /* right, but this version cannot */
    WEFTI_CONFIG_NO_MEMORY
} wefti_config_verdict;

/*
 * wefti_config_key_set - store the value that text says in its field.
 *
 * text     the value, without quotes; of a list: one more element.
 * quoted   it was a quoted text, so it is no number and no boolean.
 */
wefti_config_verdict wefti_config_key_set(wefti_config *config,
                                          const wefti_config_key *key,
                                          const char *text, bool quoted);

/*
 * wefti_config_refuse - an error of status about the value of section.name, at
 * the place it came from; format goes on after the value.
 */
__attribute__((format(printf, 5, 6))) weft_status
wefti_config_refuse(const wefti_config *config, weft_status status,
                    const char *section, const char *name, const char *format,
                    ...);

/* Whether a value would do; most: the last that is tried. */
typedef bool wefti_config_works(const wefti_config *config, int64_t value);

/* "4 or 8": the nearest at either side that work; "none". Returns text. */
char *wefti_config_nearest(const wefti_config *config, wefti_config_works *test,
                           int64_t value, int64_t most, char *text,
                           size_t text_bytes);

/* The multiples of unit at either side of value: "240 or 256". */
char *wefti_config_multiples(int64_t value, int64_t unit, char *text,
                             size_t text_bytes);

/* For a size that does not divide the groups of ranks that there are: the
 * nearest one below that does, and the numbers of ranks at either side for it
 * as it is: "2, or 4 or 8 ranks". others: the ranks of a group. */
char *wefti_config_sizes(int nranks, int64_t size, int64_t others, char *text,
                         size_t text_bytes);

/* Part of wefti_config_check: an encoder, or none. */
WEFT_NODISCARD weft_status
wefti_config_check_encoder(const wefti_config *config);

/* Part of wefti_config_check: ranks that share each layer. */
WEFT_NODISCARD weft_status wefti_config_check_tensor(const wefti_config *config,
                                                     int nranks);

/* Part of wefti_config_check: pipeline and schedule. */
WEFT_NODISCARD weft_status
wefti_config_check_pipeline(const wefti_config *config, int nranks);

/* Part of wefti_config_check: a mixture of experts, or none. */
WEFT_NODISCARD weft_status
wefti_config_check_experts(const wefti_config *config, int nranks);
/* Part of wefti_config_check: ranks that share sequences. */
WEFT_NODISCARD weft_status
wefti_config_check_context(const wefti_config *config, int nranks);

/* Frees what the field owns and empties it. */
void wefti_config_key_clear(wefti_config *config, const wefti_config_key *key);

/* The value as text that set would take (numbers exactly). Returns text. */
char *wefti_config_key_print(const wefti_config *config,
                             const wefti_config_key *key, char *text,
                             size_t text_bytes);

#endif
