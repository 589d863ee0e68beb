/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/shadow_memory.c - memory of the shadow device: it faults when the host
 * touches it, as a GPU's does, and is found dirty: as far as POISON_MOST_BYTES,
 * for each byte of poison takes memory of the machine.
 *
 * A unit maps one anonymous file twice. Device pointers are addresses of the
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
 * the end is found too. What the units know of pinned memory lies in the same
 * lists. One lock guards all units' memory, since any of them may be asked
 * about any pointer, and copies run between them.
 */
#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "device/shadow.h"
#include "device/shadow_unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Address space only: pages come with the first touch. */
#define SPACE_BYTES ((size_t)16 << 30)

enum {
    PAGE_BYTES = 4096,
    PINNED_ALIGN = 64,
    POISON = 0xff,                /* not a number in every float there is */
    POISON_MOST_BYTES = 64 << 20, /* what lies behind holds zeros */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wefti_shadow_unit *mapped[WEFTI_SHADOW_UNITS]; /* guarded by lock */

static size_t to_pages(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static size_t offset_in(const wefti_shadow_unit *unit, const void *pointer)
{
    return (size_t)((uintptr_t)pointer - (uintptr_t)unit->pointers);
}

/* The unit whose own memory an address is in, allocated or not. */
static wefti_shadow_unit *find_unit_locked(const void *pointer)
{
    for (int i = 0; i < WEFTI_SHADOW_UNITS; i++) {
        if (mapped[i] && offset_in(mapped[i], pointer) < SPACE_BYTES) {
            return mapped[i];
        }
    }
    return NULL;
}

/* How many of a unit's ranges begin at the address or before it. */
static size_t count_before(const wefti_shadow_unit *unit, const void *address)
{
    size_t low = 0, high = unit->range_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if ((uintptr_t)unit->ranges[middle].base <= (uintptr_t)address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The range of a unit that holds the address, or NULL. */
static wefti_shadow_range *find_in(const wefti_shadow_unit *unit,
                                   const void *address)
{
    const size_t before = count_before(unit, address);
    wefti_shadow_range *last = before ? &unit->ranges[before - 1] : NULL;
    return last && (uintptr_t)address - (uintptr_t)last->base < last->bytes
               ? last
               : NULL;
}

static weft_status add_range(wefti_shadow_unit *unit,
                             const wefti_shadow_range *range)
{
    if (unit->range_count == unit->range_capacity) {
        const size_t capacity =
            unit->range_capacity ? 2 * unit->range_capacity : 16;
        wefti_shadow_range *ranges =
            realloc(unit->ranges, capacity * sizeof(*ranges));
        if (!ranges) {
            return wefti_error(WEFT_ERR_NO_MEMORY,
                               "no memory for the list of %zu allocations",
                               capacity);
        }
        unit->ranges = ranges;
        unit->range_capacity = capacity;
    }
    const size_t at = count_before(unit, range->base);
    memmove(&unit->ranges[at + 1], &unit->ranges[at],
            (unit->range_count - at) * sizeof(*unit->ranges));
    unit->ranges[at] = *range;
    unit->ranges[at].id = ++unit->last_id;
    unit->range_count++;
    return WEFT_OK;
}

static void remove_range(wefti_shadow_unit *unit, wefti_shadow_range *range)
{
    const size_t at = (size_t)(range - unit->ranges);
    unit->range_count--;
    memmove(&unit->ranges[at], &unit->ranges[at + 1],
            (unit->range_count - at) * sizeof(*unit->ranges));
}

weft_status wefti_shadow_memory_map(wefti_shadow_unit *unit)
{
    weft_status status;
    unit->file = memfd_create("weft-shadow", MFD_CLOEXEC);
    if (unit->file < 0) {
        return wefti_error_system("shadow device: memfd_create");
    }
    if (ftruncate(unit->file, (off_t)SPACE_BYTES) != 0) {
        status = wefti_error_system("shadow device: ftruncate");
        goto err_close;
    }
    void *pointers =
        mmap(NULL, SPACE_BYTES, PROT_NONE, MAP_SHARED, unit->file, 0);
    if (pointers == MAP_FAILED) {
        status =
            wefti_error_system("shadow device: mmap of %zu bytes", SPACE_BYTES);
        goto err_close;
    }
    void *alias = mmap(NULL, SPACE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                       unit->file, 0);
    if (alias == MAP_FAILED) {
        status = wefti_error_system("shadow device: second mmap of %zu bytes",
                                    SPACE_BYTES);
        goto err_unmap;
    }
    madvise(alias, SPACE_BYTES, MADV_DONTDUMP);
    pthread_mutex_lock(&lock);
    unit->pointers = pointers;
    unit->alias = alias;
    mapped[unit->index] = unit;
    pthread_mutex_unlock(&lock);
    return WEFT_OK;

err_unmap:
    munmap(pointers, SPACE_BYTES);
err_close:
    close(unit->file);
    return status;
}

void wefti_shadow_memory_unmap(wefti_shadow_unit *unit)
{
    pthread_mutex_lock(&lock);
    mapped[unit->index] = NULL;
    munmap(unit->alias, SPACE_BYTES);
    munmap(unit->pointers, SPACE_BYTES);
    close(unit->file);
    free(unit->ranges);
    unit->ranges = NULL;
    unit->range_count = unit->range_capacity = 0;
    pthread_mutex_unlock(&lock);
}

/* First fit, with the unused page behind; where there is no room, NULL. */
static char *find_room(const wefti_shadow_unit *unit, size_t bytes)
{
    const size_t wanted = to_pages(bytes) + PAGE_BYTES;
    size_t offset = 0;
    for (size_t i = count_before(unit, unit->pointers - 1);
         i < unit->range_count; i++) {
        const wefti_shadow_range *range = &unit->ranges[i];
        const size_t at = offset_in(unit, range->base);
        if (at >= SPACE_BYTES || offset + wanted <= at) {
            break;
        }
        offset = at + to_pages(range->bytes) + PAGE_BYTES;
    }
    return offset + wanted <= SPACE_BYTES ? unit->pointers + offset : NULL;
}

/* Device memory that owner may free; NULL: nobody of weft. */
static weft_status alloc_own(wefti_shadow_unit *unit, weft_device *owner,
                             size_t bytes, void **out)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&lock);
    const wefti_shadow_range range = {
        .base = bytes <= SPACE_BYTES ? find_room(unit, bytes) : NULL,
        .bytes = bytes,
        .kind = WEFT_MEMORY_DEVICE,
        .owner = owner};
    if (!range.base) {
        status = wefti_error(WEFT_ERR_NO_MEMORY,
                             "no room for %zu bytes on shadow device %d, which "
                             "has %zu",
                             bytes, unit->index, SPACE_BYTES);
    } else {
        status = add_range(unit, &range);
    }
    pthread_mutex_unlock(&lock);
    if (status == WEFT_OK) {
        memset(unit->alias + offset_in(unit, range.base), POISON,
               bytes < POISON_MOST_BYTES ? bytes : POISON_MOST_BYTES);
        *out = range.base;
    }
    return status;
}

static weft_status alloc_pinned(wefti_shadow_unit *unit, weft_device *owner,
                                size_t bytes, void **out)
{
    void *pointer = NULL;
    if (bytes > SPACE_BYTES ||
        posix_memalign(&pointer, PINNED_ALIGN, bytes) != 0) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for %zu bytes of pinned memory", bytes);
    }
    pthread_mutex_lock(&lock);
    weft_status status =
        add_range(unit, &(wefti_shadow_range){.base = pointer,
                                              .bytes = bytes,
                                              .kind = WEFT_MEMORY_PINNED,
                                              .owner = owner});
    pthread_mutex_unlock(&lock);
    if (status < 0) {
        free(pointer);
        return status;
    }
    memset(pointer, POISON,
           bytes < POISON_MOST_BYTES ? bytes : POISON_MOST_BYTES);
    *out = pointer;
    return WEFT_OK;
}

weft_status wefti_shadow_mem_alloc(weft_device *device, weft_memory_kind kind,
                                   size_t bytes, void **out)
{
    wefti_shadow_unit *unit = wefti_shadow_unit_of(device);
    WEFTI_ASSERT(kind == WEFT_MEMORY_PINNED || kind == WEFT_MEMORY_DEVICE);
    return kind == WEFT_MEMORY_PINNED ? alloc_pinned(unit, device, bytes, out)
                                      : alloc_own(unit, device, bytes, out);
}

/* Frees what begins at pointer and belongs to owner. */
static bool free_range(wefti_shadow_unit *unit, const weft_device *owner,
                       void *pointer)
{
    pthread_mutex_lock(&lock);
    wefti_shadow_range *found = find_in(unit, pointer);
    const bool good = found && found->base == pointer && found->owner == owner;
    const bool pinned = good && found->kind == WEFT_MEMORY_PINNED;
    if (good && !pinned) {
        fallocate(unit->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)offset_in(unit, pointer),
                  (off_t)to_pages(found->bytes));
    }
    if (good) {
        remove_range(unit, found);
    }
    pthread_mutex_unlock(&lock);
    if (pinned) {
        free(pointer);
    }
    return good;
}

