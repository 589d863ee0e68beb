/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fuzz/replay.c - feed a fuzzer's corpus to its target without a fuzzer,
 * so that every preset repeats what fuzzing once found; then, for two seconds,
 * inputs made from the corpus by random changes.
 *
 * Usage: fuzz_NAME CORPUS_FOLDER
 * Fails when the folder holds no file: then it would test nothing.
 */
#include "tests/seed.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define INPUTS_MOST     4096
#define CHANGES_SECONDS 2
/* How far changes may make an input grow. */
#define INPUT_BYTES_MOST 65536

typedef struct input {
    uint8_t *bytes;
    size_t count;
} input;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

static input inputs[INPUTS_MOST];
static size_t input_count;
static uint64_t random_state;

static size_t random_below(size_t bound)
{
    return (size_t)(random_next(&random_state) % bound);
}

/* Runs one input, exactly as long as it is: a sanitizer sees each overrun. */
static int run(const uint8_t *bytes, size_t count)
{
    uint8_t *data = malloc(count != 0 ? count : 1);
    if (data == NULL) {
        return -1;
    }
    memcpy(data, bytes, count);
    LLVMFuzzerTestOneInput(data, count);
    free(data);
    return 0;
}

static int load(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL || input_count == INPUTS_MOST) {
        perror(path);
        return -1;
    }
    fseek(file, 0, SEEK_END);
    input *one = &inputs[input_count];
    one->count = (size_t)ftell(file);
    one->bytes = malloc(one->count + 1);
    rewind(file);
    int result = -1;
    if (one->bytes != NULL &&
        fread(one->bytes, 1, one->count, file) == one->count) {
        input_count++;
        result = 0;
    }
    fclose(file);
    return result;
}

/* Puts count bytes at offset at of the work, moving its end away. */
static size_t insert(uint8_t *work, size_t work_bytes, size_t at,
                     const uint8_t *bytes, size_t count)
{
    if (work_bytes + count > INPUT_BYTES_MOST) {
        return work_bytes;
    }
    memmove(work + at + count, work + at, work_bytes - at);
    memcpy(work + at, bytes, count);
    return work_bytes + count;
}

/* One random change in place; returns the new length. */
static size_t change(uint8_t *work, size_t count)
{
    uint8_t piece[64];
    const input *other = &inputs[random_below(input_count)];
    size_t at = random_below(count + 1);
    size_t from = random_below(other->count + 1);
    size_t length = random_below(sizeof(piece));
    if (length > other->count - from) {
        length = other->count - from;
    }
    switch (count == 0 ? 2 : random_below(6)) {
    case 0:
        work[at % count] ^= (uint8_t)(1 << random_below(8));
        return count;
    case 1:
        work[at % count] = (uint8_t)random_below(256);
        return count;
    case 2: /* a piece of another input */
        memcpy(piece, other->bytes + from, length);
        return insert(work, count, at, piece, length);
    case 3: /* a piece goes */
        length = length < count - at ? length : count - at;
        memmove(work + at, work + at + length, count - at - length);
        return count - length;
    case 4: /* the end goes */
        return at;
    default: /* an extreme number */
        memset(piece, random_below(2) != 0 ? 0xFF : 0, 8);
        length = count - at < 8 ? count - at : 8;
        memcpy(work + at, piece, length);
        return count;
    }
}

static unsigned long run_changes(void)
{
    static uint8_t work[INPUT_BYTES_MOST];
    unsigned long done = 0;
    time_t start = time(NULL);
    while (time(NULL) - start <= CHANGES_SECONDS) {
        const input *one = &inputs[random_below(input_count)];
        size_t count =
            one->count < INPUT_BYTES_MOST ? one->count : INPUT_BYTES_MOST;
        memcpy(work, one->bytes, count);
        for (size_t changes = 1 + random_below(6); changes > 0; changes--) {
            count = change(work, count);
        }
        if (run(work, count) != 0) {
            return 0;
        }
        done++;
    }
    return done;
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (folder == NULL) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
        return 2;
    }
    int failed = 0;
    for (struct dirent *entry = readdir(folder); entry != NULL;
         entry = readdir(folder)) {
        if (entry->d_name[0] != '.') {
            failed += load(argv[1], entry->d_name) != 0;
        }
    }
    closedir(folder);
    for (size_t i = 0; i < input_count; i++) {
        failed += run(inputs[i].bytes, inputs[i].count) != 0;
    }
    printf("%zu inputs replayed, %d unreadable\n", input_count, failed);
    if (input_count == 0 || failed != 0) {
        return 1;
    }
    random_state = random_seed();
    unsigned long done = run_changes();
    printf("%lu changed inputs tried\n", done);
    for (size_t i = 0; i < input_count; i++) {
        free(inputs[i].bytes);
    }
    return done > 0 ? 0 : 1;
}
