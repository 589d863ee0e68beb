/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/doors/nccl_versions.c - prints which NCCL a program has: the one that
 * it is linked with, the one that it opens by name, those that it opens by
 * path, which are its arguments.
 */
#include <dlfcn.h>
#include <stdio.h>

int ncclGetVersion(int *version_out);

static int version_of(const char *name)
{
    int version = -1;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    int (*ask)(int *) = NULL;
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return -1;
    }
    *(void **)&ask = dlsym(library, "ncclGetVersion");
    if (ask) {
        (void)ask(&version);
    }
    return version;
}

int main(int argc, char **argv)
{
    int version = -1;
    (void)ncclGetVersion(&version);
    printf("%d %d", version, version_of("libnccl.so.2"));
    for (int i = 1; i < argc; i++) {
        printf(" %d", version_of(argv[i]));
    }
    printf("\n");
    return 0;
}
