/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/exchange/safetensors.h - files in the safetensors format: named
 * arrays that any program can read.
 *
 *   8 bytes    bytes of the header, little endian
 *   header     JSON: {"name": {"dtype": "F32", "shape": [2, 3],
 *                              "data_offsets": [0, 24]}, ...}, spaces at its
 * end data       the arrays, row by row, without a gap; the file ends with them
 *
 * What is read is of unknown origin: after OK every array lies inside the file,
 * is as long as its shape says, and shares no byte and no name with another.
 *
 * Source: the format's description in the README of huggingface/safetensors.
 */
#ifndef TRAINER_EXCHANGE_SAFETENSORS_H
#define TRAINER_EXCHANGE_SAFETENSORS_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

#define WEFTI_SAFETENSORS_PREFIX_BYTES 8
/* Longest header taken; 10000 layers have less. */
#define WEFTI_SAFETENSORS_HEADER_BYTES_MOST ((uint64_t)64 << 20)

/* As data_bytes of a header: as many as its items have. */
#define WEFTI_SAFETENSORS_ANY_BYTES UINT64_MAX

enum { WEFTI_SAFETENSOR_DIMENSIONS_MOST = 8 };

typedef struct wefti_safetensor {
    const char *name;
    const char *dtype; /* "F32", a literal */
    size_t elem_bytes;
    uint64_t shape[WEFTI_SAFETENSOR_DIMENSIONS_MOST];
    size_t dimensions;
    uint64_t start_bytes, end_bytes; /* in the data */
} wefti_safetensor;

/* What a file says of itself or of an item, in its "__metadata__". */
typedef struct wefti_safetensors_note {
    const char *key, *text;
} wefti_safetensors_note;

typedef struct wefti_safetensors {
    wefti_safetensor *items; /* read: in the order of their data */
    size_t count;
    void *names;                      /* owned; NULL: borrowed from elsewhere */
    const wefti_safetensor **by_name; /* [count] once it has been sorted */
    const wefti_safetensors_note *notes; /* to write; borrowed */
    size_t note_count;
} wefti_safetensors;

/* Bytes of an element of "F32"; 0: there is no such type. */
size_t wefti_safetensor_dtype_bytes(const char *dtype);

/*
 * wefti_safetensors_parse - a header.
 *
 * path         for messages
 * data_bytes   of the file, behind the header
 *
 * Returns     OK (to be ended with fini) | ERR_INVALID | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_safetensors_parse(const char *path,
                                                   const char *header,
                                                   size_t header_bytes,
                                                   uint64_t data_bytes,
                                                   wefti_safetensors *out);
void wefti_safetensors_fini(wefti_safetensors *list);

/* So that items can be found: one that was parsed has been sorted. Returns OK |
 * ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_safetensors_sort(wefti_safetensors *list);

/* NULL: there is none. */
const wefti_safetensor *wefti_safetensors_find(const wefti_safetensors *list,
                                               const char *name);

/*
 * wefti_safetensors_find_note - a note that was read; NULL: there is none.
 *
 * near    where the one before was found, NULL at first: keys that are asked
 *         for in the order of the file are found at once
 */
const char *wefti_safetensors_find_note(const wefti_safetensors *list,
                                        const char *key, const void **near);

/* A file being read, or written in the order of its items. */
typedef struct wefti_safetensors_file {
    int fd;
    const char *path;     /* borrowed */
    uint64_t start_bytes; /* where the data begin */
    uint64_t data_bytes;
    uint64_t done_bytes; /* of the data, written */
    wefti_safetensors list;
} wefti_safetensors_file;

/*
 * wefti_safetensors_open - to read. Returns OK (to be closed) | ERR_SYSTEM |
 * ERR_INVALID | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_safetensors_open(const char *path,
                                                  wefti_safetensors_file *file);

/* All bytes of one of file's items. Returns OK | ERR_SYSTEM | ERR_INVALID. */
WEFT_NODISCARD weft_status
wefti_safetensors_read(const wefti_safetensors_file *file,
                       const wefti_safetensor *item, void *value_out);

/* The same of any bytes of the file, from offset on. */
WEFT_NODISCARD weft_status
wefti_safetensors_read_at(const wefti_safetensors_file *file, uint64_t offset,
                          void *value_out, uint64_t bytes);

/*
 * wefti_safetensors_create - a new file of such items, whose offsets this sets;
 * it must not be there yet. Items and names are borrowed until the end. It says
 * {"format": "pt"} of itself, without which some programs refuse it, and the
 * list's notes.
 */
WEFT_NODISCARD weft_status wefti_safetensors_create(
    const char *path, wefti_safetensors *list, wefti_safetensors_file *file);

/* The data's next bytes. */
WEFT_NODISCARD weft_status wefti_safetensors_write(wefti_safetensors_file *file,
                                                   const void *value,
                                                   size_t bytes);

/* All has been written: makes it durable. The file is still to be closed. */
WEFT_NODISCARD weft_status
wefti_safetensors_finish(const wefti_safetensors_file *file);

void wefti_safetensors_close(wefti_safetensors_file *file);

#endif
