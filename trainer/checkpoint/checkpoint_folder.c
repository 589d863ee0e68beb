/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint_folder.c - names, listing and removal of
 * folders.
 */
#include "trainer/checkpoint/checkpoint_folder.h"

#include "base/error.h"
#include "trainer/checkpoint/checkpoint_index.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void wefti_checkpoint_folder_name(uint64_t step, wefti_checkpoint_state state,
                                  uint64_t session,
                                  char name[WEFTI_CHECKPOINT_FOLDER_BYTES])
{
    char end[32] = "";
    if (state == WEFTI_CHECKPOINT_NEW) {
        snprintf(end, sizeof(end), ".%016" PRIx64 ".new", session);
    } else if (state == WEFTI_CHECKPOINT_OLD) {
        snprintf(end, sizeof(end), ".old");
    }
    snprintf(name, WEFTI_CHECKPOINT_FOLDER_BYTES, "%sstep_%08" PRIu64 "%s",
             state == WEFTI_CHECKPOINT_SAVED ? "" : ".", step, end);
}

/* Whether name is exactly what wefti_checkpoint_folder_name writes. */
static bool parse(const char *name, wefti_checkpoint_folder *folder_out)
{
    const char *digits = name + (name[0] == '.' ? 1 : 0);
    char again[WEFTI_CHECKPOINT_FOLDER_BYTES];
    char *end;
    if (strncmp(digits, "step_", 5) != 0) {
        return false;
    }
    folder_out->step = strtoull(digits + 5, &end, 10);
    folder_out->session = *end == '.' ? strtoull(end + 1, NULL, 16) : 0;
    for (int state = 0; state <= WEFTI_CHECKPOINT_OLD; state++) {
        folder_out->state = (wefti_checkpoint_state)state;
        wefti_checkpoint_folder_name(folder_out->step, folder_out->state,
                                     folder_out->session, again);
        if (strcmp(again, name) == 0) {
            return true;
        }
    }
    return false;
}

weft_status wefti_checkpoint_path(const char *dir, uint64_t step,
                                  wefti_checkpoint_state state,
                                  uint64_t session, const char *name,
                                  char *path_out)
{
    char folder[WEFTI_CHECKPOINT_FOLDER_BYTES];
    wefti_checkpoint_folder_name(step, state, session, folder);
    int length = snprintf(path_out, WEFTI_CHECKPOINT_PATH_BYTES, "%s/%s%s%s",
                          dir, folder, name[0] ? "/" : "", name);
    return length > 0 && length < WEFTI_CHECKPOINT_PATH_BYTES
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "%.200s...: allowed are paths of up to %d bytes",
                             dir, WEFTI_CHECKPOINT_PATH_BYTES - 1);
}

int wefti_checkpoint_done_pack(const wefti_checkpoint_done *done, char *text)
{
    char hex[WEFTI_CHECKPOINT_HEX_BYTES];
    sodium_bin2hex(hex, sizeof(hex), done->index_digest,
                   sizeof(done->index_digest));
    return snprintf(text, WEFTI_CHECKPOINT_DONE_BYTES,
                    "step %" PRIu64 ", ranks %" PRIu64 ", run %016" PRIx64
                    ", session %016" PRIx64 ", index %s\n",
                    done->step, done->nranks, done->origin.run,
                    done->origin.session, hex);
}

/* The number behind name; 0: there is none. */
static uint64_t read_number(const char *text, const char *name, int base)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, base) : 0;
}

/* Whether text is exactly what wefti_checkpoint_done_pack writes. */
static bool unpack_done(const char *text, size_t bytes, uint64_t step,
                        wefti_checkpoint_done *done_out)
{
    char again[WEFTI_CHECKPOINT_DONE_BYTES];
    *done_out = (wefti_checkpoint_done){
        .step = step,
        .nranks = read_number(text, "ranks ", 10),
        .origin = {.run = read_number(text, "run ", 16),
                   .session = read_number(text, "session ", 16)}};
    const char *index = strstr(text, "index ");
    if (index) {
        (void)sodium_hex2bin(done_out->index_digest,
                             sizeof(done_out->index_digest), index + 6,
                             strcspn(index + 6, "\n"), NULL, NULL, NULL);
    }
    int length = wefti_checkpoint_done_pack(done_out, again);
    return done_out->nranks > 0 && bytes == (size_t)length &&
           memcmp(text, again, bytes) == 0;
}

/* Whether a folder has files as they were before there was an index. */
static bool is_of_buckets(int dir_fd, const char *name)
{
    char path[WEFTI_CHECKPOINT_FOLDER_BYTES + 32];
    snprintf(path, sizeof(path), "%s/rank_00000.weft", name);
    return faccessat(dir_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/*
 * Reads DONE of a folder of dir_fd. Returns OK | ERR_SYSTEM (errno ENOENT:
 * there is none) | ERR_INVALID.
 */
static weft_status read_done(int dir_fd, const char *dir,
                             const wefti_checkpoint_folder *folder,
                             wefti_checkpoint_done *done_out)
{
    char name[WEFTI_CHECKPOINT_FOLDER_BYTES];
    char path[WEFTI_CHECKPOINT_FOLDER_BYTES + sizeof(WEFTI_CHECKPOINT_DONE)];
    char text[WEFTI_CHECKPOINT_DONE_BYTES + 1] = "";
    struct stat what;
    wefti_checkpoint_folder_name(folder->step, folder->state, 0, name);
    snprintf(path, sizeof(path), "%s/" WEFTI_CHECKPOINT_DONE, name);
    int fd =
        openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return wefti_error_system("%s/%s: cannot be read", dir, path);
    }
    ssize_t got = -1;
    if (fstat(fd, &what) == 0 && S_ISREG(what.st_mode)) {
        got = read(fd, text, WEFTI_CHECKPOINT_DONE_BYTES);
    }
    close(fd);
    if (is_of_buckets(dir_fd, name)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s/%s: was written by an older version of weft, "
                           "which alone reads it: let that one write it with "
                           "--export-hf, and begin here with --import-hf",
                           dir, name);
    }
    return got >= 0 && unpack_done(text, (size_t)got, folder->step, done_out)
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "%s/%s: does not say that its step is complete: "
                             "damaged, or of another version of weft",
                             dir, path);
}

