/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/data/skipped.c - kinds of files left out, by ending and reason.
 */
#include "trainer/data/skipped.h"

#include "base/error.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const reason_texts[] = {
    "not text", "empty", "the same text as another", "the same ids as another",
    "not named .tokens"};

/* ".dat" of "a/art.dat"; "" where a name has none that is short and plain. */
static void find_ending(const char *path,
                        char ending_out[WEFTI_SKIPPED_ENDING_BYTES])
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    size_t length = dot && dot != name ? strlen(dot) : 0;
    bool plain = length > 1 && length < WEFTI_SKIPPED_ENDING_BYTES;
    for (size_t i = 1; plain && i < length; i++) {
        plain = isalnum((unsigned char)dot[i]) != 0;
    }
    snprintf(ending_out, WEFTI_SKIPPED_ENDING_BYTES, "%s", plain ? dot : "");
}

static wefti_skipped_kind *find_kind(wefti_skipped *skipped,
                                     wefti_skipped_reason reason,
                                     const char *ending)
{
    for (size_t i = 0; i < skipped->kind_count; i++) {
        wefti_skipped_kind *kind = &skipped->kinds[i];
        if (kind->reason == reason && strcmp(kind->ending, ending) == 0) {
            return kind;
        }
    }
    if (skipped->kind_count >= WEFTI_SKIPPED_KINDS_MOST && ending[0]) {
        return find_kind(skipped, reason, "");
    }
    wefti_skipped_kind *kind = &skipped->kinds[skipped->kind_count++];
    *kind = (wefti_skipped_kind){.reason = reason};
    snprintf(kind->ending, sizeof(kind->ending), "%s", ending);
    return kind;
}

weft_status wefti_skipped_add(wefti_skipped *skipped,
                              wefti_skipped_reason reason, const char *path,
                              const char *line)
{
    char ending[WEFTI_SKIPPED_ENDING_BYTES];
    find_ending(path, ending);
    wefti_skipped_kind *kind = find_kind(skipped, reason, ending);
    kind->count++;
    if (!kind->first) {
        kind->first = strdup(line);
    }
    return kind->first
               ? WEFT_OK
               : wefti_error(WEFT_ERR_NO_MEMORY, "%s: out of memory", path);
}

void wefti_skipped_report(const wefti_skipped *skipped, wefti_corpus_note *note,
                          void *note_context)
{
    for (size_t i = 0; note && i < skipped->kind_count; i++) {
        const wefti_skipped_kind *kind = &skipped->kinds[i];
        char line[128];
        if (kind->count == 1) {
            note(note_context, kind->first);
            continue;
        }
        snprintf(line, sizeof(line), "%zu %s%sfiles skipped: %s", kind->count,
                 kind->ending, kind->ending[0] ? " " : "",
                 reason_texts[kind->reason]);
        note(note_context, line);
    }
}

void wefti_skipped_fini(wefti_skipped *skipped)
{
    for (size_t i = 0; i < skipped->kind_count; i++) {
        free(skipped->kinds[i].first);
    }
    skipped->kind_count = 0;
}
