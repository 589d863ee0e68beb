/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint_index.h - index.json of a step: the headers of
 * all its files, which say where the parts of each tensor are.
 *
 *   {
 *   "rank_00000.safetensors": {"__metadata__": {"format": "pt",
 *      "weft": "version 5, step 50, ranks 2, run ...",
 *      "embedding@1024": "DIGEST 256 64", ...},
 *      "embedding@1024": {"dtype": "F32", "shape": [512],
 *                         "data_offsets": [0, 2048]}, ...},
 *   "rank_00001.safetensors": ...
 *   }
 *
 * Each header is one line, byte by byte as in its file. In it a whole tensor
 * has its name and shape; a part is a vector named NAME@OFFSET, from that
 * element on, row after row. A note of the same name has digest, rows (0: a
 * vector) and columns of the whole tensor.
 *
 * What is read is of unknown origin: after OK the sections of each tensor
 * follow each other without a gap from its first element to its last, and those
 * of a file fill it.
 */
#ifndef TRAINER_CHECKPOINT_CHECKPOINT_INDEX_H
#define TRAINER_CHECKPOINT_CHECKPOINT_INDEX_H

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/exchange/safetensors.h"

#define WEFTI_CHECKPOINT_INDEX   "index.json"
#define WEFTI_CHECKPOINT_ABOUT   "weft" /* the note of the step */
#define WEFTI_CHECKPOINT_VERSION 5
/* With what a trial of overlap has found, which others lack. */
#define WEFTI_CHECKPOINT_VERSION_TRIED 6

enum {
    WEFTI_CHECKPOINT_HEX_BYTES = 2 * WEFTI_CHECKPOINT_DIGEST_BYTES + 1,
    WEFTI_CHECKPOINT_FILE_BYTES = 40, /* room for a file's name */
    WEFTI_CHECKPOINT_ABOUT_BYTES = 1024
};

typedef struct wefti_checkpoint_file {
    const char *head; /* its header, in the index's text */
    uint64_t head_bytes;
    uint64_t bytes; /* of the file */
} wefti_checkpoint_file;

typedef struct wefti_checkpoint_section {
    wefti_checkpoint_piece piece; /* without live and at_bytes */
    uint64_t file, at_bytes;      /* from its first byte */
    uint8_t digest[WEFTI_CHECKPOINT_DIGEST_BYTES];
} wefti_checkpoint_section;

typedef struct wefti_checkpoint_index {
    wefti_checkpoint_header header;
    wefti_checkpoint_file *files; /* one of each rank */
    size_t file_count;
    wefti_checkpoint_section *sections; /* by tensor and offset */
    size_t count;
    char *text;
} wefti_checkpoint_index;

/* "rank_00002.safetensors" */
void wefti_checkpoint_file_name(uint64_t rank,
                                char name[WEFTI_CHECKPOINT_FILE_BYTES]);

void wefti_checkpoint_digest(const void *value, size_t bytes,
                             uint8_t digest_out[WEFTI_CHECKPOINT_DIGEST_BYTES]);

/*
 * wefti_checkpoint_header_pack - what a file says of its step, as one text;
 * header_find: out of a file's header. Returns OK | ERR_INVALID: the text
 * begins with path.
 */
void wefti_checkpoint_header_pack(const wefti_checkpoint_header *header,
                                  char text[WEFTI_CHECKPOINT_ABOUT_BYTES]);
WEFT_NODISCARD weft_status
wefti_checkpoint_header_find(const char *path, const wefti_safetensors *list,
                             wefti_checkpoint_header *header_out);

/* The format's name of a type. */
void wefti_checkpoint_dtype_name(weft_dtype dtype, char name[8]);

/*
 * wefti_checkpoint_index_unpack - a file's text, which becomes the index's.
 *
 * Returns     OK (to be ended with fini) | ERR_INVALID: the text begins with
 *             path | ERR_NO_MEMORY. After an error text has been freed.
 */
WEFT_NODISCARD weft_status
wefti_checkpoint_index_unpack(const char *path, char *text, size_t bytes,
                              wefti_checkpoint_index *index_out);

/* Of the text, at most: larger ones are neither written nor read. */
#define WEFTI_CHECKPOINT_INDEX_BYTES_MOST ((size_t)1 << 30)

/*
 * wefti_checkpoint_index_gather - the text, of the files in a folder, and the
 * index of it.
 *
 * Returns     OK (to be ended with fini) | ERR_INVALID | ERR_SYSTEM |
 *             ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_checkpoint_index_gather(
    const char *folder, uint64_t nranks, size_t *bytes_out,
    wefti_checkpoint_index *index_out);

void wefti_checkpoint_index_fini(wefti_checkpoint_index *index);

#endif