bool wefti_shadow_mem_free(weft_device *device, void *pointer)
{
    return free_range(wefti_shadow_unit_of(device), device, pointer);
}

weft_status wefti_shadow_mem_query(weft_device *device, const void *pointer,
                                   weft_pointer *out)
{
    (void)device; /* one driver knows the pointers of all */
    pthread_mutex_lock(&lock);
    for (int i = 0; i < WEFTI_SHADOW_UNITS; i++) {
        const wefti_shadow_range *found =
            mapped[i] ? find_in(mapped[i], pointer) : NULL;
        if (found) {
            out->kind = found->kind;
            out->index = i;
            out->base = found->base;
            out->bytes = found->bytes;
            /* Of both units together each once. */
            out->id = found->id * WEFTI_SHADOW_UNITS + (uint64_t)i;
        }
    }
    pthread_mutex_unlock(&lock);
    return WEFT_OK;
}

/* Whether a unit knows some of these bytes already, or they are its own. */
static bool is_known(const wefti_shadow_unit *unit, const char *pointer,
                     size_t bytes)
{
    const size_t before = count_before(unit, pointer + bytes - 1);
    const wefti_shadow_range *last = before ? &unit->ranges[before - 1] : NULL;
    return (last && (uintptr_t)last->base + last->bytes > (uintptr_t)pointer) ||
           offset_in(unit, pointer) < SPACE_BYTES;
}

