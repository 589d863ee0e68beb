/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/sized.h - the rule for structs whose first member is size_bytes.
 *
 * Callers that were compiled against an older or a newer weft are accepted:
 * what an older one lacks counts as 0, and what a newer one has more must be 0,
 * for then nothing is asked for that this weft does not know. Of what weft
 * fills in, an older caller gets what it has room for, and a newer one 0 behind
 * that.
 *
 * A new field goes to the end, and not into the padding there: that is not 0 in
 * an older caller. The first version is what no caller can do without; less
 * than that is a mistake, such as the size of a pointer.
 */
#ifndef BASE_SIZED_H
#define BASE_SIZED_H

#include "weft/status.h"

#include <stddef.h>

/* No struct of any version is larger; beyond it nothing is read. */
enum { WEFTI_SIZED_MOST_BYTES = 4096 };

/*
 * wefti_sized_check - whether size_bytes is that of some version of a struct.
 *
 * name         of the argument, for the text: "config".
 * least_bytes  of the first version; own_bytes: of this one.
 *
 * Returns     OK | ERR_INVALID.
 */
WEFT_NODISCARD weft_status wefti_sized_check(const char *name,
                                             size_t size_bytes,
                                             size_t least_bytes,
                                             size_t own_bytes);

/*
 * wefti_sized_read - a caller's struct as one of this version; its size_bytes
 * becomes own_bytes.
 *
 * Returns     OK | ERR_INVALID (size_bytes, or a tail that is not 0): *own_out
 *             is unchanged.
 */
WEFT_NODISCARD weft_status wefti_sized_read(const char *name, const void *given,
                                            size_t least_bytes, void *own_out,
                                            size_t own_bytes);

/* Fills in a caller's struct, whose size_bytes has been checked and stays. */
void wefti_sized_write(void *out, const void *own, size_t own_bytes);

#endif
