/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/memory_limit.c - which folder is this process's, and the limits from
 * there upwards.
 *
 *     /proc/self/cgroup      4:memory:/jobs/7       0::/jobs/7
 *     /proc/self/mountinfo   where such a hierarchy, or a part of it, is seen
 *
 * A container may see only its own part: the mount's root is then the group
 * itself, and is taken off the front of the group's path.
 */
#include "base/memory_limit.h"

#include "base/error.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { PATH_BYTES = 1024, LINE_BYTES = 4096 };

/* More than any machine has: what version 1 reads as where it has no limit. */
#define NO_LIMIT (UINT64_C(1) << 60)

typedef struct version {
    const char *limit_name, *kills_name;
    bool second;
} version;

static const version versions[] = {
    {"memory.max", "memory.events", true},
    {"memory.limit_in_bytes", "memory.oom_control", false},
};

static FILE *open_at(const char *root, const char *folder, const char *name)
{
    char path[2 * PATH_BYTES];
    int used = snprintf(path, sizeof(path), "%s%s/%s", root, folder, name);
    return used > 0 && (size_t)used < sizeof(path) ? fopen(path, "re") : NULL;
}

/* Whether a comma-separated list has the word. */
static bool has_word(const char *list, const char *word)
{
    size_t bytes = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at++) {
        bool begins = at == list || at[-1] == ',';
        if (begins && (at[bytes] == 0 || at[bytes] == ',')) {
            return true;
        }
    }
    return false;
}

/* The process's group in the hierarchy of that version. */
static bool find_group(const char *root, const version *of,
                       char group_out[PATH_BYTES])
{
    char line[LINE_BYTES];
    bool found = false;
    FILE *file = open_at(root, "/proc/self", "cgroup");
    while (file && !found && fgets(line, sizeof(line), file)) {
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) {
            continue;
        }
        *group++ = 0;
        group[strcspn(group, "\n")] = 0;
        found = of->second ? strncmp(line, "0:", 2) == 0 && !controllers[1]
                           : has_word(controllers + 1, "memory");
        snprintf(group_out, PATH_BYTES, "%s", group);
    }
    if (file) {
        (void)fclose(file); /* it was only read */
    }
    return found;
}

/* Where it is mounted, and which part: id parent dev root at ... - type x y */
static bool find_mount(const char *root, const version *of,
                       char part_out[PATH_BYTES], char at_out[PATH_BYTES])
{
    char line[LINE_BYTES], options[PATH_BYTES], type[64];
    bool found = false;
    FILE *file = open_at(root, "/proc/self", "mountinfo");
    while (file && !found && fgets(line, sizeof(line), file)) {
        const char *rest = strstr(line, " - ");
        found =
            rest && sscanf(rest, " - %63s %*s %1023s", type, options) == 2 &&
            strcmp(type, of->second ? "cgroup2" : "cgroup") == 0 &&
            (of->second || has_word(options, "memory")) &&
            sscanf(line, "%*s %*s %*s %1023s %1023s", part_out, at_out) == 2;
    }
    if (file) {
        (void)fclose(file); /* it was only read */
    }
    return found;
}

/* The number behind a name in a file of "name number" lines; 0: none. */
static uint64_t read_named(FILE *file, const char *name)
{
    char line[128];
    const size_t bytes = strlen(name);
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, name, bytes) == 0 && line[bytes] == ' ') {
            return strtoull(line + bytes + 1, NULL, 10);
        }
    }
    return 0;
}

/* One group's kills, and its limit if it is lower than what was found. */
static void read_group(const char *root, const char *folder, const version *of,
                       wefti_memory_limit *limit)
{
    char text[64] = "";
    FILE *file = open_at(root, folder, of->kills_name);
    limit->kills += read_named(file, "oom_kill");
    if (file) {
        (void)fclose(file); /* it was only read */
    }
    file = open_at(root, folder, of->limit_name);
    bool got = file && fgets(text, sizeof(text), file);
    if (file) {
        (void)fclose(file); /* it was only read */
    }
    if (!got || strspn(text, "0123456789") == 0) {
        return; /* "max" */
    }
    uint64_t bytes = strtoull(text, NULL, 10);
    if (bytes >= NO_LIMIT || bytes >= limit->bytes) {
        return;
    }
    limit->bytes = bytes;
    snprintf(limit->file, sizeof(limit->file), "%s/%s", folder, of->limit_name);
}

static void read_version(const char *root, const version *of,
                         wefti_memory_limit *limit)
{
    char group[PATH_BYTES], part[PATH_BYTES], at[PATH_BYTES];
    char folder[2 * PATH_BYTES];
    if (!find_group(root, of, group) || !find_mount(root, of, part, at)) {
        return;
    }
    size_t seen = strcmp(part, "/") == 0 ? 0 : strlen(part);
    bool inside = strncmp(group, part, seen) == 0;
    snprintf(folder, sizeof(folder), "%s%s", at, inside ? group + seen : group);
    const size_t top = strlen(at);
    for (size_t end = strlen(folder); end > top && folder[end - 1] == '/';) {
        folder[--end] = 0;
    }
    while (strlen(folder) > top) {
        read_group(root, folder, of, limit);
        *strrchr(folder, '/') = 0;
    }
    read_group(root, at, of, limit);
}

void wefti_memory_limit_read(const char *root, wefti_memory_limit *limit_out)
{
    *limit_out = (wefti_memory_limit){.bytes = UINT64_MAX};
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        read_version(root, &versions[i], limit_out);
    }
}

/* "MemAvailable:   1234 kB"; UINT64_MAX: not there. */
static uint64_t read_free(const char *root)
{
    char line[128];
    uint64_t kilobytes = UINT64_MAX / 1024;
    FILE *file = open_at(root, "/proc", "meminfo");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, "MemAvailable:", 13) == 0) {
            kilobytes = strtoull(line + 13, NULL, 10);
            break;
        }
    }
    if (file) {
        (void)fclose(file); /* it was only read */
    }
    return kilobytes == UINT64_MAX / 1024 ? UINT64_MAX : kilobytes * 1024;
}

uint64_t wefti_memory_available(const char *root)
{
    static const int own[] = {RLIMIT_AS, RLIMIT_DATA};
    wefti_memory_limit group;
    wefti_memory_limit_read(root, &group);
    uint64_t least = read_free(root);
    least = group.bytes < least ? group.bytes : least;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        struct rlimit limit;
        if (getrlimit(own[i], &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
            limit.rlim_cur < least) {
            least = limit.rlim_cur;
        }
    }
    return least;
}

/* What is small is not worth reading the limits for. */
weft_status wefti_memory_check(const char *what, uint64_t bytes)
{
    const uint64_t small = 64u << 20;
    uint64_t available = bytes > small ? wefti_memory_available("") : small;
    if (bytes > available) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "%s: needs %.3g GB, and %.3g GB can be had", what,
                           (double)bytes * 1e-9, (double)available * 1e-9);
    }
    return WEFT_OK;
}
