/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/warning_groups.c - two warnings are the same where code and text are,
 * but for the numbers of devices in the text.
 */
#include "topo/warning_groups.h"

#include "base/check.h"
#include "base/error.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wefti_severity wefti_severity_of(int code)
{
    static const int faults[] = {3, 4, 5, 6, 7, 12, 16};
    static const int notes[] = {13, 14, 15, 22, 25, 26};
    for (size_t i = 0; i < WEFTI_COUNT_OF(faults); i++) {
        if (code == faults[i]) {
            return WEFTI_SEVERITY_FAULT;
        }
    }
    for (size_t i = 0; i < WEFTI_COUNT_OF(notes); i++) {
        if (code == notes[i]) {
            return WEFTI_SEVERITY_NOTE;
        }
    }
    return WEFTI_SEVERITY_DOUBT;
}

const char *wefti_severity_text(wefti_severity severity)
{
    static const char *const texts[] = {"fault", "doubt", "note"};
    return texts[severity];
}

/* ---- texts ----------------------------------------------------------------
 */

/* The letters of an id that begins here, "gpu" of "gpu3"; 0: none does. */
static size_t letters_of_id(const char *text)
{
    static const char *const kinds[] = {
#define KIND_TEXT(name, text) text,
        WEFTI_TOPO_KIND_LIST(KIND_TEXT)
#undef KIND_TEXT
    };
    size_t letters = strspn(text, "abcdefghijklmnopqrstuvwxyz");
    for (size_t i = 0; i < WEFTI_COUNT_OF(kinds); i++) {
        if (strlen(kinds[i]) == letters &&
            strncmp(text, kinds[i], letters) == 0 &&
            isdigit((unsigned char)text[letters])) {
            return letters;
        }
    }
    return 0;
}

/* "links to gpu3 down" to "links to gpu# down", PCI addresses behind ids left
 * out. */
static void generalise(const char *from, char to[256])
{
    size_t used = 0;
    bool begins = true;
    while (*from && used < 250) {
        size_t letters = begins ? letters_of_id(from) : 0;
        if (letters > 0) {
            memcpy(to + used, from, letters);
            used += letters;
            to[used++] = '#';
            from += letters + strspn(from + letters, "0123456789");
            size_t address =
                *from == ' ' ? strspn(from + 1, "0123456789abcdef:.") : 0;
            from += address >= 12 && memchr(from + 1, ':', address)
                        ? address + 1
                        : 0;
        } else {
            begins = *from == ' ' || *from == '.';
            to[used++] = *from++;
        }
    }
    to[used] = '\0';
}

/* ---- devices --------------------------------------------------------------
 */

/* The numbers of "gpu3 0000:0c:00.0"; false: it is no id alone. */
static bool read_id(const char *device, size_t *letters_out, long *number_out)
{
    char *end;
    *letters_out = letters_of_id(device);
    if (*letters_out == 0) {
        return false;
    }
    *number_out = strtol(device + *letters_out, &end, 10);
    return *end == '\0' || *end == ' ';
}

/* Beyond the room the rest is counted. */
typedef struct device_list {
    char *text;
    size_t used, room;
    int left_out;
} device_list;

static void append(device_list *list, const char *text, int count)
{
    size_t bytes = strlen(text);
    if (list->left_out > 0 || list->used + bytes + 26 > list->room) {
        list->left_out += count;
        return;
    }
    list->used +=
        (size_t)snprintf(list->text + list->used, list->room - list->used,
                         "%s%s", list->used ? ", " : "", text);
}

typedef struct member {
    int warning, group;
    char kind[12]; /* "": no id */
    long number;
} member;

/* By group, then kind and number; else as they came. */
static int compare_members(const void *a, const void *b)
{
    const member *x = a, *y = b;
    if (x->group != y->group) {
        return x->group - y->group;
    }
    int order = strcmp(x->kind, y->kind);
    if (order == 0 && x->kind[0] && x->number != y->number) {
        return x->number < y->number ? -1 : 1;
    }
    return order ? order : x->warning - y->warning;
}

