/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/process.c - reading /proc (proc(5)).
 */
#include "base/process.h"

#include "base/plain_number.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* As /proc numbers it; 0: it has ended, or is not shown here. */
static int pid_of(int pidfd)
{
    static const char label[] = "Pid:\t";
    char path[64], line[128];
    int pid = 0;
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    FILE *file = fopen(path, "re");
    while (file && pid == 0 && fgets(line, sizeof(line), file)) {
        int64_t number;
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, label, strlen(label)) == 0 &&
            wefti_plain_int(line + strlen(label), &number) &&
            number <= INT_MAX) {
            pid = (int)number;
        }
    }
    if (file) {
        (void)fclose(file);
    }
    return pid > 0 ? pid : 0;
}

bool wefti_process_is_stopped(int pidfd)
{
    char path[64], text[256] = "";
    const int pid = pid_of(pidfd);
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = pid > 0 ? fopen(path, "re") : NULL;
    if (!file) {
        return false;
    }
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    /* "123 (its name) T ..."; the name may hold anything, ')' too. */
    const char *end = strrchr(text, ')');
    return end && end[1] == ' ' && (end[2] == 'T' || end[2] == 't');
}
