/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fuzz/replay.c - feed a fuzzer's corpus to its target without a fuzzer,
 * so that every preset repeats what fuzzing once found.
 *
 * Usage: fuzz_NAME CORPUS_FOLDER
 * Fails when the folder holds no file: then it would test nothing.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

static int replay(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return -1;
    }
    /* Exactly as long as the input, so that a sanitizer sees each overrun. */
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(bytes ? bytes : 1);
    int result = -1;
    if (data && fread(data, 1, bytes, file) == bytes) {
        LLVMFuzzerTestOneInput(data, bytes);
        result = 0;
    }
    free(data);
    fclose(file);
    return result;
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
        return 2;
    }
    int done = 0, failed = 0;
    for (struct dirent *entry = readdir(folder); entry;
         entry = readdir(folder)) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        failed += replay(argv[1], entry->d_name) != 0;
        done++;
    }
    closedir(folder);
    printf("%d inputs replayed, %d unreadable\n", done, failed);
    return done > 0 && failed == 0 ? 0 : 1;
}
