/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/cpus.c - reads sets of CPUs, cores and control groups.
 *
 * A control group's limit holds for all below it, so the least one on the way
 * up counts. In a container the path that /proc names may not be there; what is
 * mounted as the root is read in its place.
 *
 * Source: the kernel's admin-guide/cgroup-v2.rst (cpu.max) and
 * scheduler/sched-bwc.rst (cpu.cfs_quota_us).
 */
#include "topo/cpus.h"

#include "base/error.h"
#include "topo/number.h"

#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS     (WEFTI_CPUS_MOST / 64)
#define PATH_ROOM 512

int wefti_cpus_count(const wefti_cpus *set)
{
    int count = 0;
    for (size_t i = 0; i < WORDS; i++) {
        count += __builtin_popcountll(set->words[i]);
    }
    return count;
}

void wefti_cpus_intersect(wefti_cpus *set, const wefti_cpus *with)
{
    for (size_t i = 0; i < WORDS; i++) {
        set->words[i] &= with->words[i];
    }
}

void wefti_cpus_read(const char *affinity, wefti_cpus *set)
{
    int words = 1;
    memset(set, 0, sizeof(*set));
    if (!affinity[0]) {
        return;
    }
    for (const char *c = affinity; *c; c++) {
        words += *c == ',';
    }
    while (words-- > 0) {
        uint64_t bits = strtoul(affinity, NULL, 16) & 0xffffffff;
        if (words < WEFTI_CPUS_MOST / 32) {
            set->words[words / 2] |= bits << 32 * (words % 2);
        }
        const char *comma = strchr(affinity, ',');
        affinity = comma ? comma + 1 : "0";
    }
}

static int next_cpu(const wefti_cpus *set, int cpu)
{
    while (cpu < WEFTI_CPUS_MOST && !wefti_cpus_has(set, cpu)) {
        cpu++;
    }
    return cpu;
}

/* The last of those that follow by the same step; steps over 1 only for at
 * least four. */
static int end_of_run(const wefti_cpus *set, int first, bool strides,
                      int *step_out)
{
    int last = first, step = next_cpu(set, first + 1) - first, count = 1;
    *step_out = 1;
    if (step > 1 && !strides) {
        return first;
    }
    while (last + step < WEFTI_CPUS_MOST &&
           next_cpu(set, last + 1) == last + step) {
        last += step;
        count++;
    }
    if (step > 1 && count < 4) {
        return first;
    }
    *step_out = step;
    return last;
}

void wefti_cpus_text(const wefti_cpus *set, bool strides, char *text,
                     size_t text_bytes)
{
    enum { LONGEST = 24 }; /* ",1000-2000:16" and "..." */
    size_t used = 0;
    text[0] = '\0';
    for (int cpu = next_cpu(set, 0), last, step; cpu < WEFTI_CPUS_MOST;
         cpu = next_cpu(set, last + 1)) {
        last = end_of_run(set, cpu, strides, &step);
        if (used + LONGEST > text_bytes) {
            snprintf(text + used, text_bytes - used, ",...");
            return;
        }
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%d",
                                 used ? "," : "", cpu);
        if (last > cpu) {
            used += (size_t)snprintf(text + used, text_bytes - used,
                                     step > 1 ? "-%d:%d" : "-%d", last, step);
        }
    }
}

weft_status wefti_cpus_allowed(wefti_cpus *set)
{
    size_t bytes = CPU_ALLOC_SIZE(WEFTI_CPUS_MOST);
    cpu_set_t *mask = CPU_ALLOC(WEFTI_CPUS_MOST);
    if (!mask) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "a set of CPUs");
    }
    weft_status status = WEFT_OK;
    memset(set, 0, sizeof(*set));
    CPU_ZERO_S(bytes, mask);
    if (sched_getaffinity(0, bytes, mask) != 0) {
        status = wefti_error_system("sched_getaffinity");
    }
    for (size_t cpu = 0; cpu < WEFTI_CPUS_MOST && status == WEFT_OK; cpu++) {
        if (CPU_ISSET_S(cpu, bytes, mask)) {
            wefti_cpus_add(set, (int)cpu);
        }
    }
    CPU_FREE(mask);
    return status;
}

/* ---- control groups -------------------------------------------------------
 */

/* The first line of a file, without its end; false if there is none. */
static bool read_line(const char *path, char *line, size_t line_bytes)
{
    FILE *file = fopen(path, "r");
    line[0] = '\0';
    if (!file) {
        return false;
    }
    bool read = fgets(line, (int)line_bytes, file) != NULL;
    line[strcspn(line, "\n")] = '\0';
    return fclose(file) == 0 && read;
}

/* CPUs' worth of time by quota and period in us; infinite where there is no
 * limit ("max", -1) or no such thing. */
