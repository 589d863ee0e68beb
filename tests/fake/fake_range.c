/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_range.c - every range of addresses that the driver knows, by
 * address, and which device may access it.
 */
#include "tests/fake/fake.h"

#include <stdlib.h>
#include <string.h>

/* How many ranges begin at or before an address. */
static size_t count_before(CUdeviceptr address)
{
    size_t low = 0, high = fake.range_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (fake.ranges[middle]->address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

fake_range *fake_range_add(const fake_range *range)
{
    if (fake.range_count == fake.range_capacity) {
        size_t capacity = fake.range_capacity ? 2 * fake.range_capacity : 64;
        fake_range **ranges =
            realloc(fake.ranges, capacity * sizeof(*fake.ranges));
        if (!ranges) {
            return NULL;
        }
        fake.ranges = ranges;
        fake.range_capacity = capacity;
    }
    fake_range *added = malloc(sizeof(*added));
    if (!added) {
        return NULL;
    }
    *added = *range;
    added->id = ++fake.next_id;
    size_t index = count_before(range->address);
    memmove(&fake.ranges[index + 1], &fake.ranges[index],
            (fake.range_count - index) * sizeof(*fake.ranges));
    fake.ranges[index] = added;
    fake.range_count++;
    return added;
}

void fake_range_remove(fake_range *range)
{
    size_t index = count_before(range->address) - 1;
    fake.range_count--;
    memmove(&fake.ranges[index], &fake.ranges[index + 1],
            (fake.range_count - index) * sizeof(*fake.ranges));
    free(range);
}

fake_range *fake_range_find(CUdeviceptr address, size_t bytes)
{
    size_t index = count_before(address);
    fake_range *found = index ? fake.ranges[index - 1] : NULL;
    bool holds = found && address - found->address < found->bytes &&
                 bytes <= found->bytes - (address - found->address);
    return holds ? found : NULL;
}

fake_range *fake_range_touching(CUdeviceptr address, size_t bytes)
{
    size_t index = count_before(address);
    fake_range *before = index ? fake.ranges[index - 1] : NULL;
    if (before && address - before->address < before->bytes) {
        return before;
    }
    fake_range *after = index < fake.range_count ? fake.ranges[index] : NULL;
    return after && after->address - address < bytes ? after : NULL;
}

/* Memory of another device needs peer access (cuCtxEnablePeerAccess), mapped
 * memory its own permission (cuMemSetAccess: none to begin with), pinned host
 * memory none (unified addressing: portable and mapped for all devices). */
bool fake_range_reachable(const fake_range *range, int ordinal)
{
    if (range->owner == FAKE_HOST || (range->reach >> ordinal & 1)) {
        return true;
    }
    if (range->kind == FAKE_MAPPED || range->owner < 0) {
        return false;
    }
    return range->owner == ordinal ||
           (fake.devices[ordinal].primary.peers >> range->owner & 1);
}

bool fake_range_any_used(void)
{
    for (size_t i = 0; i < fake.range_count; i++) {
        if (fake.ranges[i]->users != 0) {
            return true;
        }
    }
    return false;
}

void fake_range_await_unused(fake_range *range)
{
    uint64_t backoff_ns = 0;
    while (range->users != 0) {
        fake_wait_locked(&backoff_ns);
    }
}

void *fake_range_use(int ordinal, CUdeviceptr address, size_t bytes,
                     bool any_device, const char *what, fake_range **used_out)
{
    void *found = NULL;
    pthread_mutex_lock(&fake.lock);
    fake_range *range = fake_range_find(address, bytes ? bytes : 1);
    if (fake.dying != CUDA_SUCCESS) {
        /* too late for more work */
    } else if (!range) {
        fake_say("%s: %#llx to %#llx is not memory of a device, or no longer",
                 what, address, address + bytes);
    } else if (range->kind == FAKE_MAPPED ? !range->reach : false) {
        fake_say("%s: %#llx is mapped, and no device may access it", what,
                 address);
    } else if (!any_device && !fake_range_reachable(range, ordinal)) {
        fake_say("%s: device %d may not access %#llx, of device %d", what,
                 ordinal, address, range->owner);
    } else {
        range->users++;
        *used_out = range;
        found = range->alias + (address - range->address);
    }
    pthread_mutex_unlock(&fake.lock);
    return found;
}

void fake_range_done(fake_range *used)
{
    if (used) {
        pthread_mutex_lock(&fake.lock);
        used->users--;
        pthread_mutex_unlock(&fake.lock);
    }
}
