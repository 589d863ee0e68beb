/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/mapping.c - a list of the process's mappings with their users.
 */
#include "comm/fabric/mapping.h"

#include "base/error.h"
#include "device/device.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* The mapping is known to a kind of device: memory is pinned once for all of
 * them in a process. */
typedef struct pin {
    struct pin *next;
    const wefti_device_table *kind;
    weft_device *device; /* that knows it, if it has not refused */
    int users;
    bool known; /* the device has not refused */
} pin;

struct wefti_mapping {
    wefti_mapping *next;
    pin *pins;
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

/* Caller holds list_lock. */
static pin **find_pin(wefti_mapping *mapping, const weft_device *device)
{
    pin **link = &mapping->pins;
    while (*link && (*link)->kind != wefti_device_get_table(device)) {
        link = &(*link)->next;
    }
    return link;
}

/* Counts a user in; true: it is the first, and fresh is now listed. */
static bool enter_pin(wefti_mapping *mapping, const weft_device *device,
                      pin *fresh)
{
    pthread_mutex_lock(&list_lock);
    pin **link = find_pin(mapping, device);
    const bool first = !*link;
    if (first) {
        *fresh = (pin){.kind = wefti_device_get_table(device)};
        *link = fresh;
    }
    (*link)->users++;
    pthread_mutex_unlock(&list_lock);
    return first;
}

weft_status wefti_mapping_pin(wefti_mapping *mapping, weft_device *device)
{
    pin *fresh = malloc(sizeof(*fresh));
    if (!fresh) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a mapping");
    }
    if (!enter_pin(mapping, device, fresh)) {
        free(fresh);
        return WEFT_OK;
    }
    /* By a handle of its own, for the caller's may be closed before the last
     * user goes; and not under the lock, for a device may take its time. */
    weft_device *own;
    weft_status status = weft_device_open(wefti_device_get_table(device)->kind,
                                          wefti_device_get_index(device), &own);
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
    pthread_mutex_lock(&list_lock);
    pin **link = find_pin(mapping, device);
    pin *last = *link && --(*link)->users == 0 ? *link : NULL;
    if (last) {
        *link = last->next;
    }
    pthread_mutex_unlock(&list_lock);
    if (last && last->device) {
        weft_device_unregister(last->device, mapping->base);
        weft_device_close(last->device);
    }
    free(last);
}
