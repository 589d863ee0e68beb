/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/module.c - the places, from the folder of the library or program; and
 * whether what lies there can be opened.
 */
#include "base/module.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <libgen.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* WEFTI_LIBDIR is lib, or lib64. The last four are as lib/weft/nccl and
 * lib/weft/mpi/NAME see them, installed and where they were built. */
static const char *const places[] = {"",
                                     "weft/",
                                     "../lib/",
                                     "../" WEFTI_LIBDIR "/weft/",
                                     "../../weft/",
                                     "../../../lib/",
                                     "../../../weft/",
                                     "../../../../lib/"};

/* The file that holds this code. Of a program dladdr knows the first argument
 * only, which the caller chooses and which may be another file's name here. */
static bool find_own(char file_out[PATH_MAX])
{
    static const char here;
    Dl_info about;
    void *found = NULL;
    if (dladdr1(&here, &about, &found, RTLD_DL_LINKMAP) && found) {
        const struct link_map *map = found;
        if (map->l_name[0] && realpath(map->l_name, file_out)) {
            return true;
        }
    }
    return realpath("/proc/self/exe", file_out) != NULL;
}

bool wefti_module_find(const char *name, char path_out[PATH_MAX])
{
    char file[PATH_MAX];
    if (!find_own(file)) {
        return false;
    }
    const char *folder = dirname(file);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        int used =
            snprintf(path_out, PATH_MAX, "%s/%s%s", folder, places[i], name);
        if (used > 0 && used < PATH_MAX && access(path_out, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

static bool read_at(int fd, uint64_t offset, void *out, size_t bytes)
{
    return pread(fd, out, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* How long the file has to be for its segments to be there; 0: dlopen decides,
 * which reads the headers before it maps anything. */
static uint64_t get_needed_bytes(int fd)
{
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    uint64_t needed_bytes = 0;
    if (!read_at(fd, 0, &header, sizeof(header)) ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_phentsize != sizeof(segment)) {
        return 0;
    }
    for (uint64_t i = 0; i < header.e_phnum; i++) {
        if (!read_at(fd, header.e_phoff + i * sizeof(segment), &segment,
                     sizeof(segment))) {
            return 0;
        }
        const uint64_t end = segment.p_offset + segment.p_filesz;
        if (segment.p_type == PT_LOAD && end > needed_bytes) {
            needed_bytes = end;
        }
    }
    return needed_bytes;
}

/* What cannot be opened or examined is dlopen's to refuse. */
static bool is_cut_short(const char *path, char *why_out, size_t why_bytes)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    const uint64_t needed_bytes = get_needed_bytes(fd);
    const bool cut =
        fstat(fd, &about) == 0 && (uint64_t)about.st_size < needed_bytes;
    if (cut) {
        snprintf(why_out, why_bytes,
                 "%s: damaged: it has %lld bytes, and %llu belong to it", path,
                 (long long)about.st_size, (unsigned long long)needed_bytes);
    }
    close(fd);
    return cut;
}

void *wefti_module_open(const char *path, int flags, const char *symbol,
                        void **handle_out, char *why_out, size_t why_bytes)
{
    if (is_cut_short(path, why_out, why_bytes)) {
        return NULL;
    }
    void *handle = dlopen(path, flags);
    void *found = handle ? dlsym(handle, symbol) : NULL;
    if (!found) {
        const char *why = dlerror();
        snprintf(why_out, why_bytes, "%s", why ? why : path);
        if (handle) {
            dlclose(handle);
        }
        return NULL;
    }
    *handle_out = handle;
    return found;
}
