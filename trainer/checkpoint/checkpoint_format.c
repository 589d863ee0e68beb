/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint_format.c - headers and tables to bytes and
 * back, with every field checked before anything relies on it.
 */
#include "trainer/checkpoint/checkpoint_format.h"

#include "base/error.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "sections hold their elements as memory does");

/* Where the fields of a header are. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_HEADER_BYTES = 12,
    AT_NRANKS = 16,
    AT_RANK = 20,
    AT_STEP = 24,
    AT_CONFIG = 32,
    AT_DATA = 64,
    AT_COUNT = 96,
    AT_TABLE = 104,
    AT_FILE = 112,
    AT_TABLE_CHECKSUM = 120,
    AT_RUN = 152,
    AT_SESSION = 160,
    AT_CHECKSUM = 224
};

/* Where the fields of an entry are; the bytes between are zero. */
enum {
    IN_NAME = 0,
    IN_DTYPE = 64,
    DTYPE_BYTES = 8,
    IN_OFFSET = 72,
    IN_BYTES = 80,
    IN_CHECKSUM = 88
};

static const char magic[8] = "WEFTCKPT";

static void put(uint8_t *bytes, uint64_t value, int count)
{
    for (int i = 0; i < count; i++) {
        bytes[i] = (uint8_t)(value >> 8 * i);
    }
}

static uint64_t get(const uint8_t *bytes, int count)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++) {
        value |= (uint64_t)bytes[i] << 8 * i;
    }
    return value;
}

void wefti_checkpoint_checksum(
    const void *value, size_t bytes,
    uint8_t checksum_out[WEFTI_CHECKPOINT_CHECKSUM_BYTES])
{
    crypto_generichash(checksum_out, WEFTI_CHECKPOINT_CHECKSUM_BYTES, value,
                       bytes, NULL, 0);
}

bool wefti_checkpoint_name_check(const char *name)
{
    size_t length = strnlen(name, WEFTI_CHECKPOINT_NAME_BYTES);
    for (size_t i = 0; i < length; i++) {
        if (name[i] <= ' ' || name[i] > '~') {
            return false;
        }
    }
    return length > 0 && length < WEFTI_CHECKPOINT_NAME_BYTES;
}

void wefti_checkpoint_header_pack(const wefti_checkpoint_header *header,
                                  const wefti_checkpoint_extent *extent,
                                  uint8_t *bytes)
{
    memset(bytes, 0, WEFTI_CHECKPOINT_HEADER_BYTES);
    memcpy(bytes + AT_MAGIC, magic, sizeof(magic));
    put(bytes + AT_VERSION, WEFTI_CHECKPOINT_VERSION, 4);
    put(bytes + AT_HEADER_BYTES, WEFTI_CHECKPOINT_HEADER_BYTES, 4);
    put(bytes + AT_NRANKS, header->nranks, 4);
    put(bytes + AT_RANK, header->rank, 4);
    put(bytes + AT_STEP, header->step, 8);
    memcpy(bytes + AT_CONFIG, header->config_digest,
           sizeof(header->config_digest));
    memcpy(bytes + AT_DATA, header->data_hash, sizeof(header->data_hash));
    put(bytes + AT_COUNT, extent->section_count, 8);
    put(bytes + AT_TABLE, extent->table_offset, 8);
    put(bytes + AT_FILE, extent->file_bytes, 8);
    memcpy(bytes + AT_TABLE_CHECKSUM, extent->table_checksum,
           sizeof(extent->table_checksum));
    put(bytes + AT_RUN, header->origin.run, 8);
    put(bytes + AT_SESSION, header->origin.session, 8);
    wefti_checkpoint_checksum(bytes, AT_CHECKSUM, bytes + AT_CHECKSUM);
}

void wefti_checkpoint_entry_pack(const wefti_checkpoint_entry *entry,
                                 uint8_t *bytes)
{
    memset(bytes, 0, WEFTI_CHECKPOINT_ENTRY_BYTES);
    memcpy(bytes + IN_NAME, entry->name, strlen(entry->name));
    const char *dtype = weft_dtype_text(entry->dtype);
    memcpy(bytes + IN_DTYPE, dtype, strnlen(dtype, DTYPE_BYTES));
    put(bytes + IN_OFFSET, entry->offset, 8);
    put(bytes + IN_BYTES, entry->bytes, 8);
    memcpy(bytes + IN_CHECKSUM, entry->checksum, sizeof(entry->checksum));
}

