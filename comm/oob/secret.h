/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/secret.h - what every rank of one job knows, and nothing else does.
 */
#ifndef COMM_OOB_SECRET_H
#define COMM_OOB_SECRET_H

#include "weft/status.h"

#include <stddef.h>

enum { WEFTI_SECRET_BYTES = 32 };

/* Derived from the user's secret; wiped by fini. */
typedef struct wefti_secret {
    unsigned char key[WEFTI_SECRET_BYTES];
} wefti_secret;

/* From any bytes. */
void wefti_secret_init(wefti_secret *secret, const void *bytes,
                       size_t bytes_count);
void wefti_secret_fini(wefti_secret *secret);

/*
 * wefti_private_file_read - what stands in a file that belongs to this
 * process's user, or root, and that no other may read.
 *
 * setting   that names it
 * flags     of open, further ones
 *
 * Returns     OK: *bytes_out of text_out, which has room for so many |
 * ERR_INVALID (it is no such file) | ERR_SYSTEM: errno.
 */
WEFT_NODISCARD weft_status wefti_private_file_read(const char *setting,
                                                   const char *path, int flags,
                                                   char *text_out,
                                                   size_t room_bytes,
                                                   size_t *bytes_out);

/*
 * wefti_secret_load - from WEFT_SECRET, else from the file that
 * WEFT_SECRET_FILE names; a line end after the secret is not part of it.
 *
 * Returns     OK | ERR_INVALID (there is none; shorter than 16 or longer than
 *             256 characters; the file belongs to or can be read by others) |
 *             ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_secret_load(wefti_secret *secret_out);

#endif
