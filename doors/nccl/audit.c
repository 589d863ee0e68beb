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
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char wanted[] = "libnccl.so.2";

/* Filled before the program runs, by the one thread that there is; lasts. */
static char answer[4096];

/* By its whole path: the program may go to another folder before it asks. If
 * that cannot be told, the dynamic linker says so as of a file that is missing.
 */
__attribute__((visibility("default"))) unsigned la_version(unsigned version)
{
    Dl_info own;
    const bool known = dladdr(wanted, &own) && own.dli_fname;
    const char *slash = known ? strrchr(own.dli_fname, '/') : NULL;
    snprintf(answer, sizeof(answer), "%.*s",
             slash ? (int)(slash - own.dli_fname) + 1 : 1,
             slash ? own.dli_fname : ".");
    char *folder = known ? realpath(answer, NULL) : NULL;
    snprintf(answer, sizeof(answer), "%s/%s",
             folder ? folder : "(unknown folder of libnccl-audit-weft.so)",
             wanted);
    free(folder);
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

__attribute__((visibility("default"))) char *
la_objsearch(const char *name, uintptr_t *cookie, unsigned flag)
{
    (void)cookie;
    return flag == LA_SER_ORIG && strcmp(name, wanted) == 0 ? answer
                                                            : (char *)name;
}
