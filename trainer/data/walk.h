/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/data/walk.h - the files that data.paths names: files as given,
 * folders recursively in byte order of names. A path given may be a link; one
 * that is neither file nor folder is refused. Inside folders both are passed
 * over with a note, links with one for all of a folder.
 */
#ifndef TRAINER_DATA_WALK_H
#define TRAINER_DATA_WALK_H

#include "weft/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    WEFTI_WALK_DEPTH_MOST = 64, /* of folders in folders */
    WEFTI_WALK_LINE_BYTES = 2048
};

/*
 * Called with what was left out and why: one line without its end, printable
 * whatever the names of files are (base/printable.h).
 */
typedef void wefti_corpus_note(void *context, const char *line);

/* A regular file, open to be read from its start; borrowed. */
typedef struct wefti_walk_file {
    int fd;
    const char *path;
    size_t bytes; /* as it was opened */
    bool named;   /* given as a path, not found in a folder */
} wefti_walk_file;

/* take's error ends the walk. note: NULL, or for what is passed over. */
typedef struct wefti_walk {
    weft_status (*take)(void *context, const wefti_walk_file *file);
    void *context;
    wefti_corpus_note *note;
    void *note_context;
} wefti_walk;

/* Returns     OK | ERR_SYSTEM | ERR_INVALID | ERR_NO_MEMORY | take's. */
WEFT_NODISCARD weft_status wefti_walk_paths(const wefti_walk *walk,
                                            const char *const *paths,
                                            size_t path_count);

/* The line of a note: names in it may hold any byte. */
__attribute__((format(printf, 2, 0))) void
wefti_walk_line(char line_out[WEFTI_WALK_LINE_BYTES], const char *format,
                va_list args);

#endif
