/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_fabrics.c - looks for the libraries that fabrics are made of.
 */
#include "perf/info_fabrics.h"

#include "base/check.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct fabric {
    const char *name;
    const char *library; /* NULL: weft's own */
    const char *use;
} fabric;

static const fabric fabrics[] = {
    {"self", NULL, "a rank and itself"},
    {"shm", NULL, "ranks of one host, through memory they share"},
    {"net", "libucp.so.0", "ranks on several hosts, through UCX"},
    {"cuda", "libcuda.so.1", "GPUs of one host, by peer copies"},
    {"nccl", "libnccl.so.2", "GPUs, by NCCL"}};

/* Whether the system gives memory to share. */
static bool can_share(void)
{
    int fd = memfd_create("weft-info", MFD_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    close(fd);
    return true;
}

static bool is_usable(const fabric *f, char *why, size_t why_bytes)
{
    if (!f->library) {
        bool usable = f != &fabrics[1] || can_share();
        snprintf(why, why_bytes, "%s",
                 usable ? f->use : "memfd_create is refused");
        return usable;
    }
    /* Kept mapped: UCX loses memory when it is taken out again. */
    void *module = dlopen(f->library, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (!module) {
        snprintf(why, why_bytes, "%s is not here", f->library);
        return false;
    }
    dlclose(module);
    snprintf(why, why_bytes, "%s; %s is here", f->use, f->library);
    return true;
}

void wefti_info_fabrics_write(bool live, wefti_json *json)
{
    wefti_json_array_open(json, "fabrics");
    for (size_t i = 0; i < WEFTI_COUNT_OF(fabrics) && live; i++) {
        char why[128];
        bool usable = is_usable(&fabrics[i], why, sizeof(why));
        wefti_json_object_open(json, NULL);
        wefti_json_text(json, "name", fabrics[i].name);
        wefti_json_bool(json, "usable", usable);
        wefti_json_text(json, "why", why);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

void wefti_info_fabrics_print(FILE *file)
{
    fputs("\nFabrics\n", file);
    for (size_t i = 0; i < WEFTI_COUNT_OF(fabrics); i++) {
        char why[128];
        bool usable = is_usable(&fabrics[i], why, sizeof(why));
        fprintf(file, "%-7s%-4s %s\n", fabrics[i].name, usable ? "yes" : "no",
                why);
    }
}
