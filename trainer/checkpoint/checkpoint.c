/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint.c - how a step becomes the newest complete one,
 * and what happens to the others.
 *
 *   begin                 .step_50.new            ranks write into it
 *   commit                .step_50.new -> step_50, then step_50/DONE
 *   commit, step_50 was   .step_50.new/DONE, then the two change places, and
 *   complete before       .step_50.new holds the former one
 *   removal               step_10 -> .step_10.old, then its files one by one
 *
 * Each arrow is one atomic rename, made durable by fsync of DIR before what
 * follows relies on it.
 */
#include "trainer/checkpoint/checkpoint.h"

#include "base/error.h"
#include "base/log.h"
#include "trainer/checkpoint/checkpoint_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static weft_status open_folder(int at_fd, const char *name, int *fd_out)
{
    *fd_out = openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *fd_out < 0 ? wefti_error_system("%s: cannot be opened", name)
                       : WEFT_OK;
}

static weft_status sync_folder(int fd, const char *name)
{
    return fsync(fd) != 0
               ? wefti_error_system("%s: cannot be made durable", name)
               : WEFT_OK;
}

/* Makes path[0 .. end), durably in its parent, unless it exists. */
static weft_status make_folder(char *path, size_t end)
{
    char *slash = NULL;
    int parent_fd = -1;
    if (mkdir(path, 0777) != 0) {
        return errno == EEXIST ? WEFT_OK
                               : wefti_error_system("%s: cannot be made", path);
    }
    slash = memrchr(path, '/', end);
    if (slash != NULL) {
        *slash = '\0';
    }
    const char *parent = slash == NULL ? "." : slash == path ? "/" : path;
    weft_status status = open_folder(AT_FDCWD, parent, &parent_fd);
    if (status == WEFT_OK) {
        status = sync_folder(parent_fd, parent);
        close(parent_fd);
    }
    return status;
}

/* Makes dir and whichever of its parents are missing. */
static weft_status make_folders(const char *dir)
{
    char path[WEFTI_CHECKPOINT_PATH_BYTES];
    size_t length = strlen(dir);
    weft_status status = WEFT_OK;
    if (length == 0 || length >= sizeof(path)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "checkpoint folder of %zu bytes: allowed is 1..%zu",
                           length, sizeof(path) - 1);
    }
    for (size_t end = 1; status == WEFT_OK && end <= length; end++) {
        if (dir[end] == '/' || dir[end] == '\0') {
            memcpy(path, dir, end);
            path[end] = '\0';
            status = make_folder(path, end);
        }
    }
    return status;
}

weft_status wefti_checkpoint_try(const char *dir, uint32_t rank)
{
    char name[32];
    int dir_fd = -1;
    weft_status status = rank == 0 ? make_folders(dir) : WEFT_OK;
    if (status == WEFT_OK) {
        status = open_folder(AT_FDCWD, dir, &dir_fd);
    }
    if (status != WEFT_OK) {
        return status;
    }
    snprintf(name, sizeof(name), ".try_%05" PRIu32, rank);
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || unlinkat(dir_fd, name, 0) != 0) {
        status = wefti_error_system("%s: nothing can be written there", dir);
    }
    if (fd >= 0) {
        close(fd);
    }
    close(dir_fd);
    return status;
}

weft_status wefti_checkpoint_begin(const char *dir, uint64_t step)
{
    char name[WEFTI_CHECKPOINT_FOLDER_BYTES];
    int dir_fd = -1;
    weft_status status = make_folders(dir);
    if (status == WEFT_OK) {
        status = open_folder(AT_FDCWD, dir, &dir_fd);
    }
    if (status != WEFT_OK) {
        return status;
    }
    wefti_checkpoint_folder_name(step, WEFTI_CHECKPOINT_NEW, name);
    if (mkdirat(dir_fd, name, 0777) != 0) {
        status = errno == EEXIST
                     ? wefti_checkpoint_folder_remove(dir_fd, name)
                     : wefti_error_system("%s/%s: cannot be made", dir, name);
        if (status == WEFT_OK && mkdirat(dir_fd, name, 0777) != 0) {
            status = wefti_error_system("%s/%s: cannot be made", dir, name);
        }
    }
    close(dir_fd);
    return status;
}

/* Every rank's file is there, as far as the caller's barrier promised. */
static weft_status check_ranks(int fd, const char *folder, uint32_t nranks)
{
    for (uint32_t rank = 0; rank < nranks; rank++) {
        char name[32];
        struct stat what;
        snprintf(name, sizeof(name), "rank_%05" PRIu32 ".weft", rank);
        if (fstatat(fd, name, &what, AT_SYMLINK_NOFOLLOW) != 0) {
            return wefti_error_system("%s/%s", folder, name);
        }
    }
    return WEFT_OK;
}

