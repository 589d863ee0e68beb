/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/mapping.c - a list of the process's mappings with their users.
 */
#include "comm/fabric/mapping.h"

#include "base/check.h"
#include "base/error.h"
#include "device/device.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { DEVICE_KINDS = 4 }; /* at most, of all that a build knows */

/* The mapping is known to a kind of device: memory is pinned once for all of
 * them in a process. */
typedef struct pin {
    const char *kind;
    weft_device *device; /* that knows it, if it has not refused */
    int users;           /* 0: the place is free */
} pin;

struct wefti_mapping {
    wefti_mapping *next;
    pin pins[DEVICE_KINDS];
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

size_t wefti_mapping_get_bytes(const wefti_mapping *mapping)
{
    return mapping->bytes;
}

/* Caller holds list_lock. The pin of the device's kind, or else a free one. */
static pin *find_pin(wefti_mapping *mapping, const char *kind)
{
    pin *unused = NULL;
    for (int i = 0; i < DEVICE_KINDS; i++) {
        pin *each = &mapping->pins[i];
        if (each->users && strcmp(each->kind, kind) == 0) {
            return each;
        }
        unused = each->users ? unused : each;
    }
    WEFTI_ASSERT(unused);
    return unused;
}

/* Counts a user in. Returns the pin for its first, else NULL. */
static pin *enter_pin(wefti_mapping *mapping, const char *kind)
{
    pthread_mutex_lock(&list_lock);
    pin *entered = find_pin(mapping, kind);
    const bool first = !entered->users;
    if (first) {
        *entered = (pin){.kind = kind};
    }
    entered->users++;
    pthread_mutex_unlock(&list_lock);
    return first ? entered : NULL;
}

weft_status wefti_mapping_pin(wefti_mapping *mapping, weft_device *device)
{
    const char *kind = wefti_device_get_table(device)->kind;
    pin *fresh = enter_pin(mapping, kind);
    if (!fresh) {
        return WEFT_OK;
    }
    /* By a handle of its own, for the caller's may be closed before the last
     * user goes; and not under the lock, for a device may take its time. */
    weft_device *own;
    weft_status status =
        weft_device_open(kind, wefti_device_get_index(device), &own);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_device_register(own, mapping->base, mapping->bytes);
    if (status != WEFT_OK) {
        weft_device_close(own);
        return status;
    }
    fresh->device = own; /* read after the last unpin, of which ours is one */
    return WEFT_OK;
}

void wefti_mapping_unpin(wefti_mapping *mapping, const weft_device *device)
{
    weft_device *known = NULL;
    pthread_mutex_lock(&list_lock);
    pin *left = find_pin(mapping, wefti_device_get_table(device)->kind);
    WEFTI_ASSERT(left->users > 0); /* else it was another rank's */
    if (--left->users == 0) {
        known = left->device;
    }
    pthread_mutex_unlock(&list_lock);
    if (known) {
        weft_device_unregister(known, mapping->base);
        weft_device_close(known);
    }
}
