/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_ipc.c - memory and events of other processes.
 *
 * A handle names the exporter's file: process, descriptor, the file's number,
 * and where in it. The importer opens it under /proc, which the kernel allows
 * to processes of one user. Nothing is left behind by a process that is killed,
 * and a descriptor that has become another file is seen by its number.
 */
#include "tests/fake/fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MEMORY_MAGIC = 0x77666d31, /* "wfm1" */
    EVENT_MAGIC = 0x77666531,
    EVENT_SLOTS = 1024,
    SLOT_BYTES = 1024
};
_Static_assert(sizeof(fake_event_state) <= SLOT_BYTES, "an event has its slot");

/* What both kinds of handle hold. */
typedef struct card {
    uint32_t magic;
    int32_t pid, file, device; /* the physical one */
    uint64_t inode, offset, bytes, id, flags;
} card;

/* This process's events that others may open. */
static struct {
    int file;
    char *slots; /* NULL: none yet */
    bool used[EVENT_SLOTS];
} own;

static int open_file(const card *named)
{
    char path[64];
    struct stat found;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", named->pid, named->file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0 &&
        (fstat(file, &found) != 0 || found.st_ino != named->inode)) {
        close(file);
        file = -1;
    }
    if (file < 0) {
        fake_say("IPC: process %d has no such memory (any more)", named->pid);
    }
    return file;
}

static uint64_t inode_of(int file)
{
    struct stat found;
    return fstat(file, &found) == 0 ? found.st_ino : 0;
}

/* cuIpcGetMemHandle: of an allocation of cuMemAlloc; the handle is of the whole
 * of it, and new memory at the same address has another. */
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !handle) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    card made = {.magic = MEMORY_MAGIC, .pid = (int32_t)getpid()};
    pthread_mutex_lock(&fake.lock);
    const fake_range *range = fake_range_find(pointer, 1);
    if (!range || range->kind != FAKE_ALLOCATED || range->address != pointer) {
        fake_say("cuIpcGetMemHandle: %#llx is not the base of an allocation",
                 pointer);
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        made.file = fake.devices[range->owner].arena.file;
        made.device = fake_get_settings()->visible[range->owner];
        made.inode = inode_of(made.file);
        made.offset = range->file_offset;
        made.bytes = range->bytes;
        made.id = range->id;
    }
    pthread_mutex_unlock(&fake.lock);
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &made, sizeof(made));
    return result;
}

static int ordinal_of(int device)
{
    const fake_settings *settings = fake_get_settings();
    for (int i = 0; i < settings->visible_count; i++) {
        if (settings->visible[i] == device) {
            return i;
        }
    }
    return FAKE_HIDDEN;
}

