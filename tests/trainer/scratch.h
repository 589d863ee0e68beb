/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/trainer/scratch.h - a folder of a test's own, gone afterwards.
 */
#ifndef TESTS_TRAINER_SCRATCH_H
#define TESTS_TRAINER_SCRATCH_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct scratch {
    char dir[256];
    char path[512]; /* the last one named */
} scratch;

static inline void scratch_require(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "scratch: %s: %s\n", what, strerror(errno));
        abort();
    }
}

/* In memory where there is such a place: a busy disk would slow each fsync. */
static inline void scratch_open(scratch *own)
{
    const char *top = getenv("TMPDIR");
    if (top == NULL) {
        top = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
    }
    snprintf(own->dir, sizeof(own->dir), "%s/weft-test-XXXXXX", top);
    scratch_require(mkdtemp(own->dir) != NULL, own->dir);
}

static inline int scratch_remove_one(const char *path, const struct stat *what,
                                     int kind, struct FTW *where)
{
    (void)what;
    (void)kind;
    (void)where;
    return remove(path);
}

static inline void scratch_close(scratch *own)
{
    nftw(own->dir, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Set up and torn down around a test of cmocka: *state is the folder. */
static inline int scratch_set_up(void **state)
{
    scratch *own = calloc(1, sizeof(*own));
    scratch_require(own != NULL, "memory");
    scratch_open(own);
    *state = own;
    return 0;
}

static inline int scratch_tear_down(void **state)
{
    scratch_close(*state);
    free(*state);
    return 0;
}

/* All files of a folder by another folder too. */
static inline void scratch_link_all(const char *from, const char *to)
{
    DIR *folder = opendir(from);
    scratch_require(folder != NULL, from);
    for (struct dirent *item; (item = readdir(folder)) != NULL;) {
        char old_path[768], new_path[768];
        snprintf(old_path, sizeof(old_path), "%.500s/%.200s", from,
                 item->d_name);
        snprintf(new_path, sizeof(new_path), "%.500s/%.200s", to, item->d_name);
        scratch_require(item->d_name[0] == '.' || link(old_path, new_path) == 0,
                        new_path);
    }
    closedir(folder);
}

/* DIR/name, valid until the next call. */
static inline const char *scratch_path(scratch *own, const char *name)
{
    snprintf(own->path, sizeof(own->path), "%.250s/%.250s", own->dir, name);
    return own->path;
}

static inline void scratch_folder(scratch *own, const char *name)
{
    scratch_require(mkdir(scratch_path(own, name), 0700) == 0, name);
}

static inline void scratch_write(scratch *own, const char *name,
                                 const void *bytes, size_t count)
{
    FILE *file = fopen(scratch_path(own, name), "wb");
    scratch_require(file != NULL, name);
    scratch_require(fwrite(bytes, 1, count, file) == count, name);
    scratch_require(fclose(file) == 0, name);
}

static inline void scratch_text(scratch *own, const char *name,
                                const char *text)
{
    scratch_write(own, name, text, strlen(text));
}

#endif
