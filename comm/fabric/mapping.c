/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/mapping.c - a list of the process's mappings with their users.
 */
#include "comm/fabric/mapping.h"

#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

struct wefti_mapping {
    wefti_mapping *next;
    void *base;
    size_t bytes;
    dev_t device;
    ino_t inode;
    uint64_t offset;
    int users;
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static wefti_mapping *list;

/* Caller holds list_lock. */
static wefti_mapping *find(const struct stat *file, uint64_t offset,
                           size_t bytes)
{
    for (wefti_mapping *known = list; known; known = known->next) {
        if (known->inode == file->st_ino && known->device == file->st_dev &&
            known->offset == offset && known->bytes == bytes) {
            return known;
        }
    }
    return NULL;
}

/* Address space is what is scarce: the pages come when they are touched. */
static weft_status refuse(size_t bytes)
{
    const int failure = errno;
    struct rlimit limit;
    if (failure == ENOMEM && getrlimit(RLIMIT_AS, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "cannot map %zu bytes of shared memory: the limit "
                           "on address space (RLIMIT_AS, ulimit -v) is %llu "
                           "bytes: raise it by as much, or to unlimited",
                           bytes, (unsigned long long)limit.rlim_cur);
    }
    errno = failure;
    return wefti_error_system("cannot map %zu bytes of shared memory (mmap)",
                              bytes);
}

static weft_status map_new(int memory_fd, const struct stat *file,
                           uint64_t offset, size_t bytes,
                           wefti_mapping **mapping_out)
{
    wefti_mapping *mapping = calloc(1, sizeof(*mapping));
    if (!mapping) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a mapping");
    }
    int kind = memory_fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    mapping->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         kind | MAP_NORESERVE, memory_fd, (off_t)offset);
    if (mapping->base == MAP_FAILED) {
        free(mapping);
        return refuse(bytes);
    }
    mapping->bytes = bytes;
    mapping->users = 1;
    mapping->offset = offset;
    if (file) {
        mapping->device = file->st_dev;
        mapping->inode = file->st_ino;
        mapping->next = list;
        list = mapping;
    }
    *mapping_out = mapping;
    return WEFT_OK;
}

weft_status wefti_mapping_open(int memory_fd, uint64_t offset, size_t bytes,
                               wefti_mapping **mapping_out)
{
    if (memory_fd < 0) {
        return map_new(memory_fd, NULL, 0, bytes, mapping_out);
    }
    struct stat file;
    if (fstat(memory_fd, &file) != 0) {
        return wefti_error_system("cannot examine the shared memory (fstat)");
    }
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&list_lock);
    wefti_mapping *known = find(&file, offset, bytes);
    if (known) {
        known->users++;
        *mapping_out = known;
    } else {
        status = map_new(memory_fd, &file, offset, bytes, mapping_out);
    }
    pthread_mutex_unlock(&list_lock);
    return status;
}

wefti_mapping *wefti_mapping_retain(wefti_mapping *mapping)
{
    pthread_mutex_lock(&list_lock);
    mapping->users++;
    pthread_mutex_unlock(&list_lock);
    return mapping;
}

void wefti_mapping_close(wefti_mapping *mapping)
{
    if (!mapping) {
        return;
    }
    pthread_mutex_lock(&list_lock);
    int users = --mapping->users;
    if (users == 0) {
        for (wefti_mapping **link = &list; *link; link = &(*link)->next) {
            if (*link == mapping) {
                *link = mapping->next;
                break;
            }
        }
    }
    pthread_mutex_unlock(&list_lock);
    if (users == 0) {
        munmap(mapping->base, mapping->bytes);
        free(mapping);
    }
}

void *wefti_mapping_get_base(const wefti_mapping *mapping)
{
    return mapping->base;
}