/* The lengths a header states, against the file's own and each other. */
static weft_status check_extent(const char *path,
                                const wefti_checkpoint_extent *extent,
                                uint64_t file_bytes)
{
    uint64_t table_bytes = extent->section_count * WEFTI_CHECKPOINT_ENTRY_BYTES;
    if (extent->file_bytes != file_bytes) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: has %" PRIu64 " bytes, its header says %" PRIu64
                           ": cut short or overwritten",
                           path, file_bytes, extent->file_bytes);
    }
    if (extent->section_count > WEFTI_CHECKPOINT_SECTIONS_MOST) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: header: %" PRIu64 " sections; allowed is at "
                           "most %d",
                           path, extent->section_count,
                           WEFTI_CHECKPOINT_SECTIONS_MOST);
    }
    if (extent->table_offset < WEFTI_CHECKPOINT_HEADER_BYTES ||
        extent->table_offset > file_bytes ||
        file_bytes - extent->table_offset != table_bytes) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: header: table of %" PRIu64 " bytes at %" PRIu64
                           " does not end the file of %" PRIu64,
                           path, table_bytes, extent->table_offset, file_bytes);
    }
    return WEFT_OK;
}

static void read_fields(const uint8_t *bytes, wefti_checkpoint_header *header,
                        wefti_checkpoint_extent *extent)
{
    header->nranks = (uint32_t)get(bytes + AT_NRANKS, 4);
    header->rank = (uint32_t)get(bytes + AT_RANK, 4);
    header->step = get(bytes + AT_STEP, 8);
    memcpy(header->config_digest, bytes + AT_CONFIG,
           sizeof(header->config_digest));
    memcpy(header->data_hash, bytes + AT_DATA, sizeof(header->data_hash));
    header->origin.run = get(bytes + AT_RUN, 8);
    header->origin.session = get(bytes + AT_SESSION, 8);
    extent->section_count = get(bytes + AT_COUNT, 8);
    extent->table_offset = get(bytes + AT_TABLE, 8);
    extent->file_bytes = get(bytes + AT_FILE, 8);
    memcpy(extent->table_checksum, bytes + AT_TABLE_CHECKSUM,
           sizeof(extent->table_checksum));
}

weft_status wefti_checkpoint_header_unpack(const char *path,
                                           const uint8_t *bytes,
                                           uint64_t file_bytes,
                                           wefti_checkpoint_header *header_out,
                                           wefti_checkpoint_extent *extent_out)
{
    uint8_t checksum[WEFTI_CHECKPOINT_CHECKSUM_BYTES];
    uint8_t again[WEFTI_CHECKPOINT_HEADER_BYTES];
    if (memcmp(bytes + AT_MAGIC, magic, sizeof(magic)) != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: header: not a checkpoint of weft", path);
    }
    uint64_t version = get(bytes + AT_VERSION, 4);
    if (version != WEFTI_CHECKPOINT_VERSION ||
        get(bytes + AT_HEADER_BYTES, 4) != WEFTI_CHECKPOINT_HEADER_BYTES) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: header: format version %" PRIu64
                           "; this version reads %d",
                           path, version, WEFTI_CHECKPOINT_VERSION);
    }
    wefti_checkpoint_checksum(bytes, AT_CHECKSUM, checksum);
    if (memcmp(checksum, bytes + AT_CHECKSUM, sizeof(checksum)) != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: header: checksum differs, corrupt", path);
    }
    read_fields(bytes, header_out, extent_out);
    wefti_checkpoint_header_pack(header_out, extent_out, again);
    if (memcmp(again, bytes, sizeof(again)) != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: header: unused bytes are not zero", path);
    }
    return check_extent(path, extent_out, file_bytes);
}

