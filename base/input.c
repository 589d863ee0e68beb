/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/input.c - a whole file in memory.
 */
#include "base/input.h"

#include "base/error.h"
#include "base/memory_limit.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST_BYTES = 1 << 16 };

/*
 * Until its end, into room for the bytes expected, which doubles; one byte more
 * than most is too much.
 */
static weft_status read_on(FILE *file, const char *path, size_t most_bytes,
                           size_t expected_bytes, char **text, size_t *bytes)
{
    size_t room =
        expected_bytes < FIRST_BYTES ? FIRST_BYTES : expected_bytes + 1;
    for (;;) {
        char *grown = realloc(*text, room + 1);
        if (!grown) {
            return wefti_error(WEFT_ERR_NO_MEMORY, "%.200s: no memory for it",
                               path);
        }
        *text = grown;
        *bytes += fread(*text + *bytes, 1, room - *bytes, file);
        if (*bytes > most_bytes) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%.200s: larger than the %zu bytes allowed",
                               path, most_bytes);
        }
        if (*bytes < room) {
            return ferror(file) ? wefti_error_system("reading %.200s", path)
                                : WEFT_OK;
        }
        room *= 2;
    }
}

static const char *name_kind(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

static weft_status check_kind(const struct stat *what, const char *path,
                              wefti_input_kind allowed, size_t most_bytes)
{
    bool pipes = allowed == WEFTI_INPUT_FILE_OR_PIPE;
    if (!S_ISREG(what->st_mode) && !(pipes && S_ISFIFO(what->st_mode))) {
        return wefti_error(WEFT_ERR_INVALID, "%.200s: is %s: allowed is a %s",
                           path, name_kind(what->st_mode),
                           pipes ? "file or a pipe" : "regular file");
    }
    if (what->st_size > 0 && (uint64_t)what->st_size > most_bytes) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%.200s: larger than the %zu bytes allowed", path,
                           most_bytes);
    }
    return WEFT_OK;
}

/*
 * Opened without waiting: a FIFO that is not allowed may have no writer. A
 * device's driver is not asked for anything but to be opened.
 */
static weft_status open_input(const char *path, wefti_input_kind allowed,
                              size_t most_bytes, FILE **file_out,
                              size_t *expected_bytes_out)
{
    char name[208];
    struct stat what;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return wefti_error_system("%.200s", path);
    }
    weft_status status = fstat(fd, &what) == 0
                             ? check_kind(&what, path, allowed, most_bytes)
                             : wefti_error_system("%.200s", path);
    *expected_bytes_out =
        status == WEFT_OK && what.st_size > 0 ? (size_t)what.st_size : 0;
    if (status == WEFT_OK) {
        snprintf(name, sizeof(name), "%.200s", path);
        status = wefti_memory_check(name, *expected_bytes_out);
    }
    if (status == WEFT_OK && S_ISFIFO(what.st_mode)) {
        close(fd); /* again, to wait for its writer */
        fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    *file_out = status == WEFT_OK && fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (status == WEFT_OK && !*file_out) {
        status = wefti_error_system("%.200s", path);
    }
    if (status != WEFT_OK && fd >= 0) {
        close(fd);
    }
    return status;
}

weft_status wefti_file_read(const char *path, wefti_input_kind allowed,
                            size_t most_bytes, char **text_out,
                            size_t *text_bytes_out)
{
    char *text = NULL;
    size_t bytes = 0, expected_bytes;
    FILE *file;
    weft_status status =
        open_input(path, allowed, most_bytes, &file, &expected_bytes);
    if (status != WEFT_OK) {
        return status;
    }
    status = read_on(file, path, most_bytes, expected_bytes, &text, &bytes);
    if (fclose(file) != 0 && status == WEFT_OK) {
        status = wefti_error_system("closing %.200s", path);
    }
    if (status != WEFT_OK) {
        free(text);
        return status;
    }
    text[bytes] = '\0';
    *text_out = text;
    *text_bytes_out = bytes;
    return WEFT_OK;
}
