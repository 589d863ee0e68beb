/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_arena.c - a device's memory. One anonymous file is mapped
 * twice: device pointers are addresses of the first mapping, which faults;
 * operations of the device go through the second.
 *
 *      pointers  |--A--|.|---B---|.|-C-|........|   always faults
 *      alias     |--A--|.|---B---|.|-C-|........|   faults where none is (.)
 *
 * Every device has its own range of addresses, and what is imported or mapped
 * has another, so that an address belongs to one device (unified addressing,
 * programming guide). Each process begins elsewhere in it: a pointer that went
 * from one process to another as it is does not fit.
 *
 * An allocation is aligned to 256 bytes and no better, and begins filled with
 * ones: NaN in every float. Its place is not used again soon.
 */
#include "tests/fake/fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#endif

/* Addresses that each sanitizer allows; devices, and then all else. */
#ifdef __SANITIZE_THREAD__
#define FIRST_ADDRESS UINT64_C(0x1000000000)
#else
#define FIRST_ADDRESS UINT64_C(0x200000000000)
#endif
#define DEVICE_SPAN    ((size_t)16 << 30)
#define ELSEWHERE      (FIRST_ADDRESS + FAKE_MOST_DEVICES * DEVICE_SPAN)
#define ELSEWHERE_SPAN ((size_t)128 << 30)

enum { ALIGNMENT = 256 };

static size_t to_pages(size_t bytes)
{
    return (bytes + FAKE_PAGE_BYTES - 1) / FAKE_PAGE_BYTES * FAKE_PAGE_BYTES;
}

void *fake_arena_alias(int file, size_t offset, size_t bytes)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                (off_t)offset);
}

static void *reserve_at(uint64_t address, size_t bytes)
{
    void *at = (void *)(uintptr_t)address;
    void *got =
        mmap(at, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
             -1, 0);
    if (got != MAP_FAILED && got != at) { /* a kernel that knows no such flag */
        munmap(got, bytes);
        got = MAP_FAILED;
    }
    return got;
}

/* The device's two mappings, made with its first allocation. */
static bool open_arena(int ordinal)
{
    fake_arena *arena = &fake.devices[ordinal].arena;
    if (arena->pointers) {
        return true;
    }
    int physical = fake_get_settings()->visible[ordinal];
    arena->file = memfd_create("fake-gpu", MFD_CLOEXEC);
    if (arena->file < 0) {
        return false;
    }
    char *alias = MAP_FAILED;
    void *pointers = reserve_at(
        FIRST_ADDRESS + (unsigned)physical * DEVICE_SPAN, DEVICE_SPAN);
    if (ftruncate(arena->file, (off_t)DEVICE_SPAN) == 0) {
        alias = mmap(NULL, DEVICE_SPAN, PROT_NONE, MAP_SHARED, arena->file, 0);
    }
    if (pointers == MAP_FAILED || alias == MAP_FAILED) {
        fake_say("no addresses for the memory of a device");
        close(arena->file);
        return false; /* the process has no memory to go on with */
    }
    madvise(alias, DEVICE_SPAN, MADV_DONTDUMP);
    arena->pointers = pointers;
    arena->alias = alias;
    arena->cursor = (size_t)(getpid() % 512) << 21;
    return true;
}

/* The next place behind the cursor where bytes are unused, with an unused page
 * behind them; DEVICE_SPAN: none. */
static size_t find_place(const fake_arena *arena, size_t bytes)
{
    size_t need = to_pages(bytes) + FAKE_PAGE_BYTES;
    CUdeviceptr base = (CUdeviceptr)(uintptr_t)arena->pointers;
    size_t at = arena->cursor;
    for (int turn = 0; turn < 2; turn++) {
        while (at + need <= DEVICE_SPAN) {
            fake_range *used = fake_range_touching(base + at, need);
            if (!used) {
                return at;
            }
            at = to_pages((size_t)(used->address - base) + used->bytes) +
                 FAKE_PAGE_BYTES;
        }
        at = 0;
    }
    return DEVICE_SPAN;
}

CUresult fake_arena_alloc(int ordinal, size_t bytes, fake_range *range)
{
    fake_arena *arena = &fake.devices[ordinal].arena;
    size_t memory = fake_get_settings()->memory_bytes;
    if (bytes > memory || arena->used_bytes > memory - bytes ||
        !open_arena(ordinal)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    size_t within = ALIGNMENT * (fake.next_id % 7 + 1);
    size_t place = find_place(arena, within + bytes);
    if (place == DEVICE_SPAN) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    size_t pages = to_pages(within + bytes);
    arena->cursor = place + pages + FAKE_PAGE_BYTES;
    arena->used_bytes += bytes;
    mprotect(arena->alias + place, pages, PROT_READ | PROT_WRITE);
    ASAN_POISON_MEMORY_REGION(arena->alias + place, pages);
    range->file_offset = place + within;
    range->address =
        (CUdeviceptr)(uintptr_t)arena->pointers + range->file_offset;
    range->alias = arena->alias + range->file_offset;
    range->bytes = bytes;
    ASAN_UNPOISON_MEMORY_REGION(range->alias, bytes);
    memset(range->alias, 0xff, bytes);
    return CUDA_SUCCESS;
}

void fake_arena_free(int ordinal, const fake_range *range)
{
    fake_arena *arena = &fake.devices[ordinal].arena;
    size_t place = range->file_offset / FAKE_PAGE_BYTES * FAKE_PAGE_BYTES;
    size_t pages = to_pages(range->file_offset + range->bytes) - place;
    arena->used_bytes -= range->bytes;
    ASAN_UNPOISON_MEMORY_REGION(arena->alias + place, pages);
    madvise(arena->alias + place, pages, MADV_REMOVE); /* the file's too */
    mprotect(arena->alias + place, pages, PROT_NONE);
}

/* Downwards, and now and then right below the one before: nothing says that
 * there is room between two (cuMemAddressReserve, cuIpcOpenMemHandle). */
CUdeviceptr fake_arena_reserve(size_t bytes, size_t alignment)
{
    static uint64_t last, count;
    const size_t pages = to_pages(bytes);
    const size_t room = count++ % 2 ? 0 : FAKE_PAGE_BYTES;
    if (last == 0) {
        last = ELSEWHERE + ELSEWHERE_SPAN - ((uint64_t)(getpid() % 512) << 21);
    }
    if (pages > ELSEWHERE_SPAN || last - room - pages < ELSEWHERE + alignment) {
        return 0;
    }
    const uint64_t at = (last - room - pages) / alignment * alignment;
    if (reserve_at(at, pages) == MAP_FAILED) {
        return 0;
    }
    last = at;
    return at;
}
