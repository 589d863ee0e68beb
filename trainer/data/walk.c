/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/data/walk.c - files by way of open folders, so that nothing is
 * followed that is not looked at.
 */
#include "trainer/data/walk.h"

#include "base/error.h"
#include "base/printable.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void wefti_walk_line(char line_out[WEFTI_WALK_LINE_BYTES], const char *format,
                     va_list args)
{
    char raw[WEFTI_WALK_LINE_BYTES];
    vsnprintf(raw, sizeof(raw), format, args);
    wefti_printable(raw, strlen(raw), line_out, WEFTI_WALK_LINE_BYTES);
}

__attribute__((format(printf, 2, 3))) static void
report(const wefti_walk *walk, const char *format, ...)
{
    char line[WEFTI_WALK_LINE_BYTES];
    if (walk->note == NULL) {
        return;
    }
    va_list args;
    va_start(args, format);
    wefti_walk_line(line, format, args);
    va_end(args);
    walk->note(walk->note_context, line);
}

/* Hands over the file, and closes fd. */
static weft_status take_file(const wefti_walk *walk, int fd, const char *path,
                             off_t bytes, bool named)
{
    const wefti_walk_file file = {fd, path, bytes > 0 ? (size_t)bytes : 0,
                                  named};
    weft_status status = walk->take(walk->context, &file);
    close(fd);
    return status;
}

static weft_status take_folder(const wefti_walk *walk, int fd, const char *path,
                               int depth);

/* Takes an entry of a folder by what it is; the rest is passed over. */
static weft_status take_entry(const wefti_walk *walk, int folder_fd,
                              const char *folder, const char *name, int depth,
                              size_t *links)
{
    struct stat what;
    if (fstatat(folder_fd, name, &what, AT_SYMLINK_NOFOLLOW) != 0) {
        return wefti_error_system("%s/%s", folder, name);
    }
    *links += S_ISLNK(what.st_mode) ? 1 : 0;
    if (!S_ISREG(what.st_mode) && !S_ISDIR(what.st_mode)) {
        if (!S_ISLNK(what.st_mode)) { /* links are reported together */
            report(walk, "skipped %s/%s: neither a file nor a folder", folder,
                   name);
        }
        return WEFT_OK;
    }
    int fd =
        openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return wefti_error_system("%s/%s: cannot be opened", folder, name);
    }
    char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, name) < 0) {
        close(fd);
        return wefti_error(WEFT_ERR_NO_MEMORY, "%s: out of memory", name);
    }
    weft_status status = S_ISDIR(what.st_mode)
                             ? take_folder(walk, fd, path, depth + 1)
                             : take_file(walk, fd, path, what.st_size, false);
    free(path);
    return status;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All names of an open folder but . and .., in byte order. */
static weft_status list_names(DIR *folder, const char *path, char ***names_out,
                              size_t *count_out)
{
    char **names = NULL;
    size_t count = 0;
    size_t room = 0;
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(folder);
        if (entry == NULL) {
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 ||
            strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (count == room) {
            room = room == 0 ? 64 : 2 * room;
            char **wider = realloc(names, room * sizeof(*names));
            if (wider == NULL) {
                errno = ENOMEM;
                break;
            }
            names = wider;
        }
        names[count] = strdup(entry->d_name);
        if (names[count] == NULL) {
            break;
        }
        count++;
    }
    *names_out = names;
    *count_out = count;
    if (errno != 0) {
        return wefti_error_system("%s: cannot be listed", path);
    }
    if (count > 0) {
        qsort(names, count, sizeof(*names), by_bytes);
    }
    return WEFT_OK;
}

/* Takes all of a folder, and closes fd. */
static weft_status take_folder(const wefti_walk *walk, int fd, const char *path,
                               int depth)
{
    char **names = NULL;
    size_t count = 0;
    size_t links = 0;
    if (depth > WEFTI_WALK_DEPTH_MOST) {
        close(fd);
        return wefti_error(WEFT_ERR_INVALID, "%s: folders nest deeper than %d",
                           path, WEFTI_WALK_DEPTH_MOST);
    }
    DIR *folder = fdopendir(fd);
    if (folder == NULL) {
        weft_status status = wefti_error_system("%s: cannot be listed", path);
        close(fd);
        return status;
    }
    weft_status status = list_names(folder, path, &names, &count);
    for (size_t i = 0; i < count; i++) {
        if (status == WEFT_OK) {
            status = take_entry(walk, fd, path, names[i], depth, &links);
        }
        free(names[i]);
    }
    free(names);
    closedir(folder);
    if (links > 0) {
        report(walk, "skipped %zu links in %s: links are not followed", links,
               path);
    }
    return status;
}

static weft_status take_path(const wefti_walk *walk, const char *path)
{
    struct stat what;
    /* Not to wait for a writer, should path be a FIFO. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &what) != 0) {
        weft_status status = wefti_error_system("%s", path);
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    if (S_ISDIR(what.st_mode)) {
        return take_folder(walk, fd, path, 0);
    }
    if (S_ISREG(what.st_mode)) {
        return take_file(walk, fd, path, what.st_size, true);
    }
    close(fd);
    return wefti_error(WEFT_ERR_INVALID, "%s: neither a file nor a folder",
                       path);
}

weft_status wefti_walk_paths(const wefti_walk *walk, const char *const *paths,
                             size_t path_count)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < path_count; i++) {
        status = take_path(walk, paths[i]);
    }
    return status;
}
