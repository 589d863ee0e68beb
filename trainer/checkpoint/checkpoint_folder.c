/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint_folder.c - names, listing and removal of
 * folders.
 */
#include "trainer/checkpoint/checkpoint_folder.h"

#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void wefti_checkpoint_folder_name(uint64_t step, wefti_checkpoint_state state,
                                  char name[WEFTI_CHECKPOINT_FOLDER_BYTES])
{
    static const char *const ends[] = {".new", "", ".old"};
    snprintf(name, WEFTI_CHECKPOINT_FOLDER_BYTES, "%sstep_%08" PRIu64 "%s",
             state == WEFTI_CHECKPOINT_SAVED ? "" : ".", step, ends[state]);
}

/* Whether name is exactly what wefti_checkpoint_folder_name writes. */
static bool parse(const char *name, wefti_checkpoint_folder *folder_out)
{
    const char *digits = name + (name[0] == '.' ? 1 : 0);
    char again[WEFTI_CHECKPOINT_FOLDER_BYTES];
    if (strncmp(digits, "step_", 5) != 0) {
        return false;
    }
    folder_out->step = strtoull(digits + 5, NULL, 10);
    for (int state = 0; state <= WEFTI_CHECKPOINT_OLD; state++) {
        folder_out->state = (wefti_checkpoint_state)state;
        wefti_checkpoint_folder_name(folder_out->step, folder_out->state,
                                     again);
        if (strcmp(again, name) == 0) {
            return true;
        }
    }
    return false;
}

weft_status wefti_checkpoint_path(const char *dir, uint64_t step,
                                  wefti_checkpoint_state state, uint32_t rank,
                                  char *path_out)
{
    char folder[WEFTI_CHECKPOINT_FOLDER_BYTES];
    wefti_checkpoint_folder_name(step, state, folder);
    int length = snprintf(path_out, WEFTI_CHECKPOINT_PATH_BYTES,
                          "%s/%s/rank_%05" PRIu32 ".weft", dir, folder, rank);
    if (length < 0 || length >= WEFTI_CHECKPOINT_PATH_BYTES) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%.200s...: allowed are paths of up to %d bytes",
                           dir, WEFTI_CHECKPOINT_PATH_BYTES - 1);
    }
    return WEFT_OK;
}

int wefti_checkpoint_folder_done(uint64_t step, uint32_t nranks, char *text)
{
    return snprintf(text, WEFTI_CHECKPOINT_DONE_BYTES,
                    "step %" PRIu64 ", ranks %" PRIu32 "\n", step, nranks);
}

/* What the file holds; 0 bytes where it is no file or longer than text. */
static size_t read_done(int dir_fd, const char *path, char *text, size_t room)
{
    struct stat what;
    size_t bytes = 0;
    int fd =
        openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return 0;
    }
    if (fstat(fd, &what) == 0 && S_ISREG(what.st_mode) &&
        what.st_size < (off_t)room) {
        ssize_t got = read(fd, text, room);
        bytes = got > 0 ? (size_t)got : 0;
    }
    close(fd);
    return bytes;
}

bool wefti_checkpoint_folder_complete(int dir_fd, const char *name)
{
    char path[NAME_MAX + 1 + sizeof(WEFTI_CHECKPOINT_DONE)];
    char text[WEFTI_CHECKPOINT_DONE_BYTES + 1] = "";
    char wanted[WEFTI_CHECKPOINT_DONE_BYTES];
    wefti_checkpoint_folder folder;
    snprintf(path, sizeof(path), "%s/" WEFTI_CHECKPOINT_DONE, name);
    size_t bytes =
        read_done(dir_fd, path, text, (size_t)WEFTI_CHECKPOINT_DONE_BYTES);
    const char *ranks = strstr(text, "ranks ");
    if (!parse(name, &folder) || ranks == NULL) {
        return false;
    }
    uint32_t nranks = (uint32_t)strtoul(ranks + 6, NULL, 10);
    int length = wefti_checkpoint_folder_done(folder.step, nranks, wanted);
    return bytes == (size_t)length && memcmp(text, wanted, bytes) == 0;
}

/* A list of what is in the folder name of at_fd. */
static weft_status open_list(int at_fd, const char *name, DIR **list_out)
{
    int fd = openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
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
        one.complete = one.state == WEFTI_CHECKPOINT_SAVED &&
                       wefti_checkpoint_folder_complete(dir_fd, entry->d_name);
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

static bool is_our_file(const char *name)
{
    size_t length = strlen(name);
    return strcmp(name, WEFTI_CHECKPOINT_DONE) == 0 ||
           (length > 10 && strncmp(name, "rank_", 5) == 0 &&
            strcmp(name + length - 5, ".weft") == 0);
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
