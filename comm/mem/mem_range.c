/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/mem/mem_range.c - whether a program's own memory can be registered.
 *
 * The engine writes there for others, long after the call. So the kernel is
 * asked whether this process may: what it may not would end the program. Of a
 * device's memory its driver says how far the allocation goes.
 */
#include "base/error.h"
#include "comm/mem/mem.h"
#include "comm/post/op_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Up to where memory from `at` on may be written, by one line of the table;
 * at itself: the line says nothing of it. */
static uintptr_t read_line(const char *line, uintptr_t at)
{
    char *rest;
    const uintptr_t begin = (uintptr_t)strtoull(line, &rest, 16);
    if (rest == line || *rest != '-') {
        return at;
    }
    const uintptr_t end = (uintptr_t)strtoull(rest + 1, &rest, 16);
    const bool writable = strncmp(rest, " rw", 3) == 0;
    return writable && begin <= at && at < end ? end : at;
}

/* The kernel's table is in the order of addresses. */
static weft_status check_writable(const void *pointer, size_t bytes)
{
    const uintptr_t begin = (uintptr_t)pointer;
    char line[512];
    uintptr_t at = begin;
    FILE *table = fopen("/proc/self/maps", "re");
    if (!table) {
        return wefti_error_system("cannot read /proc/self/maps");
    }
    while (at - begin < bytes && fgets(line, sizeof(line), table)) {
        at = read_line(line, at);
    }
    (void)fclose(table);
    return at - begin >= bytes
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "pointer %p: byte %zu of %zu is not memory that "
                             "this process may write",
                             pointer, (size_t)(at - begin), bytes);
}

static weft_status check_apart(weft_comm *comm, const void *pointer,
                               size_t bytes)
{
    const uintptr_t begin = (uintptr_t)pointer;
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&comm->engine->lock);
    for (const weft_mem *mem = comm->mems; mem; mem = mem->next) {
        const uintptr_t theirs = (uintptr_t)wefti_mem_get_data(mem, comm->rank);
        if (begin < theirs + mem->bytes && theirs < begin + bytes) {
            status = wefti_error(
                WEFT_ERR_INVALID,
                "pointer %p and %zu bytes overlap memory #%llu "
                "of \"%s\": allowed is apart",
                pointer, bytes, (unsigned long long)mem->id, comm->name);
            break;
        }
    }
    pthread_mutex_unlock(&comm->engine->lock);
    return status;
}

static weft_status check_allocation(const weft_comm *comm, const void *pointer,
                                    size_t bytes)
{
    weft_pointer found = {.size_bytes = sizeof(found)};
    weft_status status = weft_device_query(comm->device, pointer, &found);
    const size_t into = (uintptr_t)pointer - (uintptr_t)found.base;
    if (status == WEFT_OK && (!found.base || bytes > found.bytes - into)) {
        status =
            wefti_error(WEFT_ERR_INVALID,
                        "pointer %p and bytes %zu: allowed is within its "
                        "allocation, which goes on for %zu",
                        pointer, bytes, found.base ? found.bytes - into : 0);
    }
    return status;
}

weft_status wefti_mem_check_range(weft_comm *comm, const void *pointer,
                                  size_t bytes, bool *on_device_out)
{
    *on_device_out = false;
    if (bytes == 0) {
        return WEFT_OK;
    }
    if (!pointer || bytes > UINTPTR_MAX - (uintptr_t)pointer) {
        return wefti_error(WEFT_ERR_INVALID,
                           "pointer %p and bytes %zu: allowed is memory of "
                           "this process",
                           pointer, bytes);
    }
    weft_status status =
        wefti_check_place(comm, "pointer", pointer, on_device_out);
    if (status == WEFT_OK) {
        status = check_apart(comm, pointer, bytes);
    }
    if (status != WEFT_OK) {
        return status;
    }
    return *on_device_out ? check_allocation(comm, pointer, bytes)
                          : check_writable(pointer, bytes);
}