static void list_devices(const wefti_topo *topo, const member *members,
                         int count, wefti_warning_group *group)
{
    device_list list = {group->devices, 0, sizeof(group->devices), 0};
    if (count == 1) {
        snprintf(group->devices, sizeof(group->devices), "%s",
                 topo->warnings[members[0].warning].device);
        return;
    }
    for (int i = 0, end; i < count; i = end) {
        const member *m = &members[i];
        char text[96];
        for (end = i + 1; m->kind[0] && end < count &&
                          strcmp(members[end].kind, m->kind) == 0 &&
                          members[end].number <= members[end - 1].number + 1;) {
            end++;
        }
        long last = members[end - 1].number;
        if (m->kind[0] && last > m->number) {
            snprintf(text, sizeof(text), "%s%ld-%ld", m->kind, m->number, last);
        } else if (m->kind[0]) {
            snprintf(text, sizeof(text), "%s%ld", m->kind, m->number);
        } else {
            snprintf(text, sizeof(text), "%s",
                     topo->warnings[m->warning].device);
        }
        append(&list, text, end - i);
    }
    if (list.left_out > 0) {
        snprintf(list.text + list.used, list.room - list.used, "%s%d more",
                 list.used ? " and " : "", list.left_out);
    }
}

/* ---- groups ---------------------------------------------------------------
 */

static int compare_groups(const void *a, const void *b)
{
    const wefti_warning_group *x = a, *y = b;
    return x->severity != y->severity ? (int)x->severity - (int)y->severity
                                      : x->first - y->first;
}

/* The group of each warning; group->text holds the general text meanwhile. */
static int group_all(const wefti_topo *topo, wefti_warning_group *groups,
                     member *members)
{
    int count = 0;
    for (int i = 0; i < topo->warning_count; i++) {
        const wefti_topo_warning *w = &topo->warnings[i];
        char general[256];
        int at = 0;
        generalise(w->text, general);
        while (at < count && (groups[at].code != w->code ||
                              strcmp(groups[at].text, general) != 0)) {
            at++;
        }
        if (at == count) {
            groups[count++] =
                (wefti_warning_group){.code = w->code,
                                      .severity = wefti_severity_of(w->code),
                                      .first = i};
            snprintf(groups[at].text, sizeof(groups[at].text), "%s", general);
        }
        groups[at].count++;
        members[i] = (member){.warning = i, .group = at};
        size_t letters;
        if (read_id(w->device, &letters, &members[i].number)) {
            memcpy(members[i].kind, w->device, letters);
        }
    }
    return count;
}

/* The text as it stands, where all say exactly that. */
static void choose_text(const wefti_topo *topo, const member *members,
                        wefti_warning_group *group)
{
    const char *first = topo->warnings[members[0].warning].text;
    bool same = true;
    for (int i = 1; i < group->count; i++) {
        same =
            same && strcmp(topo->warnings[members[i].warning].text, first) == 0;
    }
    if (same) {
        snprintf(group->text, sizeof(group->text), "%s", first);
    }
}

weft_status wefti_warning_groups_list(const wefti_topo *topo,
                                      wefti_warning_group **out, int *count_out)
{
    size_t room = (size_t)topo->warning_count + 1;
    wefti_warning_group *groups = calloc(room, sizeof(*groups));
    member *members = calloc(room, sizeof(*members));
    if (!groups || !members) {
        free(groups);
        free(members);
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d warnings",
                           topo->warning_count);
    }
    int count = group_all(topo, groups, members);
    qsort(members, (size_t)topo->warning_count, sizeof(*members),
          compare_members);
    for (int i = 0, at = 0; i < count; at += groups[i++].count) {
        choose_text(topo, members + at, &groups[i]);
        list_devices(topo, members + at, groups[i].count, &groups[i]);
    }
    qsort(groups, (size_t)count, sizeof(*groups), compare_groups);
    free(members);
    *out = groups;
    *count_out = count;
    return WEFT_OK;
}