/* Writes DONE into the open folder, durably. */
static weft_status write_done(int folder_fd, const char *folder, uint64_t step,
                              uint32_t nranks)
{
    char text[WEFTI_CHECKPOINT_DONE_BYTES];
    int length = wefti_checkpoint_folder_done(step, nranks, text);
    int fd = openat(folder_fd, WEFTI_CHECKPOINT_DONE,
                    O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return wefti_error_system(
            "%s/" WEFTI_CHECKPOINT_DONE ": cannot be made", folder);
    }
    weft_status status = WEFT_OK;
    if (write(fd, text, (size_t)length) != length || fsync(fd) != 0) {
        status = wefti_error_system(
            "%s/" WEFTI_CHECKPOINT_DONE ": cannot be written", folder);
    }
    close(fd);
    return status == WEFT_OK ? sync_folder(folder_fd, folder) : status;
}

/* A complete step takes the place of another: DONE first, then exchange. */
static weft_status replace(int dir_fd, int new_fd, const char *new_name,
                           const char *saved_name, uint64_t step,
                           uint32_t nranks)
{
    weft_status status = write_done(new_fd, new_name, step, nranks);
    if (status == WEFT_OK &&
        renameat2(dir_fd, new_name, dir_fd, saved_name, RENAME_EXCHANGE) != 0) {
        status = wefti_error_system("%s: cannot take the place of %s", new_name,
                                    saved_name);
    }
    return status == WEFT_OK ? sync_folder(dir_fd, saved_name) : status;
}

/* The step's first completion: rename, then DONE. */
static weft_status place(int dir_fd, int new_fd, const char *new_name,
                         const char *saved_name, uint64_t step, uint32_t nranks)
{
    struct stat what;
    weft_status status = WEFT_OK;
    if (fstatat(dir_fd, saved_name, &what, AT_SYMLINK_NOFOLLOW) == 0) {
        status = wefti_checkpoint_folder_remove(
            dir_fd, saved_name); /* one without DONE */
    }
    if (status == WEFT_OK &&
        renameat(dir_fd, new_name, dir_fd, saved_name) != 0) {
        status =
            wefti_error_system("%s: cannot become %s", new_name, saved_name);
    }
    if (status == WEFT_OK) {
        status = sync_folder(dir_fd, saved_name);
    }
    return status == WEFT_OK ? write_done(new_fd, saved_name, step, nranks)
                             : status;
}

/* Whether a folder found beside the fresh step stays. */
static bool is_kept(const wefti_checkpoint_folder *folder, uint64_t step,
                    size_t *room)
{
    if (!folder->complete || folder->step > step || *room == 0) {
        return false;
    }
    (*room)--;
    return true;
}

/* Takes out of sight, at one stroke, what is not to be found any more. */
static weft_status retire(int dir_fd, wefti_checkpoint_folder *folder)
{
    char from[WEFTI_CHECKPOINT_FOLDER_BYTES];
    char to[WEFTI_CHECKPOINT_FOLDER_BYTES];
    wefti_checkpoint_folder_name(folder->step, WEFTI_CHECKPOINT_SAVED, from);
    wefti_checkpoint_folder_name(folder->step, WEFTI_CHECKPOINT_OLD, to);
    struct stat what;
    if (fstatat(dir_fd, to, &what, AT_SYMLINK_NOFOLLOW) == 0) {
        weft_status status = wefti_checkpoint_folder_remove(dir_fd, to);
        if (status != WEFT_OK) {
            return status;
        }
    }
    if (renameat(dir_fd, from, dir_fd, to) != 0) {
        return wefti_error_system("%s: cannot be renamed", from);
    }
    folder->state = WEFTI_CHECKPOINT_OLD;
    return WEFT_OK;
}

/*
 * Removes what is over. All that has to vanish is renamed first and the
 * renames made durable, so that no power failure brings a half-removed step
 * back as a complete one.
 */
static weft_status remove_others(int dir_fd, const char *dir, uint64_t step,
                                 size_t keep)
{
    wefti_checkpoint_folder *folders = NULL;
    size_t count = 0;
    weft_status worst =
        wefti_checkpoint_folder_scan(dir_fd, dir, &folders, &count);
    for (size_t i = 0; i < count; i++) {
        if (folders[i].state == WEFTI_CHECKPOINT_SAVED &&
            !is_kept(&folders[i], step, &keep)) {
            weft_status status = retire(dir_fd, &folders[i]);
            worst = status != WEFT_OK ? status : worst;
        }
    }
    if (worst == WEFT_OK) {
        worst = sync_folder(dir_fd, dir);
    }
    for (size_t i = 0; worst == WEFT_OK && i < count; i++) {
        char name[WEFTI_CHECKPOINT_FOLDER_BYTES];
        struct stat what;
        wefti_checkpoint_folder_name(folders[i].step, folders[i].state, name);
        if (folders[i].state != WEFTI_CHECKPOINT_SAVED &&
            fstatat(dir_fd, name, &what, AT_SYMLINK_NOFOLLOW) == 0) {
            worst = wefti_checkpoint_folder_remove(dir_fd, name);
        }
    }
    free(folders);
    return worst;
}

