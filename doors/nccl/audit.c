/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/audit.c - for LD_AUDIT: whoever needs libnccl.so.2 by that name
 * gets weft's, which lies beside this file, whatever its RPATH has. The dynamic
 * linker asks here before it looks anywhere (rtld-audit(7)). Where there is
 * none, it says that it cannot open that file, and nothing runs on another.
 *
 * It lives in a namespace of its own, with a libc of its own, and so has
 * nothing of weft's inside. A name with a / is not touched: by such ones
 * programs, and WEFT_NCCL, mean one file.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char wanted[] = "libnccl.so.2";

/* Filled before the program runs, by the one thread that there is; lasts. */
static char answer[4096];

__attribute__((visibility("default"))) unsigned la_version(unsigned version)
{
    Dl_info own;
    if (!dladdr(wanted, &own) || !own.dli_fname) {
        return 0; /* the dynamic linker goes on without */
    }
    const char *slash = strrchr(own.dli_fname, '/');
    const int folder_chars = slash ? (int)(slash - own.dli_fname) : 1;
    snprintf(answer, sizeof(answer), "%.*s/%s", folder_chars,
             slash ? own.dli_fname : ".", wanted);
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

__attribute__((visibility("default"))) char *
la_objsearch(const char *name, uintptr_t *cookie, unsigned flag)
{
    (void)cookie;
    return flag == LA_SER_ORIG && strcmp(name, wanted) == 0 ? answer
                                                            : (char *)name;
}
