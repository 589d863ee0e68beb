/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/run_folder.c - the folders of runs in one checkpoint.dir.
 */
#include "trainer/checkpoint/run_folder.h"

#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NUMBER_MOST = 99999, NAME_BYTES = 16 };

static void make_name(uint32_t number, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "run_%05" PRIu32, number % (NUMBER_MOST + 1));
}

weft_status wefti_run_folder_path(const char *dir, uint32_t number, char *path)
{
    char name[NAME_BYTES];
    make_name(number, name);
    int length = snprintf(path, WEFTI_CHECKPOINT_PATH_BYTES, "%s%s%s", dir,
                          number > 1 ? "/" : "", number > 1 ? name : "");
    return length > 0 && length < WEFTI_CHECKPOINT_PATH_BYTES
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "%.200s...: allowed are paths of 1 to %d bytes",
                             dir, WEFTI_CHECKPOINT_PATH_BYTES - 1);
}

weft_status wefti_run_folder_newest(const char *dir, uint32_t *number_out)
{
    DIR *list = opendir(dir);
    *number_out = 1;
    if (!list) {
        return errno == ENOENT
                   ? WEFT_OK
                   : wefti_error_system("%s: cannot be opened", dir);
    }
    const struct dirent *entry;
    while ((entry = readdir(list)) != NULL) {
        char name[NAME_BYTES];
        struct stat what;
        const char *at = entry->d_name;
        uint32_t number = strncmp(at, "run_", 4) == 0
                              ? (uint32_t)strtoul(at + 4, NULL, 10)
                              : 0;
        make_name(number, name);
        if (number > *number_out && strcmp(name, at) == 0 &&
            fstatat(dirfd(list), at, &what, 0) == 0 && S_ISDIR(what.st_mode)) {
            *number_out = number;
        }
    }
    closedir(list);
    return WEFT_OK;
}

static bool is_same(const char *one, const char *other)
{
    struct stat a, b;
    return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

weft_status wefti_run_folder_is_used(const char *path, bool *used_out)
{
    char inside[WEFTI_CHECKPOINT_PATH_BYTES + 16];
    wefti_checkpoint_done done;
    weft_status status = wefti_checkpoint_find_newest(path, used_out, &done);
    if (status == WEFT_OK && !*used_out) {
        snprintf(inside, sizeof(inside), "%s/inside", path);
        status = wefti_checkpoint_find_newest(inside, used_out, &done);
    }
    return status == WEFT_ERR_INVALID && *used_out ? WEFT_OK : status;
}

/* The one that is resumed, where DIR has it; 0: it does not. */
static weft_status find_resumed(const char *dir, const char *resumed,
                                uint32_t newest, uint32_t *number_out)
{
    char path[WEFTI_CHECKPOINT_PATH_BYTES];
    weft_status status = WEFT_OK;
    *number_out = 0;
    for (uint32_t i = 1; resumed && i <= newest && status == WEFT_OK; i++) {
        status = wefti_run_folder_path(dir, i, path);
        if (status == WEFT_OK && is_same(path, resumed)) {
            *number_out = i;
            break;
        }
    }
    return status;
}

/* Takes the folder of that number, and says whether it has steps of others. */
static weft_status try_take(wefti_checkpoint_owner *owner, const char *dir,
                            uint32_t number, bool *used_out)
{
    char path[WEFTI_CHECKPOINT_PATH_BYTES];
    weft_status status = wefti_run_folder_path(dir, number, path);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_make_folders(path);
    }
    if (status == WEFT_OK) {
        status = wefti_checkpoint_owner_open(owner, path);
    }
    return status == WEFT_OK ? wefti_run_folder_is_used(path, used_out)
                             : status;
}

weft_status wefti_run_folder_take(wefti_checkpoint_owner *owner,
                                  const char *dir, const char *resumed,
                                  uint32_t *number_out)
{
    const uint64_t run = owner->origin.run;
    uint32_t newest = 1, number = 0;
    bool used = false;
    weft_status status = wefti_run_folder_newest(dir, &newest);
    if (status == WEFT_OK) {
        status = find_resumed(dir, resumed, newest, &number);
    }
    bool resumes = number > 0;
    if (status == WEFT_OK) {
        status = try_take(owner, dir, resumes ? number : 1, &used);
    }
    number = resumes ? number : 1;
    /* DIR's own, then the newest, then a new one: none may be in use. */
    while (status == WEFT_OK && used && !resumes) {
        wefti_run_folder_leave(owner, number);
        owner->origin.run = run;
        number = number < newest ? newest : number + 1;
        status = number > NUMBER_MOST
                     ? wefti_error(WEFT_ERR_INVALID,
                                   "%s: holds %d runs: name another folder",
                                   dir, NUMBER_MOST)
                     : try_take(owner, dir, number, &used);
    }
    *number_out = number;
    return status;
}

void wefti_run_folder_leave(wefti_checkpoint_owner *owner, uint32_t number)
{
    bool held = owner->holds;
    wefti_checkpoint_owner_close(owner);
    if (held && number > 1) {
        (void)rmdir(owner->dir); /* which fails unless it is empty */
    }
}
