/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/inner_level.c - what the kernel, or a setting, says of a rank.
 */
#include "comm/oob/inner_level.h"

#include "base/error.h"
#include "base/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Behind "word ". */
enum { WORD_LETTERS = WEFTI_INNER_LABEL_BYTES - 6 };

enum { NODES_MOST = 256 };

/* One level's text, without the '/' behind it. */
typedef struct piece {
    const char *text;
    int length;
} piece;

/* Level `level` of the setting; empty behind the last. */
static piece piece_of(const char *text, int level)
{
    for (; level > 0 && *text; level--) {
        text += strcspn(text, "/");
        text += *text == '/';
    }
    return (piece){text, (int)strcspn(text, "/")};
}

/* How many ranks in a row are a group; 0: that is not what it says. */
static int run_of(piece own)
{
    char *end;
    long run = own.length > 0 && own.text[0] >= '1' && own.text[0] <= '9'
                   ? strtol(own.text, &end, 10)
                   : 0;
    return run > 0 && run <= 1 << 20 && end == own.text + own.length ? (int)run
                                                                     : 0;
}

static bool is_word(piece own, const char *word)
{
    return own.length == (int)strlen(word) &&
           memcmp(own.text, word, (size_t)own.length) == 0;
}

/* Whether each word of a list has letters, and no more than a label. */
static bool are_words(piece own)
{
    const char *at = own.text, *end = own.text + own.length;
    bool good = true;
    while (good && at <= end) {
        const size_t letters = strcspn(at, ",/");
        good = letters > 0 && letters <= WORD_LETTERS;
        at += letters + 1;
    }
    return good;
}

/* Of a list of words, one for each rank; 1: it is but one. */
static int count_words(piece own)
{
    int words = 1;
    for (int i = 0; i < own.length; i++) {
        words += own.text[i] == ',';
    }
    return words;
}

weft_status wefti_inner_levels_check(int nranks)
{
    const char *text = wefti_setting_text(WEFTI_SETTING_LEVELS);
    int levels = 1;
    for (const char *at = text; *at; at++) {
        levels += *at == '/';
    }
    bool fits = levels <= WEFTI_PLACE_LEVELS;
    for (int level = 0; level < levels && fits; level++) {
        piece own = piece_of(text, level);
        int words = count_words(own);
        fits = words > 1 ? words >= nranks && are_words(own)
                         : run_of(own) > 0 || is_word(own, "numa") ||
                               (levels == 1 && is_word(own, "off"));
    }
    return fits
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "WEFT_LEVELS=%.200s: allowed is off, or up to %d "
                             "levels with / between, the innermost first, of "
                             "each numa, how many ranks in a row are together, "
                             "or at least one word of up to %d letters for "
                             "each of the %d ranks",
                             text, WEFTI_PLACE_LEVELS, WORD_LETTERS, nranks);
}

/* ---- NUMA nodes ---------------------------------------------------------- */

/* "0-3,8,10-11" to a set; false where it is no such text. */
static bool read_list(const char *text, cpu_set_t *set)
{
    CPU_ZERO(set);
    while (*text >= '0' && *text <= '9') {
        char *end;
        long first = strtol(text, &end, 10), last = first;
        if (*end == '-') {
            last = strtol(end + 1, &end, 10);
        }
        for (long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++) {
            CPU_SET((size_t)cpu, set);
        }
        text = end + (*end == ',');
    }
    return *text == '\0' || *text == '\n';
}

int wefti_numa_find(const char *sysfs, const cpu_set_t *cpus)
{
    for (int node = 0; node < NODES_MOST; node++) {
        char path[256], text[4096] = "";
        cpu_set_t has, both;
        snprintf(path, sizeof(path), "%s/devices/system/node/node%d/cpulist",
                 sysfs, node);
        FILE *file = fopen(path, "re");
        if (!file) {
            continue; /* numbers may have gaps */
        }
        bool read = fgets(text, sizeof(text), file) && read_list(text, &has);
        (void)fclose(file);
        if (read) {
            CPU_AND(&both, &has, cpus);
            if (CPU_COUNT(&both) > 0) {
                return CPU_EQUAL(&both, cpus) ? node : -1;
            }
        }
    }
    return -1;
}

/* ---- labels -------------------------------------------------------------- */

static void label_numa(char label_out[WEFTI_INNER_LABEL_BYTES])
{
    cpu_set_t cpus;
    int node = sched_getaffinity(0, sizeof(cpus), &cpus) == 0
                   ? wefti_numa_find("/sys", &cpus)
                   : -1;
    snprintf(label_out, WEFTI_INNER_LABEL_BYTES, "node %d", node);
}

static void label_word(piece own, int rank,
                       char label_out[WEFTI_INNER_LABEL_BYTES])
{
    const char *end = own.text + own.length, *at = own.text;
    for (int i = 0; i < rank && at < end; i++) {
        at += strcspn(at, ",");
        at += at < end;
    }
    snprintf(label_out, WEFTI_INNER_LABEL_BYTES, "word %.*s",
             at < end ? (int)strcspn(at, ",/") : 0, at);
}

bool wefti_inner_level_is_numa(int level)
{
    return is_word(piece_of(wefti_setting_text(WEFTI_SETTING_LEVELS), level),
                   "numa");
}

void wefti_inner_level_label(int rank, int level,
                             char label_out[WEFTI_INNER_LABEL_BYTES])
{
    piece own = piece_of(wefti_setting_text(WEFTI_SETTING_LEVELS), level);
    int run = run_of(own);
    label_out[0] = '\0';
    if (run > 0) {
        snprintf(label_out, WEFTI_INNER_LABEL_BYTES, "run %d", rank / run);
    } else if (count_words(own) > 1) {
        label_word(own, rank, label_out);
    } else if (wefti_inner_level_is_numa(level)) {
        label_numa(label_out);
    }
}
