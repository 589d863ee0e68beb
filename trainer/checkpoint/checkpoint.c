/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint.c - how a step becomes a complete one, and what
 * happens to the others.
 *
 *   begin                 .step_50.S.new           ranks write into it
 *   seal                  .step_50.S.new/index.json, then DONE
 *   commit                .step_50.S.new -> step_50
 *   commit, step_50 was   the two change places, and .step_50.S.new holds the
 *   there before          former one
 *   removal               step_10 -> .step_10.old, then its files one by one
 *
 * Each arrow is one atomic rename, made durable by fsync of DIR before what
 * follows relies on it. A file system on which two folders cannot change places
 * (NFS) takes the former one to .step_50.old first: a kill right then leaves
 * neither to be found, and the steps before as they are.
 *
 * A rank 0 may stand still anywhere here while the others go on without it. So
 * whose DIR is, is read before the rename and again before the first removal,
 * after the list of what is to be removed: all that is on it is older than a
 * run that has taken over since. The rename alone may come late: it can only
 * add a complete step of this run, or replace another of its number by it.
 */
#include "trainer/checkpoint/checkpoint.h"

#include "base/error.h"
#include "base/log.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_index.h"
#include "trainer/checkpoint/checkpoint_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

/* DIR itself may be a link, what is in it may not: nothing leads out of it. */
static weft_status open_dir(const wefti_checkpoint_owner *owner,
                            const char *dir, int *fd_out)
{
    int below = strcmp(dir, owner->dir) != 0 ? O_NOFOLLOW : 0;
    *fd_out = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | below);
    return *fd_out < 0 ? wefti_error_system("%s: cannot be opened", dir)
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

weft_status wefti_checkpoint_make_folders(const char *dir)
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
    weft_status status = open_folder(AT_FDCWD, dir, &dir_fd);
    if (status != WEFT_OK) {
        return status;
    }
    snprintf(name, sizeof(name), ".try_%05" PRIu32, rank);
    int fd =
        openat(dir_fd, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0 || unlinkat(dir_fd, name, 0) != 0) {
        status = wefti_error_system("%s: nothing can be written there", dir);
    }
    if (fd >= 0) {
        close(fd);
    }
    close(dir_fd);
    return status;
}

weft_status wefti_checkpoint_begin(const wefti_checkpoint_owner *owner,
                                   const char *dir, uint64_t step)
{
    char name[WEFTI_CHECKPOINT_FOLDER_BYTES];
    int dir_fd = -1;
    weft_status status = wefti_checkpoint_owner_check(owner);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_make_folders(dir);
    }
    if (status == WEFT_OK) {
        status = open_dir(owner, dir, &dir_fd);
    }
    if (status != WEFT_OK) {
        return status;
    }
    wefti_checkpoint_folder_name(step, WEFTI_CHECKPOINT_NEW,
                                 owner->origin.session, name);
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

/* A new file in the open folder, durable itself. */
static weft_status write_file(int folder_fd, const char *folder,
                              const char *name, const char *text, size_t bytes)
{
    weft_status status = WEFT_OK;
    size_t done = 0;
    int fd =
        openat(folder_fd, name,
               O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) {
        return wefti_error_system("%s/%s: cannot be made", folder, name);
    }
    for (ssize_t wrote = 1; done < bytes && wrote > 0; done += (size_t)wrote) {
        do {
            wrote = write(fd, text + done, bytes - done);
        } while (wrote < 0 && errno == EINTR);
        wrote = wrote < 0 ? 0 : wrote;
    }
    if (done < bytes || fsync(fd) != 0) {
        status = wefti_error_system("%s/%s: cannot be written", folder, name);
    }
    close(fd);
    return status;
}

/* The index of what the ranks have written; its digest. */
static weft_status write_index(int folder_fd, const char *path, uint64_t nranks,
                               uint8_t *digest_out)
{
    wefti_checkpoint_index index;
    size_t bytes = 0;
    weft_status status =
        wefti_checkpoint_index_gather(path, nranks, &bytes, &index);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_checkpoint_digest(index.text, bytes, digest_out);
    status =
        write_file(folder_fd, path, WEFTI_CHECKPOINT_INDEX, index.text, bytes);
    wefti_checkpoint_index_fini(&index);
    return status;
}

/* All that DONE speaks of is durable before it. */
static weft_status write_done(int folder_fd, const char *path,
                              const wefti_checkpoint_done *done)
{
    char text[WEFTI_CHECKPOINT_DONE_BYTES];
    int length = wefti_checkpoint_done_pack(done, text);
    weft_status status = sync_folder(folder_fd, path);
    if (status == WEFT_OK) {
        status = write_file(folder_fd, path, WEFTI_CHECKPOINT_DONE, text,
                            (size_t)length);
    }
    return status == WEFT_OK ? sync_folder(folder_fd, path) : status;
}

