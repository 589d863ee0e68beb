/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/run_orphans.c - adopts and ends what ranks leave behind.
 *
 * Ending a process makes orphans of its children, which come here in turn: so
 * the children are listed again until there are none.
 */
#include "perf/run_orphans.h"

#include "base/clock.h"
#include "base/error.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TERM_MS = 1000, KILL_MS = 3000, LOOK_MS = 5 };

/* The parent of a process, by /proc/PID/stat; -1: it has gone. */
static pid_t parent_of(pid_t pid)
{
    char path[40], text[512];
    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    FILE *file = fopen(path, "re");
    if (!file) {
        return -1;
    }
    size_t got = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[got] = 0;
    /* The name in parentheses may hold anything: what follows the last one. */
    const char *rest = strrchr(text, ')');
    return rest && strlen(rest) > 4 ? (pid_t)strtol(rest + 4, NULL, 10) : -1;
}

/* Calls back with every child of this process. */
static void list_children(void (*found)(void *context, pid_t pid),
                          void *context)
{
    DIR *folder = opendir("/proc");
    if (!folder) {
        return;
    }
    for (const struct dirent *entry; (entry = readdir(folder));) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid > 0 && parent_of(pid) == getpid()) {
            found(context, pid);
        }
    }
    closedir(folder);
}

static void note_stranger(void *context, pid_t pid)
{
    run_strangers *strangers = context;
    size_t bytes = (strangers->count + 1) * sizeof(*strangers->pids);
    pid_t *pids = realloc(strangers->pids, bytes);
    if (pids) {
        pids[strangers->count++] = pid;
        strangers->pids = pids;
    }
}

weft_status run_orphans_adopt(run_strangers *strangers_out)
{
    *strangers_out = (run_strangers){NULL, 0};
    list_children(note_stranger, strangers_out);
    return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
               ? WEFT_OK
               : wefti_error_system("adopting orphans");
}

/* One pass over the children. */
typedef struct round {
    const run_strangers *strangers;
    int number;
    bool any;
} round;

static void end_one(void *context, pid_t pid)
{
    round *pass = context;
    for (size_t i = 0; i < pass->strangers->count; i++) {
        if (pass->strangers->pids[i] == pid) {
            return;
        }
    }
    if (waitpid(pid, NULL, WNOHANG) == 0) {
        pass->any = true;
        (void)kill(pid, pass->number);
    }
}

void run_orphans_end(const run_strangers *strangers)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000};
    const int64_t start_ns = wefti_clock_ns();
    for (;;) {
        int64_t past_ms = (wefti_clock_ns() - start_ns) / 1000000;
        round pass = {.strangers = strangers,
                      .number = past_ms < TERM_MS ? SIGTERM : SIGKILL};
        list_children(end_one, &pass);
        if (!pass.any || past_ms > KILL_MS) {
            return;
        }
        nanosleep(&pause, NULL);
    }
}

void run_orphans_fini(run_strangers *strangers)
{
    free(strangers->pids);
    *strangers = (run_strangers){NULL, 0};
}
