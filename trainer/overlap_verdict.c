/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/overlap_verdict.c - a verdict as text, and back.
 */
#include "trainer/overlap_verdict.h"

#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void wefti_overlap_verdict_pack(const wefti_overlap_verdict *verdict,
                                char text[WEFTI_OVERLAP_PACKED_BYTES])
{
    size_t used = 0;
    text[0] = '\0';
    if (verdict->there) {
        used = (size_t)snprintf(text, WEFTI_OVERLAP_PACKED_BYTES, "%016" PRIx64,
                                verdict->layout);
    }
    for (int c = 0; c < WEFT_CLASS_COUNT && verdict->there; c++) {
        const wefti_overlap_class *own = &verdict->classes[c];
        if (own->tried && used < WEFTI_OVERLAP_PACKED_BYTES) {
            used += (size_t)snprintf(
                text + used, WEFTI_OVERLAP_PACKED_BYTES - used,
                " %s %.6g %.6g %.6g %s", weft_class_text((weft_class)c),
                own->overlapped_ms, own->blocking_ms, own->spread_ms,
                own->lost ? "lost" : "kept");
        }
    }
}

static int find_class(const char *name)
{
    int c = 0;
    while (c < WEFT_CLASS_COUNT &&
           strcmp(weft_class_text((weft_class)c), name) != 0) {
        c++;
    }
    return c;
}

/* The next class of a text, which goes on behind it; NULL: there is none. */
static const char *read_class(const char *text, wefti_overlap_verdict *verdict)
{
    char name[16], word[8];
    wefti_overlap_class own = {.tried = true};
    int length = 0;
    if (sscanf(text, " %15[a-z] %lf %lf %lf %7[a-z]%n", name,
               &own.overlapped_ms, &own.blocking_ms, &own.spread_ms, word,
               &length) != 5) {
        return NULL;
    }
    const int c = find_class(name);
    own.lost = strcmp(word, "lost") == 0;
    if (c < WEFT_CLASS_COUNT) {
        verdict->classes[c] = own;
    }
    return text + length;
}

/* What is read is right where writing it gives the same again. */
weft_status wefti_overlap_verdict_unpack(const char *text,
                                         wefti_overlap_verdict *verdict_out)
{
    char again[WEFTI_OVERLAP_PACKED_BYTES];
    int length = 0;
    *verdict_out = (wefti_overlap_verdict){0};
    if (!text[0]) {
        return WEFT_OK;
    }
    verdict_out->there =
        sscanf(text, "%16" SCNx64 "%n", &verdict_out->layout, &length) == 1;
    for (const char *at = text + length; at && *at;) {
        at = read_class(at, verdict_out);
    }
    wefti_overlap_verdict_pack(verdict_out, again);
    bool good = strcmp(text, again) == 0;
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        const wefti_overlap_class *own = &verdict_out->classes[c];
        good = good && isfinite(own->overlapped_ms) &&
               isfinite(own->blocking_ms) && isfinite(own->spread_ms);
    }
    if (good) {
        return WEFT_OK;
    }
    *verdict_out = (wefti_overlap_verdict){0};
    return wefti_error(WEFT_ERR_INVALID,
                       "\"%.80s\" is no verdict on overlap: allowed is LAYOUT, "
                       "then for each class its name, three times in ms, and "
                       "lost or kept",
                       text);
}

void wefti_overlap_verdict_text(const wefti_overlap_verdict *verdict,
                                weft_class class_id,
                                char text[WEFTI_OVERLAP_TEXT_BYTES])
{
    const wefti_overlap_class *own = &verdict->classes[class_id];
    snprintf(text, WEFTI_OVERLAP_TEXT_BYTES,
             own->lost ? "%s fell back, overlap lost %.4g against %.4g ms"
                       : "%s overlaps, %.4g ms against %.4g blocking",
             weft_class_text(class_id), own->overlapped_ms, own->blocking_ms);
}

void wefti_overlap_verdict_print(const wefti_overlap_verdict *verdict,
                                 FILE *file)
{
    char text[WEFTI_OVERLAP_TEXT_BYTES];
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        if (verdict->classes[c].tried) {
            wefti_overlap_verdict_text(verdict, (weft_class)c, text);
            fprintf(file, "%-18s %s%s\n",
                    verdict->classes[c].lost ? "H" : "overlap",
                    verdict->classes[c].lost ? "    n/a: " : "", text);
        }
    }
}
