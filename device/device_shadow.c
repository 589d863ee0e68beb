/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/device_shadow.c - a device for tests: the host's streams, and memory
 * that faults when the host touches it, as a GPU's does.
 *
 * One anonymous file is mapped twice. Device pointers are addresses of the
 * first mapping, which nobody may read or write; the work of the device goes
 * through the second, at the same offset.
 *
 *      pointers  |--A--|.|---B---|.|-C-|........|   PROT_NONE
 *                   \        \       \
 *      file      |--A--| |---B---| |-C-|            pages as they are touched
 *                   /        /       /
 *      alias     |--A--| |---B---| |-C-|        |   read and write
 *
 * Allocations are whole pages with an unused one between, so that a step over
 * the end is found too.
 */
#include "base/check.h"
#include "base/error.h"
#include "device/host_stream.h"
#include "device/object.h"
#include "device/shadow.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Address space only: pages come with the first touch. */
#define SPACE_BYTES ((size_t)16 << 30)

enum { PAGE_BYTES = 4096 };

typedef struct extent {
    size_t offset, bytes; /* bytes as asked for */
} extent;

typedef struct shadow {
    int file;
    char *pointers, *alias;
    pthread_mutex_t lock; /* guards what follows */
    extent *extents;      /* [capacity], count of them used, by offset */
    size_t count, capacity;
} shadow;

static size_t to_pages(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* The first offset behind an extent and its unused page. */
static size_t end_of(const extent *used)
{
    return used->offset + to_pages(used->bytes ? used->bytes : 1) + PAGE_BYTES;
}

/* Whether an address is in the reservation at all. */
static bool is_inside(const shadow *own, const void *pointer)
{
    return (uintptr_t)pointer - (uintptr_t)own->pointers < SPACE_BYTES;
}

/* The extent that holds offset (a start counts even if empty), or NULL. */
static const extent *find_locked(const shadow *own, size_t offset)
{
    size_t low = 0, high = own->count; /* extents before low start <= offset */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (own->extents[middle].offset <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const extent *last = low ? &own->extents[low - 1] : NULL;
    return last && (offset == last->offset ||
                    offset - last->offset < last->bytes)
               ? last
               : NULL;
}

static weft_status map_twice(shadow *own)
{
    if (ftruncate(own->file, (off_t)SPACE_BYTES) != 0) {
        return wefti_error_system("shadow device: ftruncate");
    }
    void *pointers =
        mmap(NULL, SPACE_BYTES, PROT_NONE, MAP_SHARED, own->file, 0);
    if (pointers == MAP_FAILED) {
        return wefti_error_system("shadow device: mmap of %zu bytes",
                                  SPACE_BYTES);
    }
    void *alias = mmap(NULL, SPACE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                       own->file, 0);
    if (alias == MAP_FAILED) {
        weft_status status = wefti_error_system(
            "shadow device: second mmap of %zu bytes", SPACE_BYTES);
        munmap(pointers, SPACE_BYTES);
        return status;
    }
    madvise(alias, SPACE_BYTES, MADV_DONTDUMP);
    own->pointers = pointers;
    own->alias = alias;
    return WEFT_OK;
}

static weft_status shadow_open(weft_device *device, int index)
{
    weft_status status;
    if (index != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "index %d of a shadow device: allowed is 0", index);
    }
    shadow *own = calloc(1, sizeof(*own));
    if (!own) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a device");
    }
    own->file = memfd_create("weft-shadow", MFD_CLOEXEC);
    if (own->file < 0) {
        status = wefti_error_system("shadow device: memfd_create");
        goto err_free;
    }
    status = map_twice(own);
    if (status < 0) {
        goto err_close;
    }
    pthread_mutex_init(&own->lock, NULL);
    device->own = own;
    return WEFT_OK;

err_close:
    close(own->file);
err_free:
    free(own);
    return status;
}

static void shadow_close(weft_device *device)
{
    shadow *own = device->own;
    munmap(own->alias, SPACE_BYTES);
    munmap(own->pointers, SPACE_BYTES);
    close(own->file);
    pthread_mutex_destroy(&own->lock);
    free(own->extents);
    free(own);
}

static weft_status make_room_locked(shadow *own)
{
    if (own->count < own->capacity) {
        return WEFT_OK;
    }
    size_t capacity = own->capacity ? 2 * own->capacity : 16;
    extent *extents = realloc(own->extents, capacity * sizeof(*extents));
    if (!extents) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for the list of %zu allocations",
                           capacity);
    }
    own->extents = extents;
    own->capacity = capacity;
    return WEFT_OK;
}

/* First fit; where there is no room, ERR_NO_MEMORY. */
static weft_status place_locked(shadow *own, size_t bytes, size_t *offset_out)
{
    extent wanted = {0, bytes};
    weft_status status = make_room_locked(own);
    if (status < 0) {
        return status;
    }
    size_t index = 0;
    while (index < own->count && end_of(&wanted) > own->extents[index].offset) {
        wanted.offset = end_of(&own->extents[index++]);
    }
    if (end_of(&wanted) > SPACE_BYTES) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no room for %zu bytes on the shadow device", bytes);
    }
    memmove(&own->extents[index + 1], &own->extents[index],
            (own->count - index) * sizeof(*own->extents));
    own->extents[index] = wanted;
    own->count++;
    *offset_out = wanted.offset;
    return WEFT_OK;
}

