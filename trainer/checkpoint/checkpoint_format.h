/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint_format.h - the bytes of one rank's checkpoint
 * file.
 *
 *   0               header, 256 bytes, its last 32 the checksum of the others
 *   256             section 0, section 1, ... without gaps
 *   table_offset    one entry of 128 bytes a section; the file ends with them
 *
 * An entry names its element type by weft_dtype_text. Integers are little
 * endian, checksums BLAKE2b-256. Header, table and each section has one, and
 * nothing else is in the file: no byte can change unseen.
 * All of this is arithmetic on memory; files are the reader's and writer's.
 */
#ifndef TRAINER_CHECKPOINT_CHECKPOINT_FORMAT_H
#define TRAINER_CHECKPOINT_CHECKPOINT_FORMAT_H

#include "trainer/checkpoint/checkpoint.h"

#include <stdbool.h>

#define WEFTI_CHECKPOINT_HEADER_BYTES   256
#define WEFTI_CHECKPOINT_ENTRY_BYTES    128
#define WEFTI_CHECKPOINT_CHECKSUM_BYTES 32
#define WEFTI_CHECKPOINT_VERSION        4

/* What a header says of the rest of its file. */
typedef struct wefti_checkpoint_extent {
    uint64_t section_count;
    uint64_t table_offset;
    uint64_t file_bytes;
    uint8_t table_checksum[WEFTI_CHECKPOINT_CHECKSUM_BYTES];
} wefti_checkpoint_extent;

typedef struct wefti_checkpoint_entry {
    char name[WEFTI_CHECKPOINT_NAME_BYTES];
    weft_dtype dtype;
    uint64_t offset;
    uint64_t bytes;
    uint8_t checksum[WEFTI_CHECKPOINT_CHECKSUM_BYTES];
} wefti_checkpoint_entry;

void wefti_checkpoint_checksum(
    const void *value, size_t bytes,
    uint8_t checksum_out[WEFTI_CHECKPOINT_CHECKSUM_BYTES]);

/* Whether name may be a section's: 1..63 printable ASCII characters. */
bool wefti_checkpoint_name_check(const char *name);

void wefti_checkpoint_header_pack(const wefti_checkpoint_header *header,
                                  const wefti_checkpoint_extent *extent,
                                  uint8_t *bytes);
void wefti_checkpoint_entry_pack(const wefti_checkpoint_entry *entry,
                                 uint8_t *bytes);

/*
 * wefti_checkpoint_header_unpack - read and validate a header of a file that
 * is file_bytes long: after OK the table lies inside the file, and ends it.
 *
 * Returns     OK | ERR_INVALID; the text begins with path.
 */
WEFT_NODISCARD weft_status wefti_checkpoint_header_unpack(
    const char *path, const uint8_t *bytes, uint64_t file_bytes,
    wefti_checkpoint_header *header_out, wefti_checkpoint_extent *extent_out);

/*
 * wefti_checkpoint_table_unpack - read and validate all entries: after OK the
 * sections follow each other without a gap from header to table, are whole
 * numbers of elements, and have different names.
 *
 * bytes        extent->section_count entries, as in the file.
 * entries_out  room for as many.
 */
WEFT_NODISCARD weft_status wefti_checkpoint_table_unpack(
    const char *path, const uint8_t *bytes,
    const wefti_checkpoint_extent *extent, wefti_checkpoint_entry *entries_out);

#endif