/* Maps the pages of the file that hold the allocation. Locked. */
static CUresult map_card(const card *named, fake_range *range)
{
    uint64_t first = named->offset / FAKE_PAGE_BYTES * FAKE_PAGE_BYTES;
    size_t within = (size_t)(named->offset - first);
    int file = open_file(named);
    if (file < 0) {
        return CUDA_ERROR_MAP_FAILED;
    }
    char *alias = fake_arena_alias(file, first, within + named->bytes);
    close(file);
    if (alias == MAP_FAILED) {
        return CUDA_ERROR_MAP_FAILED;
    }
    CUdeviceptr at = fake_arena_reserve(within + named->bytes, 2 << 20);
    if (at == 0) {
        munmap(alias, within + named->bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->alias = alias + within;
    range->address = at + within;
    range->bytes = named->bytes;
    range->file_offset = within;
    return CUDA_SUCCESS;
}

/* The range that an open handle has already; NULL: none. Locked. */
static fake_range *find_opened(const card *named, uint64_t key)
{
    for (size_t i = 0; i < fake.range_count; i++) {
        fake_range *range = fake.ranges[i];
        if (range->kind == FAKE_IMPORTED && range->key == key &&
            range->bytes == named->bytes) {
            return range;
        }
    }
    return NULL;
}

static void unmap(fake_range *range)
{
    munmap(range->alias - range->file_offset,
           range->bytes + range->file_offset);
    munmap((void *)(uintptr_t)(range->address - range->file_offset),
           range->bytes + range->file_offset);
}

/*
 * cuIpcOpenMemHandle: the flag must be LAZY_ENABLE_PEER_ACCESS; of the same
 * context again, it counts; of a second context on the device, or in the
 * process that made the handle, it is refused; between devices it enables peer
 * access as cuCtxEnablePeerAccess does.
 */
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle,
                               unsigned flags)
{
    card named;
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !pointer ||
        flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(&named, &handle, sizeof(named));
    if (named.magic != MEMORY_MAGIC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (named.pid == (int32_t)getpid()) {
        fake_say("cuIpcOpenMemHandle: by the process that exports it");
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    CUcontext context = fake_current()->primary;
    fake_range range = {.kind = FAKE_IMPORTED,
                        .owner = ordinal_of(named.device),
                        .reach = UINT32_C(1) << context->ordinal,
                        .context = context,
                        .opened = 1,
                        .key = named.inode ^ named.id << 40};
    if (range.owner != context->ordinal && fake_get_settings()->no_peer) {
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    pthread_mutex_lock(&fake.lock);
    fake_range *opened = find_opened(&named, range.key);
    if (opened && opened->context == context) {
        opened->opened++;
        *pointer = opened->address;
    } else if (opened) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else if ((result = map_card(&named, &range)) == CUDA_SUCCESS) {
        if (range.owner >= 0 && range.owner != context->ordinal) {
            context->peers |= UINT32_C(1) << range.owner;
        }
        *pointer = range.address;
        if (!fake_range_add(&range)) {
            unmap(&range);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&fake.lock);
    fake_range *range = fake_range_find(pointer, 1);
    if (!range || range->kind != FAKE_IMPORTED || range->address != pointer) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (--range->opened == 0) {
        fake_range_await_unused(range);
        unmap(range);
        fake_range_remove(range);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

static bool open_slots(void)
{
    if (own.slots) {
        return true;
    }
    own.file = memfd_create("fake-gpu-events", MFD_CLOEXEC);
    if (own.file < 0) {
        return false;
    }
    void *slots = MAP_FAILED;
    if (ftruncate(own.file, EVENT_SLOTS * SLOT_BYTES) == 0) {
        slots = fake_arena_alias(own.file, 0, EVENT_SLOTS * SLOT_BYTES);
    }
    if (slots == MAP_FAILED) {
        close(own.file);
        return false;
    }
    own.slots = slots;
    return true;
}

fake_event_state *fake_ipc_make_event(void)
{
    for (int i = 0; open_slots() && i < EVENT_SLOTS; i++) {
        if (!own.used[i]) {
            own.used[i] = true;
            memset(own.slots + i * SLOT_BYTES, 0, SLOT_BYTES);
            return (fake_event_state *)(void *)(own.slots + i * SLOT_BYTES);
        }
    }
    return NULL;
}

void fake_ipc_drop_event(CUevent event)
{
    char *slot = (char *)event->state;
    if (event->imported) { /* the page that holds it was mapped for it */
        munmap((void *)((uintptr_t)slot / FAKE_PAGE_BYTES * FAKE_PAGE_BYTES),
               FAKE_PAGE_BYTES);
    } else {
        own.used[(slot - own.slots) / SLOT_BYTES] = false;
    }
}

/* cuIpcGetEventHandle: of an event made with INTERPROCESS. */
CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !handle || !event) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (!(event->flags & CU_EVENT_INTERPROCESS) || event->imported) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    card made = {.magic = EVENT_MAGIC,
                 .pid = (int32_t)getpid(),
                 .file = own.file,
                 .inode = inode_of(own.file),
                 .offset = (uint64_t)((char *)event->state - own.slots),
                 .flags = event->flags};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &made, sizeof(made));
    return CUDA_SUCCESS;
}

/* cuIpcOpenEventHandle: "behaves like a locally created event" without timing;
 * not by the process that exports it. */
CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
    card named;
    CUresult result = fake_enter_context();
    memcpy(&named, &handle, sizeof(named));
    if (result != CUDA_SUCCESS || !event || named.magic != EVENT_MAGIC) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (named.pid == (int32_t)getpid()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    CUevent made = calloc(1, sizeof(*made));
    int file = made ? open_file(&named) : -1;
    if (file < 0) {
        free(made);
        return CUDA_ERROR_MAP_FAILED;
    }
    uint64_t within = named.offset % FAKE_PAGE_BYTES;
    char *page = fake_arena_alias(file, named.offset - within, FAKE_PAGE_BYTES);
    close(file);
    if (page == MAP_FAILED) {
        free(made);
        return CUDA_ERROR_MAP_FAILED;
    }
    made->context = fake_current();
    made->flags = (unsigned)named.flags;
    made->imported = true;
    made->state = (fake_event_state *)(void *)(page + within);
    *event = made;
    return CUDA_SUCCESS;
}
