/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/memory_need.c - which ranks share a machine or a cgroup, and what
 * they need together.
 *
 * Source: proc_meminfo(5); random(4) for boot_id, which containers share with
 * their machine.
 */
#include "trainer/memory_need.h"

#include "base/memory_limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 512 };

static FILE *open_at(const char *root, const char *path)
{
    char whole[PATH_BYTES];
    int length = snprintf(whole, sizeof(whole), "%s%s", root, path);
    return length > 0 && length < PATH_BYTES ? fopen(whole, "re") : NULL;
}

/* "MemTotal:  1234 kB" of /proc/meminfo, in bytes; 0: there is none. */
static double read_total(const char *root, const char *name)
{
    char line[128];
    double bytes = 0;
    FILE *file = open_at(root, "/proc/meminfo");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, name, strlen(name)) == 0) {
            bytes = (double)strtoull(line + strlen(name), NULL, 10) * 1024;
            break;
        }
    }
    if (file) {
        (void)fclose(file); /* it was only read */
    }
    return bytes;
}

static uint64_t mix(uint64_t value, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) { /* FNV-1a */
        value = (value ^ ((const uint8_t *)bytes)[i]) * UINT64_C(1099511628211);
    }
    return value;
}

static uint64_t find_host(const char *root)
{
    char line[128] = "";
    FILE *file = open_at(root, "/proc/sys/kernel/random/boot_id");
    size_t bytes = file ? fread(line, 1, sizeof(line), file) : 0;
    if (file) {
        (void)fclose(file); /* it was only read */
    }
    return mix(UINT64_C(14695981039346656037), line, bytes);
}

void wefti_memory_need_locate(const char *root, wefti_memory_need *need_out)
{
    char path[PATH_BYTES + sizeof(((wefti_memory_limit *)NULL)->file)];
    wefti_memory_limit limit;
    struct stat what;
    *need_out =
        (wefti_memory_need){.host = find_host(root),
                            .host_bytes = read_total(root, "MemTotal:"),
                            .swap_bytes = read_total(root, "SwapTotal:")};
    wefti_memory_limit_read(root, &limit);
    snprintf(path, sizeof(path), "%s%s", root, limit.file);
    /* By number: containers call their own groups by the same names. */
    if (limit.bytes != UINT64_MAX && stat(path, &what) == 0) {
        need_out->group =
            mix(need_out->host, &what.st_ino, sizeof(what.st_ino)) | 1;
        need_out->group_bytes = (double)limit.bytes;
    }
}

/* What all ranks like that one need; *first_out: whether it comes first. */
static double sum_alike(const wefti_memory_need *needs, size_t count,
                        size_t which, bool of_group, size_t *ranks_out,
                        bool *first_out)
{
    double sum = 0;
    *ranks_out = 0;
    *first_out = true;
    for (size_t i = 0; i < count; i++) {
        if (of_group ? needs[i].group == needs[which].group
                     : needs[i].host == needs[which].host) {
            *first_out = *first_out && i >= which;
            sum += needs[i].bytes;
            ++*ranks_out;
        }
    }
    return sum;
}

bool wefti_memory_need_check(const wefti_memory_need *needs, size_t count,
                             wefti_memory_lack *lack_out)
{
    for (size_t i = 0; i < 2 * count; i++) {
        const wefti_memory_need *one = &needs[i / 2];
        bool of_group = i % 2 == 0, first;
        double have = of_group ? one->group_bytes : one->host_bytes;
        *lack_out = (wefti_memory_lack){
            .first = i / 2, .have_bytes = have, .of_group = of_group};
        if (have <= 0) {
            continue;
        }
        lack_out->need_bytes =
            sum_alike(needs, count, i / 2, of_group, &lack_out->count, &first);
        if (first && lack_out->need_bytes > have + one->swap_bytes) {
            return true;
        }
    }
    return false;
}