weft_status wefti_checkpoint_seal(const wefti_checkpoint_owner *owner,
                                  const char *dir, uint64_t step,
                                  uint64_t nranks)
{
    wefti_checkpoint_done done = {
        .step = step, .nranks = nranks, .origin = owner->origin};
    char path[WEFTI_CHECKPOINT_PATH_BYTES];
    int dir_fd = -1;
    int new_fd = -1;
    weft_status status = wefti_checkpoint_path(dir, step, WEFTI_CHECKPOINT_NEW,
                                               owner->origin.session, "", path);
    if (status == WEFT_OK) {
        status = open_dir(owner, dir, &dir_fd);
    }
    if (status != WEFT_OK) {
        return status;
    }
    status = open_folder(dir_fd, strrchr(path, '/') + 1, &new_fd);
    close(dir_fd);
    if (status != WEFT_OK) {
        return status;
    }
    status = write_index(new_fd, path, nranks, done.index_digest);
    if (status == WEFT_OK) {
        status = write_done(new_fd, path, &done);
    }
    close(new_fd);
    return status;
}

/* Whether anything stands where a step is to be; what may not be replaced is an
 * error. */
static weft_status check_place(const wefti_checkpoint_owner *owner, int dir_fd,
                               const char *dir, uint64_t step, bool *taken_out)
{
    wefti_checkpoint_folder *folders = NULL;
    size_t count = 0;
    weft_status status =
        wefti_checkpoint_folder_scan(dir_fd, dir, &folders, &count);
    *taken_out = false;
    for (size_t i = 0; i < count; i++) {
        const wefti_checkpoint_folder *one = &folders[i];
        if (one->step != step || one->state != WEFTI_CHECKPOINT_SAVED) {
            continue;
        }
        *taken_out = true;
        if (!one->plain ||
            (one->complete && one->done.origin.run != owner->origin.run)) {
            status = wefti_error(
                WEFT_ERR_INVALID,
                "%s/step_%08" PRIu64 ": %s is in the way, and stays", dir, step,
                one->plain ? "a complete step of another run"
                           : "what is no folder of its own");
        }
    }
    free(folders);
    return status;
}

/* Takes out of sight, at one stroke, what is not to be found any more. */
static weft_status retire(int dir_fd, wefti_checkpoint_folder *folder)
{
    char from[WEFTI_CHECKPOINT_FOLDER_BYTES];
    char to[WEFTI_CHECKPOINT_FOLDER_BYTES];
    wefti_checkpoint_folder_name(folder->step, WEFTI_CHECKPOINT_SAVED, 0, from);
    wefti_checkpoint_folder_name(folder->step, WEFTI_CHECKPOINT_OLD, 0, to);
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

/* As rename: 0, or below 0 and errno. */
static int exchange(int dir_fd, const char *from, const char *to, uint64_t step)
{
    if (renameat2(dir_fd, from, dir_fd, to, RENAME_EXCHANGE) == 0) {
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS) {
        return -1;
    }
    /* NFS and ext2 cannot: the former one goes first. */
    wefti_checkpoint_folder former = {.step = step,
                                      .state = WEFTI_CHECKPOINT_SAVED};
    return retire(dir_fd, &former) == WEFT_OK
               ? renameat(dir_fd, from, dir_fd, to)
               : -1;
}

/* The sealed step gets its name, in place of what has it now. */
static weft_status place(const wefti_checkpoint_owner *owner, int dir_fd,
                         const char *dir, uint64_t step)
{
    char from[WEFTI_CHECKPOINT_FOLDER_BYTES];
    char to[WEFTI_CHECKPOINT_FOLDER_BYTES];
    bool taken;
    wefti_checkpoint_folder_name(step, WEFTI_CHECKPOINT_NEW,
                                 owner->origin.session, from);
    wefti_checkpoint_folder_name(step, WEFTI_CHECKPOINT_SAVED, 0, to);
    weft_status status = check_place(owner, dir_fd, dir, step, &taken);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_owner_check(owner);
    }
    if (status == WEFT_OK &&
        (taken ? exchange(dir_fd, from, to, step)
               : renameat(dir_fd, from, dir_fd, to)) != 0) {
        int error = errno; /* has another run taken DIR over, and cleared up? */
        status = wefti_checkpoint_owner_check(owner);
        errno = error;
        status =
            status == WEFT_OK
                ? wefti_error_system("%s/%s: cannot become %s", dir, from, to)
                : status;
    }
    return status == WEFT_OK ? sync_folder(dir_fd, to) : status;
}

/*
 * Whether a folder found beside step is to go. Complete steps of the run come
 * newest first, and room is how many of them may stay yet.
 */
static bool is_over(const wefti_checkpoint_folder *folder,
                    const wefti_checkpoint_owner *owner, uint64_t step,
                    size_t *room)
{
    if (!folder->plain || folder->damaged) {
        return false;
    }
    if (!folder->complete) {
        return true;
    }
    if (folder->done.origin.run != owner->origin.run) {
        return false;
    }
    bool stays = *room > 0 || folder->step >= step;
    *room -= *room > 0;
    return !stays;
}

/*
 * Removes what of a list is over. All that has to vanish is renamed first and
 * the renames made durable, so that no power failure brings a half-removed step
 * back as a complete one.
 */