static weft_status shadow_mem_alloc(weft_device *device, weft_memory_kind kind,
                                    size_t bytes, void **out)
{
    shadow *own = device->own;
    size_t offset = 0;
    if (kind != WEFT_MEMORY_DEVICE) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "kind %d: the shadow device has its own memory only",
                           (int)kind);
    }
    if (bytes > SPACE_BYTES) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "%zu bytes: the shadow device has %zu", bytes,
                           SPACE_BYTES);
    }
    pthread_mutex_lock(&own->lock);
    weft_status status = place_locked(own, bytes, &offset);
    pthread_mutex_unlock(&own->lock);
    if (status == WEFT_OK) {
        *out = own->pointers + offset;
    }
    return status;
}

static bool shadow_mem_free(weft_device *device, void *pointer)
{
    shadow *own = device->own;
    size_t offset = (size_t)((char *)pointer - own->pointers);
    pthread_mutex_lock(&own->lock);
    const extent *found =
        is_inside(own, pointer) ? find_locked(own, offset) : NULL;
    if (!found || found->offset != offset) {
        pthread_mutex_unlock(&own->lock);
        return false;
    }
    /* The pages go back; whoever gets the place next finds zeros. */
    fallocate(own->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              (off_t)offset, (off_t)(end_of(found) - offset));
    size_t index = (size_t)(found - own->extents);
    own->count--;
    memmove(&own->extents[index], &own->extents[index + 1],
            (own->count - index) * sizeof(*own->extents));
    pthread_mutex_unlock(&own->lock);
    return true;
}

static weft_status shadow_mem_query(weft_device *device, const void *pointer,
                                    weft_pointer *out)
{
    shadow *own = device->own;
    if (is_inside(own, pointer)) {
        pthread_mutex_lock(&own->lock);
        const extent *found =
            find_locked(own, (size_t)((const char *)pointer - own->pointers));
        if (found) {
            out->kind = WEFT_MEMORY_DEVICE;
            out->index = device->index;
            out->base = own->pointers + found->offset;
            out->bytes = found->bytes;
        }
        pthread_mutex_unlock(&own->lock);
    }
    return WEFT_OK;
}

/* A range is the host's, or lies in one allocation. */
static weft_status check_range(shadow *own, const char *name,
                               const void *pointer, size_t bytes)
{
    if (!is_inside(own, pointer)) {
        return WEFT_OK;
    }
    size_t offset = (size_t)((const char *)pointer - own->pointers);
    pthread_mutex_lock(&own->lock);
    const extent *found = find_locked(own, offset);
    bool good = found && bytes <= found->bytes - (offset - found->offset);
    pthread_mutex_unlock(&own->lock);
    return good ? WEFT_OK
                : wefti_error(WEFT_ERR_INVALID,
                              "%s %p: no allocation of the shadow device has "
                              "%zu bytes there",
                              name, pointer, bytes);
}

static weft_status check_ranges(weft_device *device, const void *dst,
                                const void *src, size_t bytes)
{
    weft_status status = check_range(device->own, "dst", dst, bytes);
    return status < 0 ? status : check_range(device->own, "src", src, bytes);
}

/* Where the device itself finds a pointer's memory; NULL: it is the host's. */
static char *find_alias(const shadow *own, const void *pointer)
{
    return is_inside(own, pointer)
               ? own->alias + ((const char *)pointer - own->pointers)
               : NULL;
}

void *wefti_shadow_translate(weft_device *device, void *pointer)
{
    void *alias = find_alias(device->own, pointer);
    return alias ? alias : pointer;
}

static weft_status shadow_stream_copy(weft_stream *stream, void *dst,
                                      const void *src, size_t bytes)
{
    weft_device *device = stream->device;
    weft_status status = check_ranges(device, dst, src, bytes);
    if (status < 0) {
        return status;
    }
    void *to = find_alias(device->own, dst);
    const void *from = find_alias(device->own, src);
    return wefti_host_stream_copy(stream, to ? to : dst, from ? from : src,
                                  bytes);
}

const wefti_device_table wefti_device_shadow = {
    .kind = "shadow",
    .caps = WEFT_CAP_NOTIFIES | WEFT_CAP_HOST_CALLS | WEFT_CAP_TIMES,
    .open = shadow_open,
    .close = shadow_close,
    .mem_alloc = shadow_mem_alloc,
    .mem_free = shadow_mem_free,
    .mem_query = shadow_mem_query,
    .stream_create = wefti_host_stream_create,
    .stream_destroy = wefti_host_stream_destroy,
    .stream_copy = shadow_stream_copy,
    .stream_call = wefti_host_stream_call,
    .stream_mark = wefti_host_stream_mark,
    .stream_drain = wefti_host_stream_drain,
    .stream_stand = wefti_host_stream_stand,
    .event_create = wefti_host_event_create,
    .event_destroy = wefti_host_event_destroy,
    .event_post = wefti_host_event_post,
    .event_test = wefti_host_event_test,
    .event_wait = wefti_host_event_wait,
    .event_time = wefti_host_event_time,
    .gate_words = wefti_host_gate_words,
    .gate_words_free = wefti_host_gate_words_free,
};