weft_status wefti_checkpoint_read_done(const char *dir, uint64_t step,
                                       wefti_checkpoint_done *done_out)
{
    const wefti_checkpoint_folder folder = {.step = step,
                                            .state = WEFTI_CHECKPOINT_SAVED};
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        return wefti_error_system("%s: cannot be opened", dir);
    }
    weft_status status = read_done(dir_fd, dir, &folder, done_out);
    close(dir_fd);
    return status;
}

/* The facts of a folder that its name does not state. */
static void inspect_folder(int dir_fd, const char *dir, const char *name,
                           wefti_checkpoint_folder *folder)
{
    struct stat what;
    folder->plain = fstatat(dir_fd, name, &what, AT_SYMLINK_NOFOLLOW) == 0 &&
                    S_ISDIR(what.st_mode);
    if (folder->state == WEFTI_CHECKPOINT_SAVED) {
        weft_status status = read_done(dir_fd, dir, folder, &folder->done);
        folder->complete = status == WEFT_OK;
        folder->damaged =
            status == WEFT_ERR_INVALID ||
            (status == WEFT_ERR_SYSTEM && errno != ENOENT && errno != ENOTDIR);
    }
}

/* A list of what is in the folder name of at_fd. */
static weft_status open_list(int at_fd, const char *name, DIR **list_out)
{
    int fd =
        openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    *list_out = fd < 0 ? NULL : fdopendir(fd);
    if (*list_out != NULL) {
        return WEFT_OK;
    }
    weft_status status = wefti_error_system("%s: cannot be listed", name);
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

static int newest_first(const void *a, const void *b)
{
    uint64_t left = ((const wefti_checkpoint_folder *)a)->step;
    uint64_t right = ((const wefti_checkpoint_folder *)b)->step;
    return (left < right) - (left > right);
}

/* Appends one to the list, which grows by doubling. */
static bool append(wefti_checkpoint_folder **folders, size_t *count,
                   const wefti_checkpoint_folder *one)
{
    bool full = (*count & (*count - 1)) == 0; /* 0 or a power of two */
    if (full) {
        size_t room = *count == 0 ? 1 : 2 * *count;
        wefti_checkpoint_folder *wider =
            realloc(*folders, room * sizeof(*wider));
        if (wider == NULL) {
            return false;
        }
        *folders = wider;
    }
    (*folders)[(*count)++] = *one;
    return true;
}

weft_status wefti_checkpoint_folder_scan(int dir_fd, const char *dir,
                                         wefti_checkpoint_folder **folders_out,
                                         size_t *count_out)
{
    DIR *list = NULL;
    weft_status status = open_list(dir_fd, ".", &list);
    *folders_out = NULL;
    *count_out = 0;
    if (status != WEFT_OK) {
        return status;
    }
    errno = 0;
    for (struct dirent *entry = readdir(list); entry != NULL;
         errno = 0, entry = readdir(list)) {
        wefti_checkpoint_folder one = {0};
        if (!parse(entry->d_name, &one)) {
            continue;
        }
        inspect_folder(dir_fd, dir, entry->d_name, &one);
        if (!append(folders_out, count_out, &one)) {
            errno = ENOMEM;
            break;
        }
    }
    if (errno != 0) {
        status = wefti_error_system("%s: cannot be listed", dir);
        free(*folders_out);
        *folders_out = NULL;
        *count_out = 0;
    } else if (*count_out > 0) {
        qsort(*folders_out, *count_out, sizeof(**folders_out), newest_first);
    }
    closedir(list);
    return status;
}

/* What may be removed; rank_NNNNN.weft was in steps of earlier versions. */
static bool is_our_file(const char *name)
{
    int end = 0;
    if (sscanf(name, "rank_%*5[0-9].weft%n", &end) == 0 && end > 0 &&
        name[end] == '\0') {
        return true;
    }
    char again[WEFTI_CHECKPOINT_FILE_BYTES];
    wefti_checkpoint_file_name(
        strncmp(name, "rank_", 5) == 0 ? strtoull(name + 5, NULL, 10) : 0,
        again);
    return strcmp(name, WEFTI_CHECKPOINT_DONE) == 0 ||
           strcmp(name, WEFTI_CHECKPOINT_INDEX) == 0 ||
           strcmp(name, again) == 0;
}

weft_status wefti_checkpoint_folder_remove(int dir_fd, const char *name)
{
    DIR *list = NULL;
    weft_status status = open_list(dir_fd, name, &list);
    if (status != WEFT_OK) {
        return status;
    }
    for (struct dirent *entry = readdir(list); entry != NULL;
         entry = readdir(list)) {
        if (is_our_file(entry->d_name) &&
            unlinkat(dirfd(list), entry->d_name, 0) != 0) {
            status = wefti_error_system("%s/%s: cannot be removed", name,
                                        entry->d_name);
        }
    }
    closedir(list);
    if (status == WEFT_OK && unlinkat(dir_fd, name, AT_REMOVEDIR) != 0) {
        status = wefti_error_system("%s: cannot be removed", name);
    }
    return status;
}