static weft_status remove_listed(const wefti_checkpoint_owner *owner,
                                 int dir_fd, const char *dir, uint64_t step,
                                 size_t keep, wefti_checkpoint_folder *folders,
                                 size_t count)
{
    weft_status worst = WEFT_OK;
    for (size_t i = 0; i < count; i++) {
        if (folders[i].state == WEFTI_CHECKPOINT_SAVED &&
            is_over(&folders[i], owner, step, &keep)) {
            weft_status status = retire(dir_fd, &folders[i]);
            worst = status != WEFT_OK ? status : worst;
        }
    }
    weft_status durable = sync_folder(dir_fd, dir);
    if (durable != WEFT_OK) {
        return durable;
    }
    /* What cannot be removed keeps nothing else. */
    for (size_t i = 0; i < count; i++) {
        char name[WEFTI_CHECKPOINT_FOLDER_BYTES];
        struct stat what;
        wefti_checkpoint_folder_name(folders[i].step, folders[i].state,
                                     folders[i].session, name);
        if (folders[i].state != WEFTI_CHECKPOINT_SAVED &&
            fstatat(dir_fd, name, &what, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISDIR(what.st_mode)) {
            weft_status status = wefti_checkpoint_folder_remove(dir_fd, name);
            worst = status != WEFT_OK ? status : worst;
        }
    }
    return worst;
}

/* The list comes before the question whose DIR is: see above. */
static weft_status remove_others(const wefti_checkpoint_owner *owner,
                                 int dir_fd, const char *dir, uint64_t step,
                                 size_t keep)
{
    wefti_checkpoint_folder *folders = NULL;
    size_t count = 0;
    weft_status status =
        wefti_checkpoint_folder_scan(dir_fd, dir, &folders, &count);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_owner_check(owner);
    }
    if (status == WEFT_OK) {
        status = remove_listed(owner, dir_fd, dir, step, keep, folders, count);
    }
    free(folders);
    return status;
}

static void warn(const char *dir)
{
    wefti_log(WEFTI_LOG_WARN, 0, "checkpoints in %s: %s", dir,
              weft_error_text());
}

weft_status wefti_checkpoint_commit(const wefti_checkpoint_owner *owner,
                                    const char *dir, uint64_t step, size_t keep)
{
    int dir_fd = -1;
    weft_status status = open_dir(owner, dir, &dir_fd);
    if (status != WEFT_OK) {
        return status;
    }
    status = place(owner, dir_fd, dir, step);
    if (status == WEFT_OK && remove_others(owner, dir_fd, dir, step,
                                           keep > 0 ? keep : 1) != WEFT_OK) {
        warn(dir);
    }
    close(dir_fd);
    return status;
}

void wefti_checkpoint_prune(const wefti_checkpoint_owner *owner,
                            const char *dir, uint64_t step)
{
    struct stat what;
    int dir_fd = -1;
    if (lstat(dir, &what) != 0 && errno == ENOENT) {
        return;
    }
    weft_status status = open_dir(owner, dir, &dir_fd);
    if (status == WEFT_OK) {
        status = remove_others(owner, dir_fd, dir, step, 0);
        close(dir_fd);
    }
    if (status != WEFT_OK) {
        warn(dir);
    }
}

/* All of our folders in dir, none where that does not exist. */
static weft_status scan(const char *dir, wefti_checkpoint_folder **folders_out,
                        size_t *count_out)
{
    int dir_fd = -1;
    *folders_out = NULL;
    *count_out = 0;
    if (access(dir, F_OK) != 0 && errno == ENOENT) {
        return WEFT_OK;
    }
    weft_status status = open_folder(AT_FDCWD, dir, &dir_fd);
    if (status == WEFT_OK) {
        status =
            wefti_checkpoint_folder_scan(dir_fd, dir, folders_out, count_out);
        close(dir_fd);
    }
    return status;
}

weft_status wefti_checkpoint_list(const char *dir, uint64_t **steps_out,
                                  size_t *count_out)
{
    wefti_checkpoint_folder *folders;
    size_t count;
    *steps_out = NULL;
    *count_out = 0;
    weft_status status = scan(dir, &folders, &count);
    uint64_t *steps = count > 0 ? malloc(count * sizeof(*steps)) : NULL;
    if (count > 0 && steps == NULL) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "%s: out of memory", dir);
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

weft_status wefti_checkpoint_find_newest(const char *dir, bool *any_out,
                                         wefti_checkpoint_done *done_out)
{
    wefti_checkpoint_folder *folders;
    size_t count;
    *any_out = false;
    weft_status status = scan(dir, &folders, &count);
    for (size_t i = 0; !*any_out && i < count; i++) {
        if (folders[i].complete || folders[i].damaged) {
            *any_out = true;
            *done_out = (wefti_checkpoint_done){.step = folders[i].step};
            status = wefti_checkpoint_read_done(dir, folders[i].step, done_out);
        }
    }
    free(folders);
    return status;
}
