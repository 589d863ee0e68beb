/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/port_guard.c - weft_net.so: opens weft_net_ucx.so, which lies beside
 * it, and sees that the process keeps its signal handlers. UCX sets some as it
 * is loaded; a library inside somebody else's process may not, so what was set
 * before is set again.
 */
#include "comm/net/port.h"

#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static void *open_quietly(const char *path)
{
    struct sigaction before[NSIG];
    bool known[NSIG];
    for (int number = 1; number < NSIG; number++) {
        known[number] = sigaction(number, NULL, &before[number]) == 0;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    for (int number = 1; number < NSIG; number++) {
        if (known[number]) {
            (void)sigaction(number, &before[number], NULL);
        }
    }
    return handle;
}

extern wefti_port_loader wefti_port_load;

__attribute__((visibility("default"))) const wefti_port_table *
wefti_port_load(char *why_out, size_t why_bytes)
{
    static const char here;
    Dl_info about;
    char path[PATH_MAX] = "";
    if (dladdr(&here, &about)) {
        const char *name = strrchr(about.dli_fname, '/');
        int folder = name ? (int)(name - about.dli_fname) + 1 : 0;
        snprintf(path, sizeof(path), "%.*sweft_net_ucx.so", folder,
                 about.dli_fname);
    }
    void *handle = open_quietly(path);
    void *table = handle ? dlsym(handle, WEFTI_PORT_TABLE) : NULL;
    if (!table) {
        const char *why = dlerror();
        snprintf(why_out, why_bytes, "%s", why ? why : path);
    }
    return table;
}