static double share_of(const char *quota, const char *period)
{
    uint64_t part, whole;
    bool known = wefti_number_read(&quota, 10, INT64_MAX, &part) &&
                 wefti_number_read(&period, 10, INT64_MAX, &whole);
    return known && part > 0 && whole > 0 ? (double)part / (double)whole
                                          : HUGE_VAL;
}

/* The limit of one group; version 2 has it in one file. */
static double limit_of(const char *group)
{
    char path[PATH_ROOM + 32], line[64], period[64];
    snprintf(path, sizeof(path), "%s/cpu.max", group);
    if (read_line(path, line, sizeof(line))) {
        const char *space = strchr(line, ' ');
        return space ? share_of(line, space + 1) : HUGE_VAL;
    }
    snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", group);
    if (!read_line(path, line, sizeof(line))) {
        return HUGE_VAL;
    }
    snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", group);
    return read_line(path, period, sizeof(period)) ? share_of(line, period)
                                                   : HUGE_VAL;
}

/* The least on the way from the group up to where groups are mounted. */
static double limit_above(const char *mount, const char *group)
{
    char path[PATH_ROOM];
    double least = HUGE_VAL;
    int used = snprintf(path, sizeof(path), "%s%s", mount, group);
    size_t root = strlen(mount);
    if (used < 0 || used >= (int)sizeof(path)) {
        return least;
    }
    for (;;) {
        least = fmin(least, limit_of(path));
        char *slash = strrchr(path, '/');
        if (!slash || (size_t)(slash - path) < root) {
            return least;
        }
        *slash = '\0';
    }
}

/* Whether a list such as "cpu,cpuacct" names the controller. */
static bool names_cpu(const char *list, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t word = strcspn(list + at, ",:");
        if (word == 3 && strncmp(list + at, "cpu", 3) == 0) {
            return true;
        }
        at += word + 1;
    }
    return false;
}

/* By one line of /proc/self/cgroup: "0::/a/b", "4:cpu,cpuacct:/a/b". */
static double limit_by_line(const char *sysfs, const char *line)
{
    char mount[PATH_ROOM];
    const char *list = strchr(line, ':');
    const char *group = list ? strchr(list + 1, ':') : NULL;
    if (!group) {
        return HUGE_VAL;
    }
    list++;
    size_t bytes = (size_t)(group - list);
    group++;
    if (bytes == 0) {
        snprintf(mount, sizeof(mount), "%s/fs/cgroup", sysfs);
        double least = limit_above(mount, group);
        snprintf(mount, sizeof(mount), "%s/fs/cgroup/unified", sysfs);
        return fmin(least, limit_above(mount, group));
    }
    if (!names_cpu(list, bytes)) {
        return HUGE_VAL;
    }
    snprintf(mount, sizeof(mount), "%s/fs/cgroup/%.*s", sysfs, (int)bytes,
             list);
    double least = limit_above(mount, group);
    snprintf(mount, sizeof(mount), "%s/fs/cgroup/cpu", sysfs);
    return fmin(least, limit_above(mount, group));
}

static int read_quota(const char *proc, const char *sysfs)
{
    char path[PATH_ROOM], line[PATH_ROOM];
    double least = HUGE_VAL;
    snprintf(path, sizeof(path), "%s/self/cgroup", proc);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        least = fmin(least, limit_by_line(sysfs, line));
    }
    if (file) {
        (void)fclose(file);
    }
    return least < INT_MAX ? (int)ceil(least) : 0;
}

/* ---- cores ----------------------------------------------------------------
 */

static void read_cores(const char *sysfs, wefti_allowance *allowance)
{
    for (int cpu = 0; cpu < WEFTI_CPUS_MOST; cpu++) {
        char path[PATH_ROOM], line[64];
        const char *at = line;
        uint64_t first;
        if (!wefti_cpus_has(&allowance->cpus, cpu)) {
            continue;
        }
        snprintf(path, sizeof(path),
                 "%s/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                 sysfs, cpu);
        if (read_line(path, line, sizeof(line)) &&
            wefti_number_read(&at, 10, WEFTI_CPUS_MOST - 1, &first)) {
            allowance->core_of[cpu] = (uint16_t)(first + 1);
        }
    }
}

weft_status wefti_allowance_read(const char *proc, const char *sysfs,
                                 wefti_allowance *allowance_out)
{
    memset(allowance_out, 0, sizeof(*allowance_out));
    weft_status status = wefti_cpus_allowed(&allowance_out->cpus);
    if (status == WEFT_OK) {
        allowance_out->quota = read_quota(proc, sysfs);
        read_cores(sysfs, allowance_out);
    }
    return status;
}