weft_status wefti_checkpoint_commit(const char *dir, uint64_t step,
                                    uint32_t nranks, size_t keep)
{
    char new_name[WEFTI_CHECKPOINT_FOLDER_BYTES];
    char saved_name[WEFTI_CHECKPOINT_FOLDER_BYTES];
    int dir_fd = -1;
    int new_fd = -1;
    wefti_checkpoint_folder_name(step, WEFTI_CHECKPOINT_NEW, new_name);
    wefti_checkpoint_folder_name(step, WEFTI_CHECKPOINT_SAVED, saved_name);
    weft_status status = open_folder(AT_FDCWD, dir, &dir_fd);
    if (status != WEFT_OK) {
        return status;
    }
    status = open_folder(dir_fd, new_name, &new_fd);
    if (status != WEFT_OK) {
        goto err_close_dir;
    }
    status = check_ranks(new_fd, new_name, nranks);
    if (status == WEFT_OK) {
        status = sync_folder(new_fd, new_name);
    }
    if (status == WEFT_OK) {
        status = (wefti_checkpoint_folder_complete(dir_fd, saved_name) ? replace
                                                                       : place)(
            dir_fd, new_fd, new_name, saved_name, step, nranks);
    }
    if (status == WEFT_OK &&
        remove_others(dir_fd, dir, step, keep > 0 ? keep : 1) != WEFT_OK) {
        wefti_log(WEFTI_LOG_WARN, 0, "checkpoints in %s: %s", dir,
                  weft_error_text());
    }
    close(new_fd);
err_close_dir:
    close(dir_fd);
    return status;
}

void wefti_checkpoint_prune(const char *dir, uint64_t step, size_t keep)
{
    int dir_fd = -1;
    if (access(dir, F_OK) != 0 && errno == ENOENT) {
        return;
    }
    weft_status status = open_folder(AT_FDCWD, dir, &dir_fd);
    if (status == WEFT_OK) {
        status = remove_others(dir_fd, dir, step, keep);
        close(dir_fd);
    }
    if (status != WEFT_OK) {
        wefti_log(WEFTI_LOG_WARN, 0, "checkpoints in %s: %s", dir,
                  weft_error_text());
    }
}

weft_status wefti_checkpoint_list(const char *dir, uint64_t **steps_out,
                                  size_t *count_out)
{
    wefti_checkpoint_folder *folders = NULL;
    size_t count = 0;
    int dir_fd = -1;
    *steps_out = NULL;
    *count_out = 0;
    if (access(dir, F_OK) != 0 && errno == ENOENT) {
        return WEFT_OK;
    }
    weft_status status = open_folder(AT_FDCWD, dir, &dir_fd);
    if (status != WEFT_OK) {
        return status;
    }
    status = wefti_checkpoint_folder_scan(dir_fd, dir, &folders, &count);
    close(dir_fd);
    uint64_t *steps = NULL;
    if (status == WEFT_OK && count > 0) {
        steps = malloc(count * sizeof(*steps));
        if (steps == NULL) {
            status = wefti_error(WEFT_ERR_NO_MEMORY, "%s: out of memory", dir);
        }
    }
    for (size_t i = 0; steps != NULL && i < count; i++) {
        if (folders[i].complete) {
            steps[(*count_out)++] = folders[i].step;
        }
    }
    if (*count_out == 0) {
        free(steps);
        steps = NULL;
    }
    *steps_out = steps;
    free(folders);
    return status;
}

weft_status wefti_checkpoint_count_ranks(const char *dir, uint64_t step,
                                         uint32_t *nranks_out)
{
    char path[WEFTI_CHECKPOINT_PATH_BYTES];
    weft_status status = WEFT_OK;
    *nranks_out = 0;
    do {
        status = wefti_checkpoint_path(dir, step, WEFTI_CHECKPOINT_SAVED,
                                       *nranks_out, path);
    } while (status == WEFT_OK && access(path, F_OK) == 0 && ++*nranks_out);
    if (status == WEFT_OK && *nranks_out == 0) {
        status = wefti_error(WEFT_ERR_INVALID, "%s: is missing", path);
    }
    return status;
}