weft_status wefti_shadow_mem_register(weft_device *device, void *pointer,
                                      size_t bytes)
{
    weft_status status = WEFT_OK;
    if (bytes > UINTPTR_MAX - (uintptr_t)pointer) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%zu bytes at %p: they end behind the last address",
                           bytes, pointer);
    }
    pthread_mutex_lock(&lock);
    for (int i = 0; i < WEFTI_SHADOW_UNITS && status == WEFT_OK; i++) {
        if (mapped[i] && is_known(mapped[i], pointer, bytes)) {
            status = wefti_error(WEFT_ERR_INVALID,
                                 "%zu bytes at %p: shadow device %d knows some "
                                 "of them already",
                                 bytes, pointer, i);
        }
    }
    if (status == WEFT_OK) {
        status = add_range(wefti_shadow_unit_of(device),
                           &(wefti_shadow_range){.base = pointer,
                                                 .bytes = bytes,
                                                 .kind = WEFT_MEMORY_PINNED});
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void wefti_shadow_mem_unregister(weft_device *device, void *pointer)
{
    wefti_shadow_unit *unit = wefti_shadow_unit_of(device);
    pthread_mutex_lock(&lock);
    wefti_shadow_range *found = find_in(unit, pointer);
    const bool good = found && found->base == pointer && !found->owner &&
                      found->kind == WEFT_MEMORY_PINNED;
    if (good) {
        remove_range(unit, found);
    }
    pthread_mutex_unlock(&lock);
    if (!good) {
        wefti_log(WEFTI_LOG_ERROR, -1,
                  "weft_device_unregister: nothing is registered at %p",
                  pointer);
    }
}

weft_status wefti_shadow_reach(const char *name, const void *pointer,
                               size_t bytes, char **out)
{
    bool good = true;
    pthread_mutex_lock(&lock);
    const wefti_shadow_unit *unit = find_unit_locked(pointer);
    *out = (char *)(uintptr_t)pointer;
    if (unit) {
        const wefti_shadow_range *found = find_in(unit, pointer);
        good = found && bytes <= found->bytes - (size_t)((const char *)pointer -
                                                         found->base);
        *out = unit->alias + offset_in(unit, pointer);
    }
    pthread_mutex_unlock(&lock);
    return good ? WEFT_OK
                : wefti_error(WEFT_ERR_INVALID,
                              "%s %p: no allocation of the shadow device has "
                              "%zu bytes there",
                              name, pointer, bytes);
}

void *wefti_shadow_translate(weft_device *device, void *pointer)
{
    const wefti_shadow_unit *unit = wefti_shadow_unit_of(device);
    const size_t offset = offset_in(unit, pointer);
    return offset < SPACE_BYTES ? unit->alias + offset : pointer;
}

weft_status wefti_shadow_alloc_foreign(weft_device *device, size_t bytes,
                                       void **out)
{
    return alloc_own(wefti_shadow_unit_of(device), NULL, bytes, out);
}

void wefti_shadow_free_foreign(weft_device *device, void *pointer)
{
    const bool freed = free_range(wefti_shadow_unit_of(device), NULL, pointer);
    WEFTI_ASSERT(freed);
    (void)freed;
}
