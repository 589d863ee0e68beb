/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/mapped.c - a list: a communicator has few of them.
 */
#include "comm/fabric/mapped.h"

#include <stdlib.h>

static void drop(wefti_mapped **link)
{
    wefti_mapped *gone = *link;
    *link = gone->next;
    wefti_mapping_close(gone->mapping);
    free(gone);
}

static uint64_t end_of(const wefti_mapped *at)
{
    return at->offset + wefti_mapping_get_bytes(at->mapping);
}

void wefti_mapped_add(wefti_mapped **list, wefti_mapped *made, uint64_t offset,
                      wefti_mapping *mapping)
{
    *made = (wefti_mapped){.mapping = wefti_mapping_retain(mapping),
                           .offset = offset};
    for (wefti_mapped **link = list; *link;) {
        if ((*link)->offset < end_of(made) && offset < end_of(*link)) {
            drop(link);
        } else {
            link = &(*link)->next;
        }
    }
    made->next = *list;
    *list = made;
}

bool wefti_mapped_inherit(wefti_mapped **list, const wefti_mapped *parents)
{
    for (; parents; parents = parents->next) {
        wefti_mapped *made = malloc(sizeof(*made));
        if (!made) {
            return false;
        }
        *made = *parents;
        made->mapping = wefti_mapping_retain(parents->mapping);
        made->next = *list;
        *list = made;
    }
    return true;
}

void wefti_mapped_leave(wefti_mapped *list, uint64_t offset)
{
    for (; list; list = list->next) {
        list->left |= list->offset == offset;
    }
}

void wefti_mapped_drop(wefti_mapped **list, uint64_t offset)
{
    for (wefti_mapped **link = list; *link; link = &(*link)->next) {
        if ((*link)->offset == offset) {
            drop(link);
            return;
        }
    }
}

void wefti_mapped_close(wefti_mapped **list)
{
    while (*list) {
        drop(list);
    }
}

bool wefti_mapped_locate(const wefti_mapped *list, const void *bytes_at,
                         size_t bytes, uint64_t *offset_out)
{
    for (; list; list = list->next) {
        const uintptr_t into = (uintptr_t)bytes_at -
                               (uintptr_t)wefti_mapping_get_base(list->mapping);
        const size_t room = wefti_mapping_get_bytes(list->mapping);
        if (!list->left && into <= room && bytes <= room - into) {
            *offset_out = list->offset + into;
            return true;
        }
    }
    return false;
}

void *wefti_mapped_find(const wefti_mapped *list, uint64_t offset, size_t bytes)
{
    for (; list; list = list->next) {
        const uint64_t into = offset - list->offset;
        const size_t room = wefti_mapping_get_bytes(list->mapping);
        if (into <= room && bytes <= room - into) {
            return (unsigned char *)wefti_mapping_get_base(list->mapping) +
                   into;
        }
    }
    return NULL;
}
