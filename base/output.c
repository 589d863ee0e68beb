/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/output.c - output that did not arrive is a failure, and leaves no part
 * of itself behind.
 */
#include "base/output.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES_MOST = 100, SUFFIX_BYTES = 48 };

/* A new file under an unused name; the name is put in fresh. */
static int create_beside(const char *place, char *fresh, size_t fresh_bytes)
{
    int fd = -1;
    errno = EEXIST;
    for (int n = 0; n < NAMES_MOST && fd < 0 && errno == EEXIST; n++) {
        snprintf(fresh, fresh_bytes, "%s.%d.%d.new", place, (int)getpid(), n);
        fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    return fd;
}

/* What is there stays as it is until the end: its mode too. */
static weft_status open_beside(wefti_output *out, const struct stat *old)
{
    size_t bytes = strlen(out->place) + SUFFIX_BYTES;
    out->fresh = malloc(bytes);
    if (!out->fresh) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%s %s", out->flag, out->path);
    }
    if (old && access(out->place, W_OK) != 0) {
        return wefti_error_system("%s %s: cannot be written", out->flag,
                                  out->path);
    }
    int fd = create_beside(out->place, out->fresh, bytes);
    if (fd < 0) {
        return wefti_error_system("%s %s: cannot be written", out->flag,
                                  out->path);
    }
    bool bad = old && fchmod(fd, old->st_mode & 07777) != 0;
    out->file = bad ? NULL : fdopen(fd, "w");
    if (!out->file) {
        weft_status status = wefti_error_system("%s %s: cannot be written",
                                                out->flag, out->path);
        close(fd);
        unlink(out->fresh);
        return status;
    }
    return WEFT_OK;
}

static void forget(wefti_output *out)
{
    free(out->place);
    free(out->fresh);
    *out = (wefti_output){0};
}

weft_status wefti_output_open(wefti_output *out, const char *flag,
                              const char *path)
{
    struct stat old;
    *out = (wefti_output){.flag = flag, .path = path};
    if (strcmp(path, "-") == 0) {
        out->file = stdout;
        return WEFT_OK;
    }
    bool there = stat(path, &old) == 0;
    bool link = !there && lstat(path, &old) == 0; /* to what is not there yet */
    weft_status status;
    if (link || (there && !S_ISREG(old.st_mode))) {
        out->file = fopen(path, "we");
        status = out->file ? WEFT_OK
                           : wefti_error_system("%s %s: cannot be written",
                                                flag, path);
    } else {
        out->place = there ? realpath(path, NULL) : strdup(path);
        status = out->place ? open_beside(out, there ? &old : NULL)
                            : wefti_error_system("%s %s: cannot be written",
                                                 flag, path);
    }
    if (status != WEFT_OK) {
        forget(out);
    }
    return status;
}

/* Closes it; what is beside its place is left to the caller. */
static bool close_file(wefti_output *out)
{
    bool good = fflush(out->file) == 0 && ferror(out->file) == 0;
    return (out->file == stdout || fclose(out->file) == 0) && good;
}

weft_status wefti_output_end(wefti_output *out, weft_status status)
{
    bool good = close_file(out);
    if (status != WEFT_OK) {
        status = wefti_error(status, "%s %s: %s", out->flag, out->path,
                             weft_error_text());
    } else if (!good || (out->fresh && rename(out->fresh, out->place) != 0)) {
        status = wefti_error_system("%s %s: was lost", out->flag, out->path);
    }
    if (status != WEFT_OK && out->fresh) {
        (void)unlink(out->fresh);
    }
    forget(out);
    return status;
}

weft_status wefti_output_try(const char *flag, const char *path)
{
    wefti_output out;
    weft_status status = wefti_output_open(&out, flag, path);
    if (status != WEFT_OK) {
        return status;
    }
    (void)close_file(&out);
    if (out.fresh) {
        (void)unlink(out.fresh);
    }
    forget(&out);
    return WEFT_OK;
}

weft_status wefti_output_close(FILE *file)
{
    bool lost_before = ferror(file) != 0;
    if (fclose(file) != 0) {
        return wefti_error_system("output was lost");
    }
    return lost_before ? wefti_error(WEFT_ERR_SYSTEM, "output was lost")
                       : WEFT_OK;
}
