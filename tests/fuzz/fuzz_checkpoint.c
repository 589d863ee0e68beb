/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fuzz/fuzz_checkpoint.c - any bytes as a rank's checkpoint file, once as
 * they are and once with good checksums, so that what they guard is reached.
 *
 * What is accepted must be exactly what the writer's side makes of the same
 * fields: header and table are packed again and compared.
 */
#include "trainer/checkpoint/checkpoint_format.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where trainer/checkpoint/checkpoint_format.h has them. */
enum { COUNT_AT = 96, TABLE_AT = 104, TABLE_CHECKSUM_AT = 120, SEAL_AT = 224 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

static char dir[64];
static int image_fd = -1;

static void require(int good)
{
    if (!good) {
        abort();
    }
}

static void remove_dir(void)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/step_00000001/rank_00000.weft", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/step_00000001", dir);
    rmdir(path);
    rmdir(dir);
}

/* A folder whose one file is a link to memory. */
static void make_dir(void)
{
    char path[128];
    char target[64];
    snprintf(dir, sizeof(dir), "/tmp/weft-fuzz-XXXXXX");
    require(mkdtemp(dir) != NULL);
    atexit(remove_dir);
    image_fd = memfd_create("checkpoint", MFD_CLOEXEC);
    require(image_fd >= 0);
    snprintf(path, sizeof(path), "%s/step_00000001", dir);
    require(mkdir(path, 0700) == 0);
    snprintf(path, sizeof(path), "%s/step_00000001/rank_00000.weft", dir);
    snprintf(target, sizeof(target), "/proc/self/fd/%d", image_fd);
    require(symlink(target, path) == 0);
}

static uint64_t get_u64(const uint8_t *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof(value));
    return value;
}

/* Makes the checksums of table and header right, where they lie inside. */
static void seal(uint8_t *image, size_t bytes)
{
    uint64_t count = get_u64(image + COUNT_AT);
    uint64_t table = get_u64(image + TABLE_AT);
    if (table <= bytes &&
        count <= (bytes - table) / WEFTI_CHECKPOINT_ENTRY_BYTES) {
        wefti_checkpoint_checksum(image + table,
                                  count * WEFTI_CHECKPOINT_ENTRY_BYTES,
                                  image + TABLE_CHECKSUM_AT);
    }
    wefti_checkpoint_checksum(image, SEAL_AT, image + SEAL_AT);
}

/* Through the reader, as a run that resumes does it. */
static void read_file(const uint8_t *image, size_t bytes,
                      const wefti_checkpoint_header *expect)
{
    uint8_t value[64];
    wefti_checkpoint_reader *reader = NULL;
    require(ftruncate(image_fd, 0) == 0);
    require(pwrite(image_fd, image, bytes, 0) == (ssize_t)bytes);
    if (wefti_checkpoint_reader_open(dir, expect, &reader) != WEFT_OK) {
        require(weft_error_text()[0] != '\0');
        return;
    }
    weft_status status = wefti_checkpoint_reader_check(reader);
    status = wefti_checkpoint_reader_get(reader, "a", WEFT_DTYPE_U8, value, 8);
    status = wefti_checkpoint_reader_get(reader, "b", WEFT_DTYPE_F32, value, 4);
    (void)status; /* legal either way */
    wefti_checkpoint_reader_close(reader);
}

/* Header and table, as the reader's two calls see them, and packed again. */
static void parse(const uint8_t *image, size_t bytes)
{
    wefti_checkpoint_header header = {.step = 1, .nranks = 1};
    wefti_checkpoint_extent extent;
    uint8_t again[WEFTI_CHECKPOINT_HEADER_BYTES];
    if (wefti_checkpoint_header_unpack("image", image, bytes, &header,
                                       &extent) != WEFT_OK) {
        read_file(image, bytes, &header);
        return;
    }
    const uint8_t *table = image + extent.table_offset;
    size_t count = (size_t)extent.section_count;
    wefti_checkpoint_entry *entries = calloc(count + 1, sizeof(*entries));
    require(entries != NULL);
    if (wefti_checkpoint_table_unpack("image", table, &extent, entries) ==
        WEFT_OK) {
        for (size_t i = 0; i < count; i++) {
            wefti_checkpoint_entry_pack(&entries[i], again);
            require(memcmp(again, table + i * WEFTI_CHECKPOINT_ENTRY_BYTES,
                           WEFTI_CHECKPOINT_ENTRY_BYTES) == 0);
        }
    }
    wefti_checkpoint_header_pack(&header, &extent, again);
    require(memcmp(again, image, sizeof(again)) == 0);
    free(entries);
    read_file(image, bytes, &header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
    if (image_fd < 0) {
        make_dir();
    }
    if (data_bytes < WEFTI_CHECKPOINT_HEADER_BYTES) {
        wefti_checkpoint_header none = {.step = 1, .nranks = 1};
        read_file(data, data_bytes, &none);
        return 0;
    }
    uint8_t *image = malloc(data_bytes);
    require(image != NULL);
    memcpy(image, data, data_bytes);
    parse(image, data_bytes);
    seal(image, data_bytes);
    parse(image, data_bytes);
    free(image);
    return 0;
}