/* The type of that text; WEFT_DTYPE_COUNT: there is none. */
static weft_dtype read_dtype(const char *text)
{
    int dtype = 0;
    while (dtype < WEFT_DTYPE_COUNT &&
           strcmp(text, weft_dtype_text((weft_dtype)dtype)) != 0) {
        dtype++;
    }
    return (weft_dtype)dtype;
}

/* One entry that must begin at offset; the sections end before table_offset. */
static weft_status unpack_entry(const char *path, const uint8_t *bytes,
                                uint64_t offset, uint64_t table_offset,
                                wefti_checkpoint_entry *entry)
{
    uint8_t again[WEFTI_CHECKPOINT_ENTRY_BYTES];
    char dtype[DTYPE_BYTES + 1] = {0};
    memcpy(dtype, bytes + IN_DTYPE, DTYPE_BYTES);
    memcpy(entry->name, bytes + IN_NAME, sizeof(entry->name));
    entry->dtype = read_dtype(dtype);
    entry->offset = get(bytes + IN_OFFSET, 8);
    entry->bytes = get(bytes + IN_BYTES, 8);
    memcpy(entry->checksum, bytes + IN_CHECKSUM, sizeof(entry->checksum));
    if (!wefti_checkpoint_name_check(entry->name)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: table: the section at %" PRIu64
                           " has no proper name",
                           path, offset);
    }
    if (entry->dtype == WEFT_DTYPE_COUNT) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: section %s: unknown element type", path,
                           entry->name);
    }
    if (entry->offset != offset || entry->bytes > table_offset - offset ||
        entry->bytes % weft_dtype_bytes(entry->dtype) != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: section %s: %" PRIu64 " bytes of %s at %" PRIu64
                           " do not fit into %" PRIu64 "..%" PRIu64,
                           path, entry->name, entry->bytes,
                           weft_dtype_text(entry->dtype), entry->offset, offset,
                           table_offset);
    }
    wefti_checkpoint_entry_pack(entry, again);
    if (memcmp(again, bytes, sizeof(again)) != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: section %s: unused bytes are not zero", path,
                           entry->name);
    }
    return WEFT_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static weft_status check_names_differ(const char *path,
                                      const wefti_checkpoint_entry *entries,
                                      size_t count)
{
    weft_status status = WEFT_OK;
    const char **names = malloc((count + 1) * sizeof(*names));
    if (names == NULL) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%s: out of memory", path);
    }
    for (size_t i = 0; i < count; i++) {
        names[i] = entries[i].name;
    }
    qsort(names, count, sizeof(*names), by_name);
    for (size_t i = 1; status == WEFT_OK && i < count; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            status = wefti_error(WEFT_ERR_INVALID,
                                 "%s: section %s: given twice", path, names[i]);
        }
    }
    free(names);
    return status;
}

weft_status wefti_checkpoint_table_unpack(const char *path,
                                          const uint8_t *bytes,
                                          const wefti_checkpoint_extent *extent,
                                          wefti_checkpoint_entry *entries_out)
{
    uint8_t checksum[WEFTI_CHECKPOINT_CHECKSUM_BYTES];
    size_t count = (size_t)extent->section_count;
    uint64_t offset = WEFTI_CHECKPOINT_HEADER_BYTES;
    wefti_checkpoint_checksum(bytes, count * WEFTI_CHECKPOINT_ENTRY_BYTES,
                              checksum);
    if (memcmp(checksum, extent->table_checksum, sizeof(checksum)) != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: table of sections: checksum differs, corrupt",
                           path);
    }
    for (size_t i = 0; i < count; i++) {
        weft_status status =
            unpack_entry(path, bytes + i * WEFTI_CHECKPOINT_ENTRY_BYTES, offset,
                         extent->table_offset, &entries_out[i]);
        if (status != WEFT_OK) {
            return status;
        }
        offset += entries_out[i].bytes;
    }
    if (offset != extent->table_offset) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: table: sections end at %" PRIu64
                           ", not where the table begins, %" PRIu64,
                           path, offset, extent->table_offset);
    }
    return check_names_differ(path, entries_out, count);
}
