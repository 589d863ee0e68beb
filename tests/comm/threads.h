/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/threads.h - counting the threads of this process.
 */
#ifndef TESTS_COMM_THREADS_H
#define TESTS_COMM_THREADS_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* Those with that name, behind which a line ends; NULL: all. */
static inline int count_threads(const char *wanted)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (const struct dirent *at; folder && (at = readdir(folder));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", at->d_name);
        FILE *file = fopen(path, "re");
        count += file && fgets(name, sizeof(name), file) &&
                 (!wanted || strcmp(name, wanted) == 0);
        if (file) {
            fclose(file);
        }
    }
    if (folder) {
        closedir(folder);
    }
    return count;
}

#endif
