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
#include <stdlib.h>
#include <string.h>

static const char wanted[] = "libnccl.so.2";

/* Filled before the program runs, by the one thread that there is; lasts. */
static char answer[4096];

/* By its whole path: the program may go to another folder before it asks. */
__attribute__((visibility("default"))) unsigned la_version(unsigned version)
{
    Dl_info own;
    const char *file =
        dladdr(wanted, &own) && own.dli_fname ? own.dli_fname : "?/";
    const char *slash = strrchr(file, '/');
    snprintf(answer, sizeof(answer), "%.*s",
             slash ? (int)(slash - file) + 1 : 1, slash ? file : ".");
    char *folder = realpath(answer, NULL);
    if (!folder) {
        fprintf(stderr,
                "weft: libnccl-audit-weft.so cannot find its own file (%s); %s "
                "is looked for as without it\n",
                file, wanted);
        return 0; /* the dynamic linker goes on without */
    }
    snprintf(answer, sizeof(answer), "%s/%s", folder, wanted);
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
